"""Write what the explorer's page knows of catalogue and studies; tests hold it against both.

python tools/explorer.py             # all, minutes
python tools/explorer.py rope        # one encoding
python tools/explorer.py studies     # the outcomes of studies alone
"""

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from posenc.catalog import CATALOG
from posenc.show.explorer import data, trained


def catalog(names: list[str]) -> dict[str, Any]:
    """Measure these anew; what is packaged of the others stays. All, unless some are named."""
    known = data.catalog() if names else {}
    return {
        card.slug: data.measure(card) | {"wider": data.wider(card)}
        if not names or card.slug in names
        else known[card.slug]
        for card in CATALOG
    }


if __name__ == "__main__":
    folder, names = Path(str(files("posenc.show.explorer"))), sys.argv[1:]
    if names in ([], ["studies"]):
        studies = Path(__file__).parent.parent / "studies"
        data.write(trained.measured(studies), folder / "trained.json")
    if names != ["studies"]:
        data.write(catalog(names), folder / "catalog.json")
