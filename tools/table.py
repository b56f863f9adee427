"""Write the generated pages and tables, such as docs/guide.md and the table of README.md.

They are the table and names of README.md; the pages of the guide, of the glossary, of published
names and of the commands; and the table of properties in docs/properties.md. With --check, only
name the files that are stale.
"""

import json
import runpy
import sys
from pathlib import Path

from posenc.catalog import CATALOG
from posenc.properties import ALL
from posenc.show.report import guide
from posenc.support import glossary

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import busy  # noqa: E402

README = ROOT / "README.md"
PROPERTIES = ROOT / "docs/properties.md"
GLOSSARY = ROOT / "docs/glossary.md"
PUBLISHED = ROOT / "docs/names.md"
COMMANDS = ROOT / "docs/commands.md"
GUIDE_PAGE = ROOT / "docs/guide.md"
BENCHMARKS = ROOT / "benchmarks/README.md"
BUSY = "<!-- busy: made by tools/table.py -->"
BUSY_RUNS = ROOT / "benchmarks/results/2026-11-27-epyc-2-threads"
START, END = "<!-- table: made by tools/table.py -->", "<!-- end of table -->"
GUIDE = "<!-- guide: made by tools/table.py -->"
NAMES = "<!-- encodings: made by tools/table.py -->"
FAMILIES = {
    "additive": "vectors added to embeddings",
    "rotary": "encodings that rotate queries and keys",
    "bias": "biases added to scores",
    "relative": "encodings that change scores by distance and content",
    "none": "no encoding, for comparison",
}


def table() -> str:
    heads = ["", *(measure.__name__.replace("_", " ") for measure in ALL)]
    lines = [heads, ["---", *[":-:"] * len(ALL)]]
    for card in CATALOG:
        marks = ["✓" if measure in card.holds else "" for measure in ALL]
        name = f"[{card.name}]({card.paper.link})" if card.paper else card.name
        causal = card.make(16, 4).causal
        lines.append([f"{name} ᶜ" if causal else name, *marks])
    note = (
        "\n\nᶜ An encoding made for causal attention; its properties are measured under a causal"
        " mask."
    )
    rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return rows + note if any("ᶜ" in line[0] for line in lines) else rows


def named() -> str:
    """Return the names of all encodings as Markdown, one line for each family."""
    lines = []
    for family, acts in FAMILIES.items():
        names = ", ".join(card.name for card in CATALOG if card.family == family)
        lines.append(f"- {acts}: {names}")
    return "\n".join(lines)


def beside_load() -> str:
    """Return the table of attention times on idle and busy cores, from all stored runs."""
    return busy.markdown(
        json.loads(file.read_text("utf-8")) for file in sorted(BUSY_RUNS.glob("*.json"))
    )


def between(text: str, start: str, new: str) -> str:
    before, rest = text.split(start)
    return f"{before}{start}\n{new}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    fresh = {
        README: between(between(README.read_text(), GUIDE, guide.markdown()), NAMES, named()),
        PROPERTIES: between(PROPERTIES.read_text(), START, table()),
        GLOSSARY: glossary.page(),
        PUBLISHED: glossary.names_page(),
        COMMANDS: runpy.run_path(str(ROOT / "tools/commands.py"))["page"](),
        GUIDE_PAGE: guide.page(),
        BENCHMARKS: between(BENCHMARKS.read_text(), BUSY, beside_load()),
    }
    stale = [path for path, new in fresh.items() if not path.exists() or path.read_text() != new]
    if stale and "--check" in sys.argv:
        files = " and ".join(path.name for path in stale)
        sys.exit(f"what is generated is stale in {files}: run `make table`.")
    for path in stale:
        path.write_text(fresh[path])


if __name__ == "__main__":
    main()
