"""Cards read from source files, against those of the imported catalogue, and in a changed copy."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import posenc
from posenc.catalog import CATALOG
from posenc.support import names

NEW = '''"""Halves: add half of the position to every channel.

    PE(p, c) = p / 2,  c = 0 … d − 1
"""

from posenc.core.encoding import Encoding
from posenc.properties import learned
from posenc.properties.card import ROTATION, Card, paper

MANY = ROTATION | {learned}


class Halves(Encoding):
    def on_embeddings(self, x, at):
        return x + at[..., None] / 2


CARD = Card(
    name="Halves",
    paper=paper("fleetwood2024designed"),
    make=lambda dim, heads: Halves(),
    holds=MANY,
)
'''


def test_what_is_read_is_what_the_cards_say():
    assert [*names.cards().values()] == [card.to_json() for card in CATALOG]


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """Return a function that runs a command on a copy of posenc with one more encoding.

    The import of torch fails there, unless `torch=True` is passed.
    """
    folder = tmp_path_factory.mktemp("grown")
    home = folder / "posenc"
    shutil.copytree(
        Path(posenc.__file__).parent, home, ignore=shutil.ignore_patterns("__pycache__")
    )
    (home / "encodings/additive/halves.py").write_text(NEW, "utf-8")
    catalog = (home / "catalog.py").read_text("utf-8")
    added = "from posenc.encodings.additive.halves import Halves as Halves\n\nHOME ="
    (home / "catalog.py").write_text(catalog.replace("\nHOME =", added), "utf-8")
    (folder / "none").mkdir()
    (folder / "none/torch.py").write_text("raise ImportError('torch is not wanted')\n")
    cache = {"POSENC_CACHE": str(folder / "cache")}

    def run(*words: str, torch: bool = False) -> subprocess.CompletedProcess[str]:
        code = f"from posenc.commands.cli import main; main({[*words]!r})"
        places = [str(folder)] if torch else [str(folder / "none"), str(folder)]
        environment = os.environ | cache | {"PYTHONPATH": os.pathsep.join(places)}
        return subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, env=environment, encoding="utf-8",
        )  # fmt: skip

    return run


def test_an_added_encoding_is_listed_before_anything_is_generated(grown):
    ran = grown("list")
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    assert [line[0] for line in lines] == [*(card.slug for card in CATALOG), "halves"]
    assert lines[-1][1:] == [
        "additive", "Fleetwood 2024", "add half of the position to every channel",
    ]  # fmt: skip


def test_an_added_encoding_is_measured_when_it_is_first_shown(grown):
    """With torch, once; what was measured of the others is still there."""
    assert grown("show", "Halves").returncode != 0
    first = grown("show", "Halves", torch=True)
    assert first.returncode == 0, first.stderr
    assert "PE(p, c) = p / 2" in first.stdout
    assert "fleetwood" in first.stdout
    assert "differ by" in first.stdout
    assert grown("show", "Halves").stdout == first.stdout
    assert grown("cite", "halves").stdout == names.find("integer")["paper"]["bibtex"] + "\n"


def test_a_constant_of_another_file_is_resolved(grown):
    """`holds` names a constant made of one of another file."""
    ran = grown("list", "--json")
    assert ran.returncode == 0
    added = json.loads(ran.stdout)[-1]
    rope = names.find("rope")
    assert {*added["holds"]} == {*rope["holds"], "learned"}
