"""The kinds of results: each is a module here, with its page beside it.

    kinds/comparison/       its figures, its sentences, its form on the terminal
    kinds/comparison.html   its page, filled with `result`, `figures`, and the module as `kind`

A module has the name of the class of its results: a `Comparison` is shown by `kinds.comparison`. It
is found by that name, so that a new kind is a new module, and nothing else knows of it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol

from posenc.show.report.drawing.figure import Figure

# A page does without rich
if TYPE_CHECKING:
    from rich.console import Console

KINDS = [module.name for module in iter_modules(__path__)]


class Kind(Protocol):
    """What a module of `kinds` has."""

    __name__: str

    def draw(self, result: Any) -> dict[str, Figure]:
        """Draw the figures by the names that they have on the page and as files."""
        ...

    def show(self, result: Any, console: Console) -> None:
        """Print the result on a terminal."""
        ...


def kind_of(result: object) -> Kind:
    """The module that shows a result.

    Raises TypeError for what is no result.
    """
    name = type(result).__name__.lower()
    if name not in KINDS:
        raise TypeError(
            f"`result` must be one of {', '.join(KINDS)}, as `compare` or `inspect` return them,"
            f" got one of the class {type(result).__name__}."
        )
    kind: Any = import_module(f"{__name__}.{name}")
    return kind
