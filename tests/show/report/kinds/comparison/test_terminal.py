"""Tables as a person sees them: recorded by rich at several widths."""

import io

import pytest
from rich.console import Console

from posenc.show.report.kinds.comparison import terminal


def drawn(draw, *given, width=80):
    console = Console(file=io.StringIO(), width=width)
    draw(*given, console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_cut_off(everything, width):
    text = drawn(terminal.print_comparison, everything, width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for measured in everything.encodings:
        assert text.count(measured.name) >= 2


def test_the_width_of_all_and_what_grows_with_length_stand_below(everything, small):
    text = " ".join(drawn(terminal.print_comparison, everything).split())
    width = small.dim * small.heads
    assert f"the same width, {width} channels: {small.heads} heads of {small.dim}." in text
    assert "from 2 to 32 tokens, relative to NoPE:" in text


def test_marks_agree_with_the_findings(everything):
    lines = drawn(terminal.print_comparison, everything, width=140).splitlines()
    for measured in everything.encodings:
        marks = next(line for line in lines if line.startswith(measured.name + " "))
        marks = marks.removeprefix(measured.name).split()
        holds = [finding.holds for finding in measured.properties.values()]
        assert marks == [{True: "✓", False: "·", None: "–"}[held] for held in holds]
