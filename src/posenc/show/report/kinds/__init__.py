"""Presentation of results: one module and one page template for each class of result.

    kinds/comparison/       figures, sentences and terminal output of a `Comparison`
    kinds/comparison.html   template of its page, filled with `result`, `figures` and `kind`

The lower-case name of the class is the name of the module, so a new kind of result needs only a new
module here. A new figure is a function and its place in `make_figures`, in one file: the page shows
all figures of a section.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol

from posenc.show.report.drawing.figure import Figure

# Pages are written without rich
if TYPE_CHECKING:
    from rich.console import Console

KINDS = [module.name for module in iter_modules(__path__)]
FILES_ONLY = ""  # section of figures that are only written as files

# For each section of the page, figures by name; None for a figure without data
Sections = dict[str, dict[str, Figure | None]]


class Kind(Protocol):
    """The interface of the modules in `kinds`: each of them presents the results of one command."""

    __name__: str

    def make_figures(self, result: Any) -> Sections:
        """Return the figures by section of the page; None for a figure without data."""
        ...

    def print_result(self, result: Any, console: Console) -> None:
        """Print the result on a terminal."""
        ...


def kind_of(result: object) -> Kind:
    """Return the module that presents a result. Raises TypeError for objects of other classes."""
    name = type(result).__name__.lower()
    if name not in KINDS:
        raise TypeError(
            f"`result` must be one of {', '.join(KINDS)}, got {type(result).__name__}. Pass the"
            " result of `compare` or `inspect`, for example."
        )
    kind: Any = import_module(f"{__name__}.{name}")
    return kind


def sections_of(result: object) -> dict[str, dict[str, Figure]]:
    """Return the figures of a result, grouped by the section of the page."""
    sections = kind_of(result).make_figures(result)
    return {
        section: {name: figure for name, figure in figures.items() if figure}
        for section, figures in sections.items()
    }


def figures_of(result: object) -> dict[str, Figure]:
    """Return all figures of a result by name."""
    return {name: one for figures in sections_of(result).values() for name, one in figures.items()}
