"""Write the property table of README.md, from the cards; with --check, only say if it is stale."""

import sys
from pathlib import Path

from posenc.catalog import CATALOG
from posenc.properties import ALL

README = Path(__file__).parent.parent / "README.md"
START, END = "<!-- table: made by docs/table.py -->", "<!-- end of table -->"


def table() -> str:
    heads = ["", *(measure.__name__.replace("_", " ") for measure in ALL)]
    lines = [heads, ["---", *[":-:"] * len(ALL)]]
    for card in CATALOG:
        marks = ["✓" if measure in card.holds else "" for measure in ALL]
        lines.append([f"[{card.name}]({card.paper.link})", *marks])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    text = README.read_text()
    before, rest = text.split(START)
    after = rest.split(END)[1]
    made = f"{before}{START}\n{table()}\n{END}{after}"
    if "--check" not in sys.argv:
        README.write_text(made)
    elif made != text:
        sys.exit("the property table of README.md is stale: run `make table`.")


if __name__ == "__main__":
    main()
