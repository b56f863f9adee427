"""Sentences about the measured weights of a model."""

import re
from collections.abc import Iterator
from statistics import median

from posenc.analysis.formula import Formula
from posenc.analysis.rotary_pairs import DECISIVE_T, FEWEST_PAIRS
from posenc.analysis.tables import WINDOW, Rows
from posenc.models.weight_measurements import Bands, Bias, Positions, Relative, WeightMeasurements
from posenc.show.report.phrases import runs, tokens
from posenc.support.numbers import number
from posenc.support.text import printable

MOST_SKIPPED = 8  # tensors listed by name; further ones are only counted


def table(positions: Positions) -> Iterator[str]:
    """Yield sentences about a model's table of position embeddings.

    The sentences name the formula that the table equals or, for a learned table, the signs of
    training.
    """
    size = f"{positions.rows:,} rows of {positions.width}"
    if positions.formula:
        yield f"{size}, {_formula(positions.formula)}"
    elif positions.learned:
        yield from _learned(size, positions.learned, positions.rows)


def _formula(formula: Formula) -> str:
    names = ("sines", "cosines") if formula.sine_first else ("cosines", "sines")
    beside = f"{names[0][:-1]} beside {names[1][:-1]}"
    order = f"all {names[0]}, then all {names[1]}" if formula.layout == "half" else beside
    form = "j/(d/2 − 1)" if formula.closed else "2j/d"
    times = "" if abs(formula.size - 1) < 1e-3 else f", times {formula.size:.4g}"
    empty = f"; zero rows: {', '.join(map(str, formula.empty[:4]))}" if formula.empty else ""
    return (
        f"made by a formula: {order}, base {formula.base:,.6g}, exponents {form}, position"
        f" {formula.offset} in the first row{times}{empty}; it differs from the table by"
        f" {number(formula.residual, 1)} of its norm"
    )


def _learned(size: str, measured: Rows, count: int) -> Iterator[str]:
    what = {"random": "random, as initialised", "alike": "all equal", "zero": "all zero"}
    if not measured.trained:
        yield f"{size}, {what[measured.untrained or 'random']}: the table looks untrained"
        return
    alike = " ".join(f"{value:.2f}" for value in measured.likeness_quarters)
    yield (
        f"{size}, learned; cosine of neighbouring rows, by quarters: {alike};"
        f" the rows differ along about {measured.directions:.1f} directions"
    )
    if measured.untrained:
        rows = f"rows {measured.trained:,} … {count - 1:,}"
        yield f"{rows} are {what[measured.untrained]}: training did not reach them"
    if measured.seam is not None:
        yield _seam(measured, measured.seam)
    if measured.falls is not None:
        yield (
            f"from row {measured.falls:,} on, neighbours are less and less similar, as if training"
            " had ever fewer texts of that length"
        )


def _seam(measured: Rows, row: int) -> str:
    beside = range(max(1, row - WINDOW), row - 1), range(row + 1, row + WINDOW)
    before, after = (median(measured.norms[n] for n in rows) for rows in beside)
    usual = median(measured.likeness[n - 1] for rows in beside for n in rows)
    cosine = measured.likeness[row - 1]
    return (
        f"the table changes at row {row:,}: norms go from {before:.2f} to {after:.2f}, and the"
        f" cosine to the row before is {cosine:.2f}, while {usual:.2f} is usual. Both parts are"
        f" smooth, as if the last training had texts of up to {row:,} tokens, and rows"
        f" {row:,} … {measured.trained - 1:,} were kept from an earlier training"
    )


def bias(measured: Bias) -> Iterator[str]:
    """Yield sentences on a learned T5 bias: its buckets, and heads whose last bucket is unusual."""
    way = "bidirectional" if measured.bidirectional else "causal"
    guess = ", an assumption without a config" if measured.assumed else ""
    values, distance = measured.steps.heads, measured.steps.distance
    near, zero = sum(head[distance.index(1)] > head[-1] for head in values), distance.index(0)
    yield (
        f"T5 bias, {measured.buckets} {way} buckets up to {measured.reach} tokens{guess};"
        f" {near} of {len(values)} heads prefer the next token back to the farthest"
    )
    for n, head in enumerate(values):
        before_last, last = head[zero:-2], head[-1]
        if abs(last - head[-3]) > max(before_last) - min(before_last) and abs(last - head[-3]) > 1:
            yield (
                f"in head {n} the last bucket, from {distance[-2]} tokens on, is unusual:"
                f" {last:+.1f}, after {head[-3]:+.1f} in the bucket before"
            )


def relative(tables: list[Relative]) -> Iterator[str]:
    """Yield a sentence for each kind of table of learned relative-position vectors."""
    alike: dict[str, list[Relative]] = {}
    for table in tables:
        alike.setdefault(re.sub(r"\d+", "…", table.tensor), []).append(table)
    for name, same_kind in alike.items():
        means = [sum(table.vectors.likeness) / len(table.vectors.likeness) for table in same_kind]
        peaks = [
            table.vectors.distance[table.vectors.norms.index(max(table.vectors.norms))]
            for table in same_kind
        ]
        reach = same_kind[0].vectors.distance[0]
        yield (
            f"{printable(name)}: vectors for up to {reach} tokens each way;"
            " cosine of neighbours, table by table:"
            f" {' '.join(f'{mean:.2f}' for mean in means)}; longest at"
            f" {' '.join(f'{peak:+d}' if peak else '0' for peak in peaks)}"
        )


def bands(stack: Bands) -> Iterator[str]:
    """Yield a sentence that names the rotary pairs with the largest and smallest weights."""
    products = [q * k for q, k in zip(stack.queries, stack.keys, strict=True)]
    if not max(products):
        yield f"{runs(stack.layers)}: queries or keys are zero in every pair"
        return
    ends = products.index(max(products)), products.index(min(products))
    named = [f"pair {n}" + f" ({tokens(stack.wavelengths[n])} tokens a turn)" for n in ends]
    ratio = products[ends[0]] / products[ends[1]] if products[ends[1]] else float("inf")
    yield (
        f"{runs(stack.layers)}: of {len(products)} pairs, {named[0]} has the largest product of"
        f" the norms of queries and keys, {ratio:,.3g} times that of the weakest, {named[1]}"
    )


def layout(measurements: WeightMeasurements) -> Iterator[str]:
    """Yield sentences on the layout of rotary pairs, half or interleaved, that the weights show."""
    evidence = measurements.evidence
    if evidence is None:
        return
    values = ", ".join(f"{name!r} t = {t:.1f}" for name, t in evidence.t.items())
    count = f"{evidence.count:,} pairs, {values}"
    if evidence.verdict is None:
        need = f"required: t = {DECISIVE_T:g}, {FEWEST_PAIRS} pairs or more"
        few = "too few pairs" if evidence.count < FEWEST_PAIRS else "both layouts fit equally"
        yield (
            f"the weights do not show in which layout they were trained: {few} ({count}; {need})"
        )
        return
    tied = evidence.pairs[evidence.verdict] / evidence.others[evidence.verdict]
    yield (
        f"the weights fit layout {evidence.verdict!r}: in queries and keys, the two rows of its"
        f" pairs are {tied:.2g} times as strongly related as other rows ({count})"
    )
    if measurements.layout and measurements.layout != evidence.verdict:
        yield (
            f"but the config states layout {measurements.layout!r}, which would rotate queries and"
            " keys wrongly"
        )


def unmeasured(measurements: WeightMeasurements) -> Iterator[str]:
    """Yield sentences on the tensors that were not measured, with the reasons."""
    for name in measurements.broken:
        yield f"{printable(name)}: holds numbers that are not finite, so it is not measured"
    for name in [*measurements.skipped][:MOST_SKIPPED]:
        yield f"{printable(name)}: {measurements.skipped[name]}"
    if len(measurements.skipped) > MOST_SKIPPED:
        yield f"{len(measurements.skipped) - MOST_SKIPPED:,} more tensors are not measured"
    if not measurements.recognised:
        examples = ", ".join(map(printable, measurements.some)) + (
            ", …" if measurements.tensors > 3 else ""
        )
        content = (
            f"{measurements.tensors:,} tensors ({examples})"
            if measurements.tensors
            else "the file, which is empty"
        )
        yield (
            "no tensor of positions is recognised by name and shape (a table, a bias, or rotated"
            f" queries and keys) in {content}"
        )
