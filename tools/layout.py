"""Measure the package's structure: files that one check opens, files that an addition edits.

    python tools/layout.py

Opened files are those of the model that `posenc check` is given. Each addition is made in a copy of
the package and must work there at once; a test file is added to each and is not counted. Rooms are
folders at the top of the package, floors the longest way down through their imports.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import posenc

POSENC = Path(posenc.__file__).parent
CONFIG = '{"model_type": "llama", "num_hidden_layers": 2, "max_position_embeddings": 4096}'
OPENS = """
import sys
opened = []
def note(event, args):
    if event == "open" and str(args[0]).startswith(sys.argv[1]):
        opened.append(str(args[0]))
sys.addaudithook(note)
from posenc.commands import cli
try:
    cli.main(["check", sys.argv[1]])
except SystemExit:
    pass
print(len(opened))
"""
ENCODING = '''"""Halves: add half of the position.

    PE(p, c) = p / 2
"""

from posenc.core.encoding import Encoding
from posenc.properties.card import ROTATION, Card, paper


class Halves(Encoding):
    def on_embeddings(self, x, at):
        return x + at[..., None] / 2


CARD = Card(
    name="Halves",
    paper=paper("half2026"),
    make=lambda dim, heads: Halves(),
    holds=ROTATION,
)
'''
PAPER = """@misc{half2026,
  title = {{Halves}},
  author = {Half, Ada},
  year = {2026},
  url = {https://example.org/halves},
}

"""
COMMAND = '''"""`posenc hello`: greet."""

from posenc.commands.app import LOOK, command


@command(LOOK, place=9, examples=(("posenc hello", "greet"),))
def hello() -> None:
    """Greet."""
    print("hello")
'''
FAMILY = '''"""Halfway: every second layer is rotated."""

from posenc.models.config.layers import Config, Layer, stack

FACTS = {"kind": "rotary", "layout": "half"}


def layers(config: Config) -> list[Layer]:
    return stack(config)[::2]
'''
DRAWN = """
import tempfile
from pathlib import Path
from posenc.lab.compare.comparison import Settings, compare
from posenc.show.report import page
sizes = dict(dim=16, heads=2, window=12, windows=2, sentences=3, cost_tokens=16, cost_rounds=1)
result = compare(["rope", "alibi"], settings=Settings(**sizes))
with tempfile.TemporaryDirectory() as folder:
    page.write(result, Path(folder) / "page")
    print((Path(folder) / "page/index.html").read_text().count("figure-of-mine"))
"""
FIGURES = """
def make_figures(result: Comparison) -> Sections:
    return {
        FILES_ONLY: {"properties": properties(result)},  # the page has a table of them
        "positions": {"rows": rows(result)},
"""
FIGURE = """
def mine(result):
    return replace(rows(result), title="Mine")

"""
PLACE = ('{"rows": rows(result)}', '{"rows": rows(result), "figure-of-mine": mine(result)}')
IMPORTED = re.compile(r"^\s*from posenc\.([\w.]+) import", re.MULTILINE)
DOORS = {"__init__", "__main__", "testing"}  # public names, `python -m posenc`, and for pytest
Edits = Mapping[str, tuple[str, str]]  # file → the old text and the new text
# Name of an addition → its edits ("" for a new file), code that tries it, a word that it prints
ADDITIONS: Mapping[str, tuple[Edits, str, str]] = {
    "encoding": (
        {
            "encodings/additive/halves.py": ("", ENCODING),
            "encodings/papers.bib": ("@misc{assran", f"{PAPER}@misc{{assran"),
            "catalog.py": (
                "\nHOME =",
                "from posenc.encodings.additive.halves import Halves as Halves\n\nHOME =",
            ),
        },
        "import posenc; print(posenc.create('halves', 8, 1)); "
        "from posenc.commands.cli import main; main(['list'])",
        "halves\tadditive",
    ),
    "command": (
        {"commands/hello.py": ("", COMMAND)},
        "from posenc.commands.cli import main; main(['hello'])",
        "hello",
    ),
    "family": (
        {"models/config/families/halfway.py": ("", FAMILY)},
        "import posenc; sizes = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=32);"
        " print(len(posenc.Model({'model_type': 'halfway', **sizes}).encodings()))",
        "16",
    ),
    "figure": (
        {"show/report/kinds/comparison/figures.py": (FIGURES, FIGURE + FIGURES.replace(*PLACE))},
        DRAWN,
        "",
    ),
}


def opens() -> int:
    """Count how often one `posenc check` opens the config file of a model."""
    with TemporaryDirectory() as folder:
        model = Path(folder).resolve() / "model"
        model.mkdir()
        (model / "config.json").write_text(CONFIG)
        return int(_run(OPENS, POSENC.parent, str(model)).split()[-1])


def touched(addition: str) -> int:
    """Make an addition in a copy of the package, test it, and count the edited files."""
    edits, code, word = ADDITIONS[addition]
    with TemporaryDirectory() as folder:
        home = Path(folder) / "posenc"
        shutil.copytree(POSENC, home, ignore=shutil.ignore_patterns("__pycache__"))
        for name, (old, new) in edits.items():
            text = (home / name).read_text("utf-8") if old else ""
            if old not in text or (not old and (home / name).exists()):
                raise LookupError(f"{name} has changed: {old!r} is not in it")
            (home / name).write_text(text.replace(old, new, 1) if old else new, "utf-8")
        printed = _run(code, Path(folder))
    if word not in printed or printed.strip() == "0":
        raise LookupError(f"the {addition} that was added does not work: {printed[-300:]}")
    return len(edits)


def _run(code: str, place: Path, *words: str) -> str:
    command = [sys.executable, "-c", code, *words]
    environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return done.stdout


def rooms() -> dict[str, set[str]]:
    """Return the top-level subpackages, each with the subpackages that it imports."""
    found: dict[str, set[str]] = {}
    for file in POSENC.rglob("*.py"):
        room = file.relative_to(POSENC).with_suffix("").parts[0]
        if room not in DOORS:
            text = file.read_text("utf-8")
            imported = {name.split(".")[0] for name in IMPORTED.findall(text)}
            found.setdefault(room, set()).update(imported - {room})
    return {room: others & found.keys() for room, others in found.items()}


def floors(below: Mapping[str, set[str]]) -> int:
    """Return the length of the longest chain of imports between subpackages."""

    @cache
    def height(room: str) -> int:
        return 1 + max(map(height, below[room]), default=0)

    return max(map(height, below))


def main(names: Sequence[str]) -> None:
    below = rooms()
    print(f"{len(below)} rooms on {floors(below)} floors")
    print(f"one `posenc check` of a config opens it {opens()} times")
    for name in names or ADDITIONS:
        print(f"{name}: adding one touches {touched(name)} files, besides its test")


if __name__ == "__main__":
    main(sys.argv[1:])
