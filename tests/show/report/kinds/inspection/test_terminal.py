"""Models as a person sees them on the terminal, against what is said of them."""

import io
import re

import pytest
from rich.console import Console

from posenc.models.inspection import inspect
from posenc.show.report import page
from posenc.show.report.kinds.inspection import phrases, terminal


def test_a_verdict_beside_a_warning_is_not_green(llama):
    """On the terminal and on the page; of a shorter text there is nothing to mind."""
    for target, sure in ((131072, False), (4096, True)):
        found = inspect(llama, target)
        console = Console(file=io.StringIO(), force_terminal=True, width=100, no_color=False)
        terminal.print_inspection(found, console)
        said = phrases.verdict_of(found)
        (line,) = (one for one in console.file.getvalue().splitlines() if said in one)
        assert line.startswith("\x1b[32m") is sure, target
        assert (f'<p class="same">{said}' in page.render(found)) is sure, target


BROKEN = {"model_type": "llama", "rope_theta": 500_000.0, "max_position_embeddings": 8192}


def printed(found, width, in_terminal):
    console = Console(file=io.StringIO(), force_terminal=in_terminal, width=width, no_color=True)
    terminal.print_inspection(found, console)
    text = console.file.getvalue()
    return [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("width", [60, 80])
def test_on_a_terminal_advice_wraps_beside_its_mark_and_commands_stay_whole(width):
    found = inspect(BROKEN, 131_072)
    lines = printed(found, width, True)
    commands = [advice.partition("  # ") for advice in found.advice if "  # " in advice]
    assert commands
    for command, _, remark in commands:
        below = lines[lines.index(f"  → {command}") + 1]
        assert below.startswith("    ")
        assert remark.startswith(below.strip())
    assert all(len(line) <= width for line in lines if " posenc extend " not in line)
    (start,) = (n for n, line in enumerate(lines) if line.startswith("  → or train further"))
    (advice,) = (advice for advice in found.advice if advice.startswith("or train further"))
    wrapped = lines[start : start + -(-len(advice) // (width - 12))]
    assert all(line.startswith("    ") for line in wrapped[1:-1])
    assert advice.startswith(" ".join(" ".join(wrapped).replace("→", "").split()[:20]))


def test_a_pipe_gets_each_sentence_as_one_line():
    found = inspect(BROKEN, 131_072)
    lines = printed(found, 80, False)
    for sign, sentences in (("✗", found.problems), ("?", found.unknown), ("→", found.advice)):
        assert {f"  {sign} {sentence}" for sentence in sentences} <= {*lines}
    for group in found.groups:
        assert {*phrases.turning(group.turning)} <= {*lines}
