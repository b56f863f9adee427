"""What the weights say of positions, in sentences."""

import re
from collections.abc import Iterator

from posenc.analysis.bands import FEWEST, SPEAKS
from posenc.analysis.formula import Formula
from posenc.analysis.tables import Rows
from posenc.models.files.errors import printable
from posenc.models.weighing import Bands, Bias, Positions, Relative, Weighing
from posenc.report.words import runs, tokens

MOST_SKIPPED = 8  # tensors that are named


def told(found: Weighing) -> list[str]:
    """Each sentence names its tensor; nothing, where there is nothing."""
    return [
        *(f"{printable(one.tensor)}: {words}" for one in found.tables for words in table(one)),
        *(f"{printable(one.tensor)}: {words}" for one in found.biases for words in bias(one)),
        *relative(found.relative),
        *(words for one in found.bands for words in bands(one)),
        *layout(found),
        *unmeasured(found),
    ]


def table(one: Positions) -> Iterator[str]:
    """A position table in sentences."""
    size = f"{one.rows:,} rows of {one.width}"
    if one.formula:
        yield f"{size}, {_formula(one.formula)}"
    elif one.learned:
        yield from _learned(size, one.learned, one.rows)


def _formula(made: Formula) -> str:
    names = ("sines", "cosines") if made.sine_first else ("cosines", "sines")
    beside = f"{names[0][:-1]} beside {names[1][:-1]}"
    order = f"all {names[0]}, then all {names[1]}" if made.layout == "half" else beside
    form = "j/(d/2 − 1)" if made.closed else "2j/d"
    times = "" if abs(made.size - 1) < 1e-3 else f", times {made.size:.4g}"
    empty = f"; zero rows: {', '.join(map(str, made.empty[:4]))}" if made.empty else ""
    return (
        f"made by a formula: {order}, base {made.base:,.6g}, exponents {form}, position"
        f" {made.offset} in the first row{times}{empty}; it leaves {made.residual:.1g} of the table"
    )


def _learned(size: str, found: Rows, count: int) -> Iterator[str]:
    what = {"random": "as random as they are drawn", "alike": "all the same", "zero": "all zero"}
    if not found.trained:
        yield f"{size}, {what[found.untrained or 'random']}: it looks untrained"
        return
    alike = " ".join(f"{value:.2f}" for value in found.likeness_quarters)
    yield (
        f"{size}, learned; cosine of neighbouring rows, by quarters: {alike};"
        f" the rows differ along about {found.directions:.1f} directions"
    )
    if found.untrained:
        rows = f"rows {found.trained:,} … {count - 1:,}"
        yield f"{rows} are {what[found.untrained]}: training has not met them"
    if found.falls is not None:
        yield (
            f"from row {found.falls:,} on neighbours are less and less alike, as where training"
            " met ever fewer texts so long"
        )


def bias(one: Bias) -> Iterator[str]:
    """A T5 bias in sentences."""
    way = "bidirectional" if one.bidirectional else "causal"
    guess = ", as no config says" if one.assumed else ""
    values, distance = one.steps.heads, one.steps.distance
    near, zero = sum(head[distance.index(1)] > head[-1] for head in values), distance.index(0)
    yield (
        f"T5 bias, {one.buckets} {way} buckets up to {one.reach} tokens{guess};"
        f" {near} of {len(values)} heads prefer the next token back to the farthest"
    )
    for number, head in enumerate(values):
        rest, last = head[zero:-2], head[-1]
        if abs(last - head[-3]) > max(rest) - min(rest) and abs(last - head[-3]) > 1:
            yield (
                f"in head {number} the last bucket, from {distance[-2]} tokens on, stands out:"
                f" {last:+.1f}, and {head[-3]:+.1f} before it"
            )


def relative(found: list[Relative]) -> Iterator[str]:
    """Tables of vectors in sentences, one for those whose names differ in numbers only."""
    alike: dict[str, list[Relative]] = {}
    for one in found:
        alike.setdefault(re.sub(r"\d+", "…", one.tensor), []).append(one)
    for name, those in alike.items():
        means = [sum(one.vectors.likeness) / len(one.vectors.likeness) for one in those]
        peaks = [
            one.vectors.distance[one.vectors.norms.index(max(one.vectors.norms))] for one in those
        ]
        yield (
            f"{printable(name)}: vectors for up to {those[0].vectors.distance[0]} tokens each way;"
            " cosine of neighbours, table by table:"
            f" {' '.join(f'{mean:.2f}' for mean in means)}; longest at"
            f" {' '.join(f'{peak:+d}' if peak else '0' for peak in peaks)}"
        )


def bands(one: Bands) -> Iterator[str]:
    """How strong the pairs are, in a sentence."""
    both = [q * k for q, k in zip(one.queries, one.keys, strict=True)]
    if not max(both):
        yield f"{runs(one.layers)}: queries or keys are zero in every pair"
        return
    ends = both.index(max(both)), both.index(min(both))
    told = [
        f"pair {n}" + (f" ({tokens(one.wavelengths[n])} tokens a turn)" if one.wavelengths else "")
        for n in ends
    ]
    ratio = both[ends[0]] / both[ends[1]] if both[ends[1]] else float("inf")
    yield (
        f"{runs(one.layers)}: queries and keys are strongest in {told[0]} of {len(both)}, weakest"
        f" in {told[1]}, {ratio:,.3g} times, as products"
    )


def layout(found: Weighing) -> Iterator[str]:
    """What the weights say of the layout, in sentences."""
    seen = found.evidence
    if seen is None:
        return
    values = ", ".join(f"{name!r} t = {t:.1f}" for name, t in seen.t.items())
    count = f"{seen.count:,} pairs, {values}"
    if seen.verdict is None:
        need = f"it takes {SPEAKS:g}, of {FEWEST} pairs or more"
        yield f"the weights speak for neither layout ({count}; {need})"
        return
    yield (
        f"the weights speak for layout {seen.verdict!r}: rows of such pairs are tied in queries and"
        f" keys {seen.pairs[seen.verdict] / seen.others[seen.verdict]:.2g} times as much as others"
        f" ({count})"
    )
    if found.layout and found.layout != seen.verdict:
        yield (
            f"but the model is said to be in layout {found.layout!r}: with that, its queries and"
            " keys would turn wrongly"
        )


def unmeasured(found: Weighing) -> Iterator[str]:
    """What could not be measured, and whether there was anything to measure, in sentences."""
    for name in found.broken:
        yield f"{printable(name)}: holds numbers that are not finite, so it is not measured"
    for name in [*found.skipped][:MOST_SKIPPED]:
        yield f"{printable(name)}: {found.skipped[name]}"
    if len(found.skipped) > MOST_SKIPPED:
        yield f"{len(found.skipped) - MOST_SKIPPED:,} more tensors are not measured"
    if not found.recognised:
        some = ", ".join(map(printable, found.some)) + (", …" if found.tensors > 3 else "")
        held = (
            f"{found.tensors:,} tensors ({some})" if found.tensors else "the file, which is empty"
        )
        yield (
            "nothing about positions is recognised by name and shape: no table, no bias, no"
            f" queries and keys that turn, in {held}"
        )
