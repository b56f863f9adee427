"""Figures, sentences and terminal output of a study: outcomes by length and seed, and contrasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lab.study.summary import Study
from posenc.show.report.kinds import Sections
from posenc.show.report.kinds.study import figures
from posenc.show.report.kinds.study import phrases as phrases

if TYPE_CHECKING:
    from rich.console import Console


def print_result(result: Study, console: Console) -> None:
    from posenc.show.report.kinds.study import terminal

    terminal.print_analysis(result.analysis, console)


def make_figures(result: Study) -> Sections:
    analysis = result.analysis
    drawn: Sections = {}
    compared = drawn["compared"] = {}
    for n, task in enumerate(dict.fromkeys(row.task for row in analysis.rows)):
        rows = [row for row in analysis.rows if row.task == task]
        contrasts = [contrast for contrast in analysis.contrasts if contrast.task == task]
        drawn[f"task-{n}"] = {
            f"lengths-{n}": figures.lengths(rows, result.published.get(task)),
            f"seeds-{n}": figures.seeds(rows, analysis.metric),
        }
        compared[f"contrasts-{n}"] = figures.contrasts(contrasts, rows[0].bits)
    return drawn
