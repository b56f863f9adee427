"""A real model: what its config, and its weights, say of positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.models.inspection import Inspection
from posenc.show.report.drawing.figure import Figure
from posenc.show.report.kinds.inspection import words as words

if TYPE_CHECKING:
    from rich.console import Console


def show(result: Inspection, console: Console) -> None:
    from posenc.show.report.kinds.inspection import terminal

    terminal.show(result, console)


def draw(result: Inspection) -> dict[str, Figure]:
    # Figures need torch, which a config on the terminal does without
    from posenc.show.report.figures import rotary
    from posenc.show.report.kinds.inspection import weights

    drawn = {}
    for n, stack in enumerate(stacks(result).values()):
        for m, group in enumerate(stack.groups):
            if turning := group.turning:
                if turning.dials and turning.trained and turning.span:
                    ends = turning.trained, turning.span
                    drawn[f"dials-{n}-{m}"] = rotary.dials(turning.dials, *ends)
                drawn[f"bands-{n}-{m}"] = rotary.bands(turning)
    return drawn | (weights.draw(result.measurements) if result.measurements else {})


def stacks(result: Inspection) -> dict[str, Inspection]:
    """The layers of a model, and those of its parts, by their names."""
    return {"": result, **result.parts}


def sections(result: Inspection) -> dict[str, list[str]]:
    """What the weights say: headings and sentences, by the names of figures; {} if not read."""
    from posenc.show.report.kinds.inspection import weights

    return weights.sections(result.measurements) if result.measurements else {}
