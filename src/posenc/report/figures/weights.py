"""Figures of what the weights say, one function each: from the data object to the drawing."""

from posenc.models.weighing import Bands, Bias, Positions, Relative
from posenc.report.drawing.figure import BLUE, VERMILION, Dash, Figure, Line, Panel, Rule, style
from posenc.report.words import runs

MOST = 512  # points of a curve


def table(one: Positions) -> Figure | None:
    """Norms of a learned table's rows and how alike neighbours are; where training ended."""
    found = one.learned
    if found is None or not found.likeness:
        return None
    every = -(-one.rows // MOST)
    ends = {
        "untrained from here": found.trained if found.untrained else None,
        "ever less alike": found.falls,
    }
    rules = [Rule(at, "x", name) for name, at in ends.items() if at]
    panels = [
        Panel(
            "",
            [Line(range(first, one.rows, every), values[::every], colour=colour), *rules],
            "row",
            title,
        )
        for title, values, first, colour in (
            ("norm", found.norms, 0, BLUE),
            ("cosine to the row before", found.likeness, 1, VERMILION),
        )
    ]
    says = (
        f"Norms of {one.rows:,} learned rows, from {min(found.norms):.3g} to"
        f" {max(found.norms):.3g}, and cosines of neighbours, from {min(found.likeness):.2f} to"
        f" {max(found.likeness):.2f}."
    )
    return Figure("A learned table", panels, says, height=170)


def bias(one: Bias) -> Figure:
    """The bias of each head over the distance, in steps as it is."""
    marks = [
        Line(one.steps.distance, values, f"head {number}", **style(number))
        for number, values in enumerate(one.steps.heads)
    ]
    flat = [value for values in one.steps.heads for value in values]
    says = (
        f"Bias of {len(marks)} heads over the distance, from {min(flat):.3g} to {max(flat):.3g}"
        " logits."
    )
    x_title = "tokens that the key is behind the query"
    return Figure("Bias by distance", [Panel("", marks, x_title, "bias, logits")], says)


def relative(found: list[Relative]) -> Figure | None:
    """The length of the vector of each distance, one panel a table."""
    if not found:
        return None
    panels = [
        Panel(
            one.tensor[-40:],
            [Line(one.vectors.distance, one.vectors.norms, marker="circle")],
            "tokens back",
            "length",
        )
        for one in found
    ]
    lengths = [norm for one in found for norm in one.vectors.norms]
    says = (
        f"Lengths of the vectors of each distance in {len(found)} tables, from"
        f" {min(lengths):.3g} to {max(lengths):.3g}."
    )
    return Figure("Vectors for distances", panels, says, columns=3)


def bands(found: list[Bands]) -> Figure | None:
    """Strength of queries and keys in each pair, a colour for layers that turn alike."""
    if not found:
        return None
    marks, strongest = [], []
    dashes: tuple[Dash, Dash] = ("solid", "dash")
    for n, one in enumerate(found):
        look = style(n)
        for name, values, dash in zip(
            ("queries", "keys"), (one.queries, one.keys), dashes, strict=True
        ):
            named = f"{name}, {runs(one.layers)}"
            marks.append(
                Line(range(len(values)), values, named, look["colour"], dash, look["marker"])
            )
            strongest.append(f"{named} in pair {values.index(max(values))}")
    most = max(max(one.queries + one.keys) for one in found)
    x_title, y_title = "pair of channels, fastest first", "norm of its two rows"
    return Figure(
        "Strength of each pair",
        [Panel("", marks, x_title, y_title, y_range=(0, 1.05 * most))],
        f"How strong queries and keys are in each pair of channels; strongest are"
        f" {'; '.join(strongest)}.",
    )
