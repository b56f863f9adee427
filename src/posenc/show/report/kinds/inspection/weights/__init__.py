"""What the weights of a model say of its positions: tensor by tensor, then the layout."""

from posenc.models.weight_measurements import WeightMeasurements
from posenc.show.report.drawing.figure import Figure
from posenc.show.report.kinds.inspection.weights import figures, words
from posenc.support.text import printable


def draw(measurements: WeightMeasurements) -> dict[str, Figure]:
    """Draw the figures by their names."""
    drawn: dict[str, Figure | None] = {
        **{f"table-{n}": figures.table(tensor) for n, tensor in enumerate(measurements.tables)},
        **{f"bias-{n}": figures.bias(tensor) for n, tensor in enumerate(measurements.biases)},
        "relative": figures.relative(measurements.relative),
        "strength": figures.bands(measurements.bands),
    }
    return {name: figure for name, figure in drawn.items() if figure}


def sections(measurements: WeightMeasurements) -> dict[str, list[str]]:
    """A heading and sentences on each tensor that was measured, by the name of its figure."""
    drawn = {
        f"table-{n}": [printable(part.tensor), *words.table(part)]
        for n, part in enumerate(measurements.tables)
    } | {
        f"bias-{n}": [printable(part.tensor), *words.bias(part)]
        for n, part in enumerate(measurements.biases)
    }
    if measurements.relative:
        drawn["relative"] = ["Vectors for distances", *words.relative(measurements.relative)]
    if measurements.bands:
        lines = [line for part in measurements.bands for line in words.bands(part)]
        drawn["strength"] = ["Strength of each pair", *lines]
    others = {
        "Layout": [*words.layout(measurements)],
        "Not measured": [*words.unmeasured(measurements)],
    }
    return drawn | {name: [name, *lines] for name, lines in others.items() if lines}
