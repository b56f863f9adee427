"""README.md: its code runs, its table is what the cards say, its claim is what is measured;
SECURITY.md: what it names is there; CITATION.cff: it says what the package says."""

import contextlib
import io
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from posenc import __version__
from posenc.commands.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_its_python_runs_from_top_to_bottom():
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
            exec(block, names)
    assert names["out"].shape == (1, 8, 128, 64)
    claim = re.search(r"`(✗ first rises .*?)` for \*decaying\*", README)
    assert claim
    assert f"{'decaying':20} {claim[1]}" in said.getvalue()


def test_one_word_swaps_the_encoding():
    quickstart = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    offered = re.findall(r'"([^"]+)"', quickstart)
    assert len(offered) >= 5
    for name in offered:
        names = {}
        exec(quickstart.replace('encoding="rope"', f'encoding="{name}"'), names)
        assert names["out"].shape == (1, 128, 512)


def test_its_table_is_made_from_the_cards():
    table = runpy.run_path(str(ROOT / "tools" / "table.py"))["table"]
    assert table() in README


@pytest.mark.repository
def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_what_the_security_page_names_is_there():
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    files = re.findall(r"`((?:tests|src)/[\w/.]+)`", page)
    assert len(files) > 1
    assert [name for name in files if not (ROOT / name).exists()] == []
    readers = re.findall(r"\|([^|]*)\|$", page, re.MULTILINE)
    commands = {name.split()[0] for names in readers for name in re.findall(r"`(.+?)`", names)}
    assert {"inspect", "results", "study"} <= commands <= {*app}


def test_it_is_cited_as_what_it_is():
    """Its form is held by `cffconvert --validate`, before a release."""
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    said = dict(re.findall(r'^([\w-]+): "?(.*?)"?$', cited, re.MULTILINE))
    assert (said["version"], said["license"]) == (__version__, about["license"])
    assert re.findall(r'name: "(.*)"', cited) == [author["name"] for author in about["authors"]]
    keywords = re.search(r"^keywords:\n((?:  - .*\n)+)", cited, re.MULTILINE)
    assert keywords
    assert re.findall(r"- (.*)", keywords[1]) == about["keywords"]
    assert f"## {said['version']}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")
