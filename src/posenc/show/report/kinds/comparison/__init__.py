"""Figures, sentences and terminal output of a comparison of many encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lab.compare.comparison import Comparison
from posenc.show.report.drawing.figure import Figure
from posenc.show.report.guide import GUIDE as GUIDE
from posenc.show.report.kinds.comparison import figures
from posenc.show.report.kinds.comparison import phrases as phrases

if TYPE_CHECKING:
    from rich.console import Console


def print_result(result: Comparison, console: Console) -> None:
    from posenc.show.report.kinds.comparison import terminal

    terminal.print_comparison(result, console)


def make_figures(result: Comparison) -> dict[str, Figure]:
    drawn = {
        "properties": figures.properties(result),
        "rows": figures.rows(result),
        "curves": figures.curves(result),
        "order": figures.order(result),
        "costs": figures.costs(result),
        "lengths": figures.lengths(result),
    }
    return {name: figure for name, figure in drawn.items() if figure} | cards(result)


def cards(result: Comparison) -> dict[str, Figure]:
    """Return one figure for each encoding in a comparison, keyed by names like "rope-figure"."""
    return {
        f"{measured.slug}-figure": figures.card(result, measured) for measured in result.encodings
    }
