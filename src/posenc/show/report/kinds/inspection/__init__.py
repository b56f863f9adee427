"""Figures, sentences and terminal output of an inspected model: its config and its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.models.inspection import Inspection
from posenc.show.report.kinds import Sections
from posenc.show.report.kinds.inspection import phrases as phrases

if TYPE_CHECKING:
    from rich.console import Console


def print_result(result: Inspection, console: Console) -> None:
    from posenc.show.report.kinds.inspection import terminal

    terminal.print_inspection(result, console)


def make_figures(result: Inspection) -> Sections:
    # Figures need torch, which must not be imported to print a config
    from posenc.show.report.figures import rotary
    from posenc.show.report.kinds.inspection import weights

    drawn: Sections = {}
    for n, stack in enumerate(stacks(result).values()):
        for m, group in enumerate(stack.groups):
            if turning := group.turning:
                section = drawn[f"layers-{n}-{m}"] = {}
                if turning.dials and turning.trained and turning.span:
                    ends = turning.trained, turning.span
                    section[f"dials-{n}-{m}"] = rotary.dials(turning.dials, *ends)
                section[f"bands-{n}-{m}"] = rotary.bands(turning)
    return drawn | (weights.make_figures(result.measurements) if result.measurements else {})


def stacks(result: Inspection) -> dict[str, Inspection]:
    """Return the inspections of a model and of its sub-models, by name.

    The name is "" for the model, and one such as "vision_config" for a part.
    """
    return {"": result, **result.parts}


def sections(result: Inspection) -> dict[str, list[str]]:
    """Return headings and sentences about a model's weights, by section of the page.

    The result is empty if the weights were not measured.
    """
    from posenc.show.report.kinds.inspection import weights

    return weights.sections(result.measurements) if result.measurements else {}
