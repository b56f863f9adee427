"""What the weights of a model say of its positions: tensor by tensor, then the layout."""

from posenc.models.weighing import Weighing
from posenc.show.report.drawing.figure import Figure
from posenc.show.report.kinds.inspection.weights import figures, words
from posenc.support.text import printable


def draw(weighing: Weighing) -> dict[str, Figure]:
    """Draw the figures by their names."""
    drawn: dict[str, Figure | None] = {
        **{f"table-{n}": figures.table(tensor) for n, tensor in enumerate(weighing.tables)},
        **{f"bias-{n}": figures.bias(tensor) for n, tensor in enumerate(weighing.biases)},
        "relative": figures.relative(weighing.relative),
        "strength": figures.bands(weighing.bands),
    }
    return {name: figure for name, figure in drawn.items() if figure}


def sections(weighing: Weighing) -> dict[str, list[str]]:
    """A heading and sentences on each tensor that was measured, by the name of its figure."""
    drawn = {
        f"table-{n}": [printable(part.tensor), *words.table(part)]
        for n, part in enumerate(weighing.tables)
    } | {
        f"bias-{n}": [printable(part.tensor), *words.bias(part)]
        for n, part in enumerate(weighing.biases)
    }
    if weighing.relative:
        drawn["relative"] = ["Vectors for distances", *words.relative(weighing.relative)]
    if weighing.bands:
        lines = [line for part in weighing.bands for line in words.bands(part)]
        drawn["strength"] = ["Strength of each pair", *lines]
    others = {"Layout": [*words.layout(weighing)], "Not measured": [*words.unmeasured(weighing)]}
    return drawn | {name: [name, *lines] for name, lines in others.items() if lines}
