"""Write what the explorer's page knows of the catalogue and of models; tests hold it against both.

python tools/explorer.py             # both files, minutes
python tools/explorer.py rope        # one encoding
python tools/explorer.py models      # models alone
"""

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from posenc.catalog import CATALOG
from posenc.models import published
from posenc.models.config.families import model_types
from posenc.models.files.errors import ModelError
from posenc.show.explorer import data, models

FOLDER = Path(str(files("posenc.show.explorer")))


def catalog(names: list[str]) -> dict[str, Any]:
    """Measure these anew; what is packaged of the others stays. All, unless some are named."""
    known = data.catalog() if names else {}
    return {
        card.slug: data.measure(card) if not names or card.slug in names else known[card.slug]
        for card in CATALOG
    }


def architectures() -> dict[str, Any]:
    """The published models, and every `model_type` of transformers that is read."""
    found, turnings = [], {}
    for name, config in published.configs().items():
        model, turns = models.published_model(name, config)
        found.append(model)
        turnings |= turns
    for name in sorted(model_types()):
        try:
            model, turns = models.architecture(name)
        except ModelError:
            continue
        found.append(model)
        turnings |= turns
    return {"models": found, "turnings": turnings}


def main() -> None:
    names = sys.argv[1:]
    if names != ["models"]:
        data.write(catalog(names), FOLDER / "catalog.json")
    if not names or names == ["models"]:
        data.write(architectures(), FOLDER / "models.json")


if __name__ == "__main__":
    main()
