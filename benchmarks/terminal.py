"""Terminal output of benchmarks: a table for each case, then targets."""

from itertools import groupby

from rich.console import Console
from rich.text import Text

from benchmarks.results import BenchTable
from benchmarks.run import Benchmark
from posenc.show.report import phrases
from posenc.show.report.terminal.tables import empty_table

MEMORY = {"warm": "memory reused", "default": "memory from the system"}


def print_tables(result: Benchmark, console: Console) -> None:
    """Print the results of a benchmark run as tables."""
    for table in result.tables:
        _ways(table, console)
    _targets(result, console)
    if result.unmeasured:
        console.print(Text(f"not measured: {'; '.join(result.unmeasured)}", "yellow"))
    provenance, versions = result.provenance, result.provenance.versions | result.libraries
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    console.print(
        Text(
            f"{result.processor}; {provenance.threads} threads; {provenance.started}; {named}",
            "dim",
        )
    )


def _ways(table: BenchTable, console: Console) -> None:
    note = (
        f"ratio to {table.limit}; {MEMORY.get(table.malloc, table.malloc)}, {table.threads} threads"
    )
    console.print(Text(f"{table.part}, {table.case}", "bold"), Text(f" {note}", "dim"))
    shown = empty_table("", "median", "min", "ratio", "max error", "MB", "samples / discarded")
    for row in table.rows:
        error = "" if row.error is None else phrases.number(row.error, 1)
        memory = "" if row.memory is None else f"{row.memory:,.0f}"
        shown.add_row(
            Text(row.name, "bold" if row.ours else ""),
            phrases.brief(row.times.median).replace(" ", "\u00a0"),
            phrases.brief(row.times.least).replace(" ", "\u00a0"),
            f"{row.ratio:.2f}",
            error,
            memory,
            f"{row.times.samples} / {row.times.disturbed}",
        )
    console.print(shown)
    for who, why in table.skipped.items():
        console.print(Text(f"left out: {who}, {why}", "dim"))
    console.print()


def _targets(result: Benchmark, console: Console) -> None:
    if not result.targets:
        return
    missed = sum(not target.met for _, target in result.targets)
    console.print(
        Text(f"{len(result.targets) - missed} of {len(result.targets)} targets met", "bold")
    )
    for name, targets in groupby(
        result.targets, key=lambda pair: f"{pair[0].part}, {pair[0].case}"
    ):
        console.print(Text(name, "dim"))
        shown = empty_table("", "target", "found", "at most")
        for _, target in targets:
            mark = Text("✓", "green") if target.met else Text("missed", "red")
            shown.add_row(
                mark, target.what, phrases.number(target.found), phrases.number(target.most)
            )
        console.print(shown)
    console.print()
