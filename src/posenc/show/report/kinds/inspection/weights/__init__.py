"""Figures of a model's measured weights, and sentences about them."""

from posenc.models.weight_measurements import WeightMeasurements
from posenc.show.report.kinds import Sections
from posenc.show.report.kinds.inspection.weights import figures, phrases
from posenc.support.text import printable


def make_figures(measurements: WeightMeasurements) -> Sections:
    """Return the figures, each in a section of its own that has the figure's name."""
    drawn = {
        **{f"table-{n}": figures.table(tensor) for n, tensor in enumerate(measurements.tables)},
        **{f"bias-{n}": figures.bias(tensor) for n, tensor in enumerate(measurements.biases)},
        "relative": figures.relative(measurements.relative),
        "strength": figures.bands(measurements.bands),
    }
    return {name: {name: figure} for name, figure in drawn.items()}


def sections(measurements: WeightMeasurements) -> dict[str, list[str]]:
    """Return a heading and sentences for each measured tensor, keyed by the figure's name."""
    drawn = {
        f"table-{n}": [printable(part.tensor), *phrases.table(part)]
        for n, part in enumerate(measurements.tables)
    } | {
        f"bias-{n}": [printable(part.tensor), *phrases.bias(part)]
        for n, part in enumerate(measurements.biases)
    }
    if measurements.relative:
        drawn["relative"] = ["Vectors for distances", *phrases.relative(measurements.relative)]
    if measurements.bands:
        lines = [line for part in measurements.bands for line in phrases.bands(part)]
        drawn["strength"] = ["Strength of each pair", *lines]
    others = {
        "Layout": [*phrases.layout(measurements)],
        "Not measured": [*phrases.unmeasured(measurements)],
    }
    return drawn | {name: [name, *lines] for name, lines in others.items() if lines}
