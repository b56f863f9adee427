"""What each way to read longer texts is worth, on a model's own loss: `posenc extend --prove`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.models.prove import AS_IT_IS, ENOUGH, Proof
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Rule
from posenc.show.report.terminal import checks

if TYPE_CHECKING:
    from rich.console import Console


def show(result: Proof, console: Console) -> None:
    checks.proof(result, console)


def draw(result: Proof) -> dict[str, Figure]:
    return {"positions": by_position(result)}


def by_position(result: Proof) -> Figure:
    """Draw bits a token by its position, read whole, beside the last tokens alone."""
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
    said = f"The dashed line is the model as it was, told by the last {result.trained:,} tokens."
    if result.precision != "float32":
        said += f" All is computed in {result.precision}."
    return Figure("Bits a token, by position", [panel], f"{headline(result)} {said}", height=420)


def headline(result: Proof) -> str:
    """Say in a sentence what is chosen, by how much it is better, or that nothing works."""
    best, to = result.ways[0], f"{result.to:,}"
    if not result.chosen:
        return (
            f"None of the ways tried serves {to} tokens: {best.name} does not save {ENOUGH} bits a"
            f" token against the last {result.trained:,}."
        )
    way = "the model as it is" if result.chosen == AS_IT_IS else result.chosen
    return (
        f"Of the ways tried, {way} reads {to} tokens best: {best.far:.3f} bits a token past"
        f" {result.trained:,}, {result.sliding - best.far:.3f} fewer than the last"
        f" {result.trained:,} tokens alone."
    )
