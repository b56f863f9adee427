"""Write what the explorer's page knows of the catalogue; tests hold it against the encodings.

python tools/explorer.py             # all, minutes
python tools/explorer.py rope        # one encoding
"""

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from posenc.catalog import CATALOG
from posenc.show.explorer import data


def catalog(names: list[str]) -> dict[str, Any]:
    """Measure these anew; what is packaged of the others stays. All, unless some are named."""
    known = data.catalog() if names else {}
    return {
        card.slug: data.measure(card) if not names or card.slug in names else known[card.slug]
        for card in CATALOG
    }


if __name__ == "__main__":
    data.write(catalog(sys.argv[1:]), Path(str(files("posenc.show.explorer"))) / "catalog.json")
