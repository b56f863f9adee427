"""Print measured weights: curves of block characters, and sentences."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.console import Console
from rich.text import Text

from posenc.models.weight_measurements import WeightMeasurements
from posenc.show.report.kinds.inspection.weights import phrases
from posenc.show.report.phrases import runs
from posenc.support.text import printable

BLOCKS = "▁▂▃▄▅▆▇█"
WIDE = 48


def print_weights(weights: WeightMeasurements, console: Console) -> None:
    """Print curves and sentences for each measured tensor, then the layout of rotary pairs."""
    for table in weights.tables:
        lines = phrases.table(table)
        learned = table.learned
        curves = {"norm": learned.norms, "likeness": learned.likeness} if learned else {}
        _block(printable(table.tensor), curves, lines, console)
    for bias in weights.biases:
        heads = {f"head {n}": head for n, head in enumerate(bias.steps.heads[:8])}
        ends = f"{bias.steps.distance[0]} … {bias.steps.distance[-1]} tokens back, by buckets"
        _block(f"{printable(bias.tensor)}, {ends}", heads, phrases.bias(bias), console)
    if weights.relative:
        norms = {
            printable(relative.tensor): relative.vectors.norms for relative in weights.relative[:24]
        }
        ends = f"{weights.relative[0].vectors.distance[0]} … tokens back to ahead"
        _block(f"length of vectors, {ends}", norms, phrases.relative(weights.relative), console)
    for bands in weights.bands:
        title = f"{runs(bands.layers)}, strength by pair, fastest first"
        strengths = {"queries": bands.queries, "keys": bands.keys}
        _block(title, strengths, phrases.bands(bands), console)
    for line in (*phrases.layout(weights), *phrases.unmeasured(weights)):
        console.print(Text(line))


def _block(
    title: str, curves: dict[str, list[float]], lines: Iterable[str], console: Console
) -> None:
    console.print(Text(title, "bold"))
    wide = max(map(len, curves), default=0)
    for name, values in curves.items():
        ends = f"{min(values):.3g} … {max(values):.3g}"
        console.print(Text(f"{name:{wide}} {blocks(values)} {ends}"), soft_wrap=True)
    for line in lines:
        console.print(Text(line))
    console.print()


def blocks(values: Sequence[float], wide: int = WIDE) -> str:
    """Draw a curve as one line of block characters. Neighbours of a long curve are averaged.

    >>> blocks([0, 1, 2, 3, 4, 5, 6, 7]), blocks([1, 1]), blocks([0, 0, 4, 4], wide=2)
    ('▁▂▃▄▅▆▇█', '▁▁', '▁█')
    """
    count = min(wide, len(values))
    edges = [len(values) * n // count for n in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    step = (len(BLOCKS) - 1) / (high - low) if high > low else 0
    return "".join(BLOCKS[round((mean - low) * step)] for mean in means)
