"""Functions that make figures of measured weights."""

from posenc.models.weight_measurements import Bands, Bias, Positions, Relative
from posenc.show.report.drawing.figure import BLUE, VERMILION, Dash, Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Rule
from posenc.show.report.phrases import runs
from posenc.support.numbers import number

MOST_POINTS = 512  # points of a curve


def table(positions: Positions) -> Figure | None:
    """Draw the norms of a learned position table, and the similarity of neighbouring rows.

    Vertical lines mark where training ended.
    """
    learned = positions.learned
    if learned is None or not learned.likeness:
        return None
    step = -(-positions.rows // MOST_POINTS)
    ends = {
        "untrained from here": learned.trained if learned.untrained else None,
        "another table from here": learned.seam,
        "ever less similar": learned.falls,
    }
    rules = [Rule(at, "x", name) for name, at in ends.items() if at]
    panels = [
        Panel(
            "",
            [Line(range(first, positions.rows, step), values[::step], colour=colour), *rules],
            "row",
            title,
        )
        for title, values, first, colour in (
            ("norm", learned.norms, 0, BLUE),
            ("cosine to the row before", learned.likeness, 1, VERMILION),
        )
    ]
    says = (
        f"Norms of {positions.rows:,} learned rows, from {number(min(learned.norms))} to"
        f" {number(max(learned.norms))}, and cosines of neighbours, from"
        f" {min(learned.likeness):.2f} to {max(learned.likeness):.2f}."
    )
    if learned.seam:
        says += f" At row {learned.seam:,} both change at once: there the last training ended."
    return Figure("A learned table", panels, says, height=170)


def bias(t5_bias: Bias) -> Figure:
    """Draw the T5 bias of each head against the distance."""
    marks = [
        Line(t5_bias.steps.distance, values, f"head {n}", **style(n))
        for n, values in enumerate(t5_bias.steps.heads)
    ]
    flat = [value for values in t5_bias.steps.heads for value in values]
    says = (
        f"Bias of {len(marks)} heads over the distance, from {number(min(flat))} to"
        f" {number(max(flat))} logits."
    )
    x_title = "tokens that the key is behind the query"
    return Figure("Bias by distance", [Panel("", marks, x_title, "bias, logits")], says)


def relative(tables: list[Relative]) -> Figure | None:
    """Draw the norm of each relative position's vector, with one panel for each table."""
    if not tables:
        return None
    panels = [
        Panel(
            table.tensor[-40:],
            [Line(table.vectors.distance, table.vectors.norms, marker="circle")],
            "tokens back",
            "length",
        )
        for table in tables
    ]
    lengths = [norm for table in tables for norm in table.vectors.norms]
    says = (
        f"Lengths of the vectors of each distance in {len(tables)} tables, from"
        f" {number(min(lengths))} to {number(max(lengths))}."
    )
    return Figure("Vectors for distances", panels, says, columns=3)


def bands(stacks: list[Bands]) -> Figure | None:
    """Draw the norms of query and key weights for each rotary pair.

    Norms are averaged over layers with the same RoPE.
    """
    if not stacks:
        return None
    marks, strongest = [], []
    dashes: tuple[Dash, Dash] = ("solid", "dash")
    for n, stack in enumerate(stacks):
        look = style(n)
        for name, values, dash in zip(
            ("queries", "keys"), (stack.queries, stack.keys), dashes, strict=True
        ):
            named = f"{name}, {runs(stack.layers)}"
            marks.append(
                Line(range(len(values)), values, named, look["colour"], dash, look["marker"])
            )
            strongest.append(f"{named} in pair {values.index(max(values))}")
    strength_max = max(max(stack.queries + stack.keys) for stack in stacks)
    x_title, y_title = "pair of channels, fastest first", "norm of its two rows"
    return Figure(
        "Strength of each pair",
        [Panel("", marks, x_title, y_title, y_range=(0, 1.05 * strength_max))],
        f"How strong queries and keys are in each pair of channels; strongest are"
        f" {'; '.join(strongest)}.",
    )
