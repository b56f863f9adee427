"""Figures and sentences of `posenc extend --prove`: a model's loss with each extension method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.models.prove import AS_IT_IS, ENOUGH, Proof
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Rule
from posenc.show.report.kinds import Sections
from posenc.show.report.terminal import checks

if TYPE_CHECKING:
    from rich.console import Console


def print_result(result: Proof, console: Console) -> None:
    checks.print_proof(result, console)


def make_figures(result: Proof) -> Sections:
    return {"ways": {"positions": by_position(result)}}


def by_position(result: Proof) -> Figure:
    """Draw the bits per token at each position, for each extension method.

    A dashed line shows the unmodified model with a sliding window.
    """
    lines = [
        Line(
            [end for end, _ in way.by_position],
            [bits for _, bits in way.by_position],
            f"{way.name}, whole",
            **style(n),
        )
        for n, way in enumerate(result.ways)
    ]
    ends = [result.trained, result.to]
    sliding = Line(ends, [result.sliding] * 2, "as it is, sliding", dash="dash")
    marks = [*lines, sliding, Rule(result.trained, "x")]
    panel = Panel("", marks, "position of the token, up to", "bits a token")
    said = (
        "The dashed line is the unmodified model, which reads only the last"
        f" {result.trained:,} tokens."
    )
    if result.precision != "float32":
        said += f" All losses are computed in {result.precision}."
    return Figure("Bits a token, by position", [panel], f"{headline(result)} {said}", height=420)


def headline(result: Proof) -> str:
    """State the chosen method and its gain in one sentence, or that no method helps."""
    best, to = result.ways[0], f"{result.to:,}"
    if not result.chosen:
        return (
            f"No method helps at {to} tokens: the best, {best.name}, does not save {ENOUGH} bits a"
            f" token compared with the last {result.trained:,} tokens alone."
        )
    way = "the unmodified model" if result.chosen == AS_IT_IS else result.chosen
    return (
        f"Of the methods tried, {way} reads {to} tokens best: {best.far:.3f} bits a token beyond"
        f" {result.trained:,}, {result.sliding - best.far:.3f} fewer than the last"
        f" {result.trained:,} tokens alone."
    )
