"""Figures, sentences and terminal output of a comparison of many encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lab.compare.comparison import Comparison
from posenc.show.report.guide import GUIDE as GUIDE
from posenc.show.report.kinds.comparison import phrases as phrases
from posenc.show.report.kinds.comparison.figures import make_figures as make_figures

if TYPE_CHECKING:
    from rich.console import Console


def print_result(result: Comparison, console: Console) -> None:
    from posenc.show.report.kinds.comparison import terminal

    terminal.print_comparison(result, console)
