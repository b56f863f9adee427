"""Benchmarks on the terminal: a table for each thing that was done, then targets and growth."""

from itertools import groupby

from rich.console import Console
from rich.text import Text

from posenc.bench.results import Table
from posenc.bench.run import Benchmark
from posenc.report import words
from posenc.report.terminal.tables import _table


def benchmark(found: Benchmark, console: Console) -> None:
    for table in found.tables:
        _ways(table, console)
    _targets(found, console)
    _growth(found, console)
    made, versions = found.provenance, found.provenance.versions | found.libraries
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    console.print(
        Text(f"{found.processor}; {made.threads} threads; {made.started}; {named}", "dim")
    )


def _ways(table: Table, console: Console) -> None:
    note = f"ratio to {table.limit}; malloc {table.malloc}, {table.threads} threads"
    console.print(Text(f"{table.part}, {table.case}", "bold"), Text(f" {note}", "dim"))
    shown = _table("", "median", "least", "ratio", "off by", "MB", "kept / dropped")
    for row in table.rows:
        error = "" if row.error is None else f"{row.error:.0e}"
        memory = "" if row.memory is None else f"{row.memory:,.0f}"
        shown.add_row(
            Text(row.name, "bold" if row.ours else ""),
            words.brief(row.times.median).replace(" ", "\u00a0"),
            words.brief(row.times.least).replace(" ", "\u00a0"),
            f"{row.ratio:.2f}",
            error,
            memory,
            f"{row.times.samples} / {row.times.disturbed}",
        )
    console.print(shown)
    for who, why in table.skipped.items():
        console.print(Text(f"left out: {who}, {why}", "dim"))
    console.print()


def _targets(found: Benchmark, console: Console) -> None:
    if not found.targets:
        return
    missed = sum(not target.met for _, target in found.targets)
    console.print(
        Text(f"{len(found.targets) - missed} of {len(found.targets)} targets met", "bold")
    )
    for name, some in groupby(found.targets, key=lambda one: f"{one[0].part}, {one[0].case}"):
        console.print(Text(name, "dim"))
        shown = _table("", "target", "found", "at most")
        for _, target in some:
            mark = Text("✓", "green") if target.met else Text("missed", "red")
            shown.add_row(mark, target.what, f"{target.found:.3g}", f"{target.most:.3g}")
        console.print(shown)
    console.print()


def _growth(found: Benchmark, console: Console) -> None:
    if not found.growth:
        return
    console.print(Text("growth: seconds ~ tokensᵖ", "bold"))
    shown = _table("", "", "tokens", "p over all", "p at the end")
    for one in found.growth:
        lengths = f"{one.tokens[0]:,} … {one.tokens[-1]:,}"
        shown.add_row(one.part, one.name, lengths, f"{one.exponent:.2f}", f"{one.last:.2f}")
    console.print(shown)
    console.print()
