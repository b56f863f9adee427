"""Figures, sentences and terminal output of a study: outcomes by length and seed, and contrasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lab.study.summary import Study
from posenc.show.report.drawing.figure import Figure
from posenc.show.report.kinds.study import figures
from posenc.show.report.kinds.study import phrases as phrases

if TYPE_CHECKING:
    from rich.console import Console


def print_result(result: Study, console: Console) -> None:
    from posenc.show.report.kinds.study import terminal

    terminal.print_analysis(result.analysis, console)


def make_figures(result: Study) -> dict[str, Figure]:
    analysis = result.analysis
    drawn: dict[str, Figure | None] = {}
    for n, task in enumerate(dict.fromkeys(row.task for row in analysis.rows)):
        rows = [row for row in analysis.rows if row.task == task]
        drawn[f"lengths-{n}"] = figures.lengths(rows, result.published.get(task))
        drawn[f"seeds-{n}"] = figures.seeds(rows, analysis.metric)
        contrasts = [contrast for contrast in analysis.contrasts if contrast.task == task]
        drawn[f"contrasts-{n}"] = figures.contrasts(contrasts, rows[0].bits)
    return {name: figure for name, figure in drawn.items() if figure}
