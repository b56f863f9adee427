"""A benchmark: the ratio of each way to the limit, and the growth of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posenc.lab.bench.results import BenchTable, Growth
from posenc.lab.bench.run import Benchmark
from posenc.show.report.drawing.figure import BLUE, GREY, Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Points, Rule

if TYPE_CHECKING:
    from rich.console import Console


def show(result: Benchmark, console: Console) -> None:
    from posenc.show.report.kinds.benchmark import terminal

    terminal.show(result, console)


def draw(result: Benchmark) -> dict[str, Figure]:
    parts = dict.fromkeys(growth.part for growth in result.growth)
    drawn = {f"table-{n}": ways(table) for n, table in enumerate(result.tables)}
    return drawn | {f"growth-{part}": growth(part, result.growth) for part in parts}


def ways(table: BenchTable) -> Figure:
    """Draw ratios to the limit; those of posenc differ by shape and colour."""
    names = [row.name for row in table.rows]
    places = {
        is_ours: [n for n, row in enumerate(table.rows) if row.ours == is_ours]
        for is_ours in (True, False)
    }
    marks = [
        Points([table.rows[n].ratio for n in places[True]], places[True], "posenc", BLUE, "circle"),
        Points(
            [table.rows[n].ratio for n in places[False]], places[False], "others", GREY, "diamond"
        ),
        Rule(1, "x", dash="solid"),
    ]
    slowest = table.rows[-1]
    fastest = min((row for row in table.rows if row.ours), key=lambda row: row.ratio, default=None)
    best = "" if fastest is None else f" {fastest.name} takes {fastest.ratio:.2f} times as long,"
    worst = f"{slowest.name}, the slowest, {slowest.ratio:.3g} times"
    panel = Panel(
        "", marks, f"× {table.limit}", x_log=True, y_names=names, y_down=True,
        x_ticks=[0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200],
    )  # fmt: skip
    return Figure(
        f"{table.part}, {table.case}",
        [panel],
        f"Times as multiples of {table.limit}.{best} {worst}.",
        height=max(120, 24 * len(names)),
    )


def growth(part: str, all_growth: Sequence[Growth]) -> Figure:
    """Draw seconds against tokens, both on logarithmic axes."""
    curves = [curve for curve in all_growth if curve.part == part]
    marks = [
        Line(
            curve.tokens,
            [1e3 * s for s in curve.seconds],
            f"{curve.name}: p = {curve.exponent:.2f}",
            **style(n),
        )
        for n, curve in enumerate(curves)
    ]
    longest = max(curve.tokens[-1] for curve in curves)
    slowest = max(curves, key=lambda curve: curve.last)
    panel = Panel("", marks, "tokens", "milliseconds", x_log=True, y_log=True)
    return Figure(
        f"Growth, {part}",
        [panel],
        f"Time against length, up to {longest:,} tokens. Between the two longest the exponent is"
        f" largest for {slowest.name}, {slowest.last:.2f}.",
        height=420,
    )
