"""README.md: code runs, the table is what the cards say, a claim what is measured;
SECURITY.md: what it names is there; CITATION.cff: it says what the package says."""

import contextlib
import io
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import posenc
from posenc import __version__
from posenc.commands.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
BOOK = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}


def run(text):
    """What the blocks of Python of a page leave, one after the other, and what they say."""
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        for block in BLOCK.findall(text):
            exec(block, names)
    return names, said.getvalue()


def test_its_python_runs_from_top_to_bottom():
    assert run(README)[0]["out"].shape == (1, 128, 512)


def test_what_it_says_of_a_model_is_what_inspect_says():
    """Of the dials: 29 pairs of Llama 3's RoPE complete no turn in training."""
    (call,) = (block for block in BLOCK.findall(README) if "inspect" in block)
    inspected = eval(call.partition("  #")[0].strip(), {"posenc": posenc})
    assert inspected.verdict == "breaks"
    assert inspected.problems[0].startswith("29 of 64 pairs")
    assert "29 of 64 pairs" in inspected._repr_html_()


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
    assert table() in BOOK["properties.md"]


@pytest.mark.repository
def test_its_links_lead_somewhere():
    """Links of the other pages are followed where the site is built: tests/test_site.py."""
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_it_is_short_and_leads_into_the_whole_book():
    assert len(README.splitlines()) <= 115
    linked = README + (ROOT / "CONTRIBUTING.md").read_text("utf-8") + BOOK["models.md"]
    assert [name for name in BOOK if name not in linked] == []
    for_contributors = {
        "tests.md",
        "families.md",
        "results.md",
        "internals.md",
        "census.md",
        "extend_cases.md",
    }
    assert [name for name in for_contributors if name in README] == []


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
