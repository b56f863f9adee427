"""Write the property table of README.md, from the cards; with --check, only say if it is stale."""

import sys
from pathlib import Path

from posenc.catalog import CATALOG
from posenc.properties import ALL

README = Path(__file__).parent.parent / "README.md"
START, END = "<!-- table: made by tools/table.py -->", "<!-- end of table -->"


def table() -> str:
    heads = ["", *(measure.__name__.replace("_", " ") for measure in ALL)]
    lines = [heads, ["---", *[":-:"] * len(ALL)]]
    for card in CATALOG:
        marks = ["✓" if measure in card.holds else "" for measure in ALL]
        name = f"[{card.name}]({card.paper.link})" if card.paper else card.name
        causal = card.make(16, 4).causal
        lines.append([f"{name} ᶜ" if causal else name, *marks])
    note = "\n\nᶜ made for causal attention, and measured under a causal mask"
    rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return rows + note if any("ᶜ" in line[0] for line in lines) else rows


def main() -> None:
    text = README.read_text()
    before, rest = text.split(START)
    after = rest.split(END)[1]
    fresh = f"{before}{START}\n{table()}\n{END}{after}"
    if "--check" not in sys.argv:
        README.write_text(fresh)
    elif fresh != text:
        sys.exit("the property table of README.md is stale: run `make table`.")


if __name__ == "__main__":
    main()
