"""Write the generated files: the table and names of README.md; the pages of the guide, of the
glossary, of published names and of the commands; the table of properties in docs/properties.md; and
`findings.json`, if the encodings have changed since they were measured, or with --measure. With
--check, only name the files that are stale.
"""

import json
import runpy
import sys
from pathlib import Path

import torch

from posenc.catalog import CATALOG
from posenc.properties import ALL, check
from posenc.properties.card import described, measured_by
from posenc.show.report import guide
from posenc.support import glossary, names

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PROPERTIES = ROOT / "docs/properties.md"
GLOSSARY = ROOT / "docs/glossary.md"
PUBLISHED = ROOT / "docs/names.md"
COMMANDS = ROOT / "docs/commands.md"
GUIDE_PAGE = ROOT / "docs/guide.md"
START, END = "<!-- table: made by tools/table.py -->", "<!-- end of table -->"
GUIDE = "<!-- guide: made by tools/table.py -->"
NAMES = "<!-- encodings: made by tools/table.py -->"
FAMILIES = {
    "additive": "added to embeddings",
    "rotary": "rotate queries and keys",
    "bias": "added to scores",
    "relative": "change scores by distance and content",
    "none": "nothing, for comparison",
}


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


def named() -> str:
    """Return the names of all encodings, a line for each family."""
    lines = []
    for family, acts in FAMILIES.items():
        names = ", ".join(card.name for card in CATALOG if card.family == family)
        lines.append(f"- {acts}: {names}")
    return "\n".join(lines)


def between(text: str, start: str, new: str) -> str:
    before, rest = text.split(start)
    return f"{before}{start}\n{new}\n{END}{rest.partition(END)[2]}"


def findings() -> str:
    """What `posenc show` prints of each encoding beyond its printed card."""
    torch.set_num_threads(1)
    encodings = {}
    for card in CATALOG:
        torch.manual_seed(0)
        encoding = card.make(64, 4)
        whole = described(card, encoding.causal, check(encoding, 64, 4))
        encodings[card.slug] = {name: whole[name] for name in ("causal", "properties")}
    measured = {"measured_by": measured_by(), "encodings": encodings}
    return json.dumps(measured, ensure_ascii=False, indent=1) + "\n"


def measured_now() -> bool:
    """Test whether what is packaged was measured of these encodings."""
    if not names.FINDINGS.exists() or "--measure" in sys.argv:
        return False
    return json.loads(names.FINDINGS.read_text())["measured_by"]["sources"] == names.sources()


def main() -> None:
    fresh = {
        README: between(between(README.read_text(), GUIDE, guide.markdown()), NAMES, named()),
        PROPERTIES: between(PROPERTIES.read_text(), START, table()),
        GLOSSARY: glossary.page(),
        PUBLISHED: glossary.names_page(),
        COMMANDS: runpy.run_path(str(ROOT / "tools/commands.py"))["page"](),
        GUIDE_PAGE: guide.page(),
    }
    stale = [path for path, new in fresh.items() if not path.exists() or path.read_text() != new]
    if not measured_now():
        stale.append(names.FINDINGS)
    if stale and "--check" in sys.argv:
        files = " and ".join(path.name for path in stale)
        sys.exit(f"what is generated is stale in {files}: run `make table`.")
    for path in stale:
        path.write_text(findings() if path == names.FINDINGS else fresh[path])


if __name__ == "__main__":
    main()
