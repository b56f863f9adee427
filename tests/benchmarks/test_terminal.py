"""Benchmarks as a person sees them, against the numbers that were given."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from benchmarks import terminal


def test_tables_on_the_terminal(benchmarked):
    console = Console(width=100, record=True, file=StringIO())
    terminal.print_tables(benchmarked, console)
    text = console.export_text()
    for said in ("posenc half: blocks", "2.97", "2.41", "19 / 4", "4 of 8 targets met", "missed"):
        assert said in text
    assert "left out: torchtune" in text
    assert "not measured" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_what_an_interrupted_run_has_not_measured_is_named(benchmarked):
    console = Console(width=100, record=True, file=StringIO())
    terminal.print_tables(
        replace(benchmarked, unmeasured=("attention, decode, 256", "start-up")), console
    )
    assert "not measured: attention, decode, 256; start-up" in console.export_text()
