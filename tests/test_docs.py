"""The pages of docs/: their Python runs, and what they state is what it computes."""

import contextlib
import io
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from rich.console import Console

from posenc.commands.app import COMMANDS
from posenc.commands.cli import app
from posenc.models import adapter

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the Python of a page from top to bottom, in an empty folder.

    Returns the names that it leaves and the text that it prints.
    """
    monkeypatch.chdir(tmp_path)

    def run(page):
        names, printed = {}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            for block in BLOCK.findall(PAGES[page]):
                exec(block, names)
        return names, printed.getvalue()

    return run


OWN_TEST = {"using.md", "llama.md", "properties.md", "faq.md"}  # faq.md: tests/commands/test_faq.py
OTHERS = sorted(name for name, text in PAGES.items() if BLOCK.search(text) and name not in OWN_TEST)


FOR_READERS = {
    "using.md", "llama.md", "guide.md", "models.md", "check.md", "properties.md", "studies.md",
    "speed.md", "faults.md", "glossary.md", "faq.md", "sources.md",
}  # fmt: skip
DATA = {"census.md", "extend_cases.md", "real_weights.md"}
FOR_CONTRIBUTORS = {"tests.md", "results.md", "families.md", "internals.md"}


def test_the_pages_for_readers_have_at_most_1200_lines():
    """Not counted are the help of the commands and published names: both are looked up."""
    assert {*PAGES} == FOR_READERS | DATA | FOR_CONTRIBUTORS | {"commands.md", "names.md"}
    assert sum(len(PAGES[name].splitlines()) for name in FOR_READERS) <= 1_200


@pytest.mark.repository
def test_data_and_pages_for_contributors_are_not_in_the_menu_of_the_site():
    menu = (
        (ROOT / "docs/site/zensical.toml").read_text().partition("nav = [")[2].partition("\n]")[0]
    )
    listed = {*re.findall(r'"docs/(\w+\.md)"', menu)}
    assert not listed & (DATA | FOR_CONTRIBUTORS)
    assert FOR_READERS <= listed


@pytest.mark.parametrize("name", OTHERS)
def test_the_python_of_a_page_runs(run, name):
    run(name)


def test_the_witness_on_the_page_of_properties_is_computed(run):
    claim = re.search(r"`(✗ first rises .*?)` for \*decaying\*", PAGES["properties.md"])
    assert claim
    assert f"{'decaying':20} {claim[1]}" in run("properties.md")[1]


def test_the_page_on_use_computes_what_it_states(tmp_path):
    """Cross-attention and patches have the shape of the queries; sdpa supports RoPE.

    The code runs in a second Python, because the page traces a layer and the shape checker prevents
    tracing.
    """
    eager = "torch.compile = functools.partial(torch.compile, backend='eager')"
    blocks = [
        "import functools, torch",
        eager,
        *BLOCK.findall(PAGES["using.md"]),
        "print(tuple(out.shape))",
    ]
    command = [sys.executable, "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("sdpa: ")
    assert last == "(2, 8, 128, 64)"


def test_ten_minutes_with_a_llama(run, tmp_path):
    """The loss falls in ten steps, the folder loads, and the original breaks until extended."""
    names, _ = run("llama.md")
    assert len(names["losses"]) == 10
    assert names["losses"][-1] < 0.8 * names["losses"][0]
    before, after = names["before"], names["after"]
    assert (before.verdict, after.verdict) == ("breaks", "fits")
    assert before.problems[0].startswith("4 of 8 pairs")
    saved = json.loads((tmp_path / "alibi/config.json").read_text("utf-8"))["posenc"]
    assert [one["class"] for one in saved["encodings"]] == ["ALiBi"]
    ids = names["ids"]
    swapped = names["model"](ids).logits
    adapter.remove(names["model"])
    assert not torch.allclose(names["model"](ids).logits, swapped)
    with pytest.raises(ValueError, match=r"adapter\.load"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "alibi")


@pytest.mark.parametrize("name", [*COMMANDS])
def test_the_page_of_commands_has_every_option_that_help_prints(name):
    printed = io.StringIO()
    app.help_print([name], console=Console(file=printed, width=200))
    options = {*re.findall(r"(?<![\w-])--[a-z][a-z-]*", printed.getvalue())}
    section = PAGES["commands.md"].partition(f"\n### {name}\n")[2].partition("\n### ")[0]
    assert f"posenc {name}" in section
    assert sorted(options - {*re.findall(r"--[a-z][a-z-]*", section)}) == []


def test_the_page_of_commands_is_what_its_tool_writes():
    assert runpy.run_path(str(ROOT / "tools/commands.py"))["page"]() == PAGES["commands.md"]
