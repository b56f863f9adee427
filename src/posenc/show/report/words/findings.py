"""Put numbers and findings into words, the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import inf, pi, prod
from re import sub
from textwrap import dedent
from typing import TYPE_CHECKING

from posenc.analysis.frequencies import LONGEST
from posenc.analysis.rounding import BLIND
from posenc.core.numerals import number
from posenc.models.files.errors import printable
from posenc.models.inspection import Inspection, Turning, rounded

if TYPE_CHECKING:  # which needs torch
    from posenc.lab.compare.comparison import Comparison, Measured

QUOTES = '"', "“", "”", "''", "``"
SHORT = {  # headings of two short lines
    "unique_positions": "unique\nrows",
    "bounded": "bounded",
    "norm_constant": "norm\nconst.",
    "linear_shift": "linear\nshift",
    "shift_invariant": "shift\ninvar.",
    "symmetric": "symmetric",
    "decaying": "decaying",
    "norm_preserving": "keeps\nnorms",
    "any_length": "any\nlength",
    "length_independent": "length\nindep.",
    "order_sensitive": "order\nsensit.",
    "learned": "learned",
    "several_axes": "several\naxes",
}


CHANGES = {  # of a pair, by stretching
    "kept": "unchanged",
    "stretched": "slowed in part",
    "interpolated": "slowed by the full factor",
    "still": "not turning",
}


SEEN = {  # what training has shown of the angles of a pair
    "all": "angles all seen in training",
    "part": "seen in part, no more needed",
    "new": "seen in part, more needed",
    "still": "does not turn",
}


METHODS = {  # of stretching frequencies, as papers call them
    "none": "as trained",
    "configured": "as configured",
    "interpolate": "PI",
    "ntk": "NTK-aware",
    "dynamic_ntk": "dynamic NTK",
    "by_parts": "NTK by parts",
    "yarn": "YaRN",
    "llama3": "Llama 3",
    "longrope": "LongRoPE",
}


def label(name: str) -> str:
    """The name of a property in words: "any length"."""
    return name.replace("_", " ")


def masked(names: Sequence[str]) -> str:
    """Say how the properties of these were measured; "" of none.

    >>> masked(["FoX", "CoPE"])
    'Made for causal attention, and measured under a causal mask: FoX, CoPE.'
    """
    what = "Made for causal attention, and measured under a causal mask"
    return f"{what}: {', '.join(names)}." if names else ""


def change(share: float | None) -> str:
    """A change by shuffling or repeating: "none", "39%"; "" where nothing was tried."""
    if share is None:
        return ""
    return "none" if share < BLIND else _percent(share)


def count(parameters: int) -> str:
    """A number of parameters, short: "", "128", "4.2k", "131k".

    >>> count(4_224), count(131_072), count(2_100_000)
    ('4.2k', '131k', '2.1M')
    """
    if not parameters:
        return ""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if parameters >= size:
            return f"{parameters / size:.{1 if parameters < 10 * size else 0}f}{letter}"
    return str(parameters)


def moved(share: float | None) -> str:
    """The change when a text is moved: "same", "120%", "refused"."""
    if share is None:
        return "refused"
    return "same" if share < BLIND else _percent(share)


def noise(result: Comparison) -> str:
    """Say how far the layer without positions varied, and whether the machine was busy."""
    low, high = result.noise
    sentence = f"NoPE itself took {low:.2f} to {high:.2f} × its median time, timed again and again."
    busy = " The machine was busy: tables name no times, and the figure has its noise."
    fewer = ""
    if result.nope_cost.rounds < result.settings.cost_rounds:
        taken, of = result.nope_cost.rounds, result.settings.cost_rounds
        fewer = f" Rounds took too long: {taken} of {of} were timed; try again on a quiet machine."
    return sentence + busy * result.busy + fewer


COSTS = "forward", "training", "training_memory"


def multiple(of_nope: float | None) -> str:
    """A multiple of NoPE's time or memory; "busy" where there is none to be named."""
    return "busy" if of_nope is None else f"{of_nope:.1f}"


def width(result: Comparison) -> str:
    """Say the width that all encodings of a comparison were measured at."""
    sizes = result.settings
    heads = f"{sizes.heads} {'head' if sizes.heads == 1 else 'heads'} of {sizes.dim}"
    return f"Each in a layer of the same width, {sizes.width:,} channels: {heads}."


def times(multiple: float) -> str:
    """A multiple, two digits or whole.

    >>> times(1.234), times(12.6), times(315.7)
    ('1.2 ×', '13 ×', '316 ×')
    """
    return f"{multiple:.0f} ×" if multiple >= 10 else f"{multiple:.2g} ×"


def growth(result: Comparison) -> str:
    """Say whose cost grows most with the length, over that of the layer without positions."""
    first, last = (result.nope_by_length[n].tokens for n in (0, -1))
    low, high = result.noise
    alone = [result.nope_ratio_by_length[n] for n in (0, -1)]  # either may be off by its own noise
    unsure = prod((ratio.high or 1.0) / (ratio.low or 1.0) for ratio in alone)
    growths = []
    for what, noise in (("time", max(high / low, unsure)), ("memory", 1.0)):
        grown = []
        for measured in result.encodings:
            taken = [getattr(ratio, what) for ratio in measured.cost_ratio_by_length]
            ends = [value for value in taken if value is not None]
            grown.append((ends[-1] / ends[0], ends[0], ends[-1], measured.name))
        most, before, after, name = max(grown)
        if most > noise:
            growths.append(f"{what} most with {name}, {times(before)} to {times(after)} NoPE")
    grows = "; ".join(growths) or "none beyond the noise"
    refused = [m.name for m in result.encodings if m.cost_ratio_by_length[-1].time is None]
    ends = f" {', '.join(refused)}: refused at {last:,} tokens." * bool(refused)
    return f"What grows from {first:,} to {last:,} tokens, over NoPE: {grows}.{ends}"


def verdict(result: Comparison) -> list[str]:
    """Summarise a comparison in a few sentences made from its numbers."""
    sentences = [
        ("Cannot see word order (unless the mask is causal)", lambda m: m.shuffle.plain < BLIND),
        (
            "Output does not change when the whole text is moved (tested to position 1,000,000)",
            _everywhere,
        ),
        (
            "Output changes when the whole text is moved",
            lambda m: _accepts(m) and not _everywhere(m),
        ),
        ("Has a last position, and refuses those beyond", lambda m: not _accepts(m)),
        ("Scores only fall with distance", lambda m: m.properties["decaying"].holds),
    ]
    return [f"{what}: {names}." for what, test in sentences if (names := _names(result, test))]


def sentence(words: Sequence[str]) -> str:
    """Words and signs of a text as one would write them, without marks of quotation.

    >>> sentence(["we", "shall", ",", "miss", '"', "morland", "."])
    'we shall, miss morland.'
    """
    kept = " ".join(word for word in words if word not in QUOTES)
    return sub(r" +([,.;:!?])", r"\1", kept)


def blocks(text: str) -> list[tuple[str, str]]:
    r"""A docstring in order: ("prose", one line) and ("formula", lines as they are).

    >>> blocks("Sine: add it.\n\n    PE(p) = sin p\n\nIt is\nsmooth.")
    [('prose', 'Sine: add it.'), ('formula', 'PE(p) = sin p'), ('prose', 'It is smooth.')]
    """
    return [
        ("formula", dedent(block))
        if block.startswith("    ")
        else ("prose", " ".join(block.split()))
        for block in text.split("\n\n")
    ]


def duration(seconds: float) -> str:
    """Seconds as a duration: "4.2 s", "3 min 20 s"."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def brief(seconds: float) -> str:
    """The duration of a call, three digits.

    >>> brief(1.23456e-5), brief(0.0421), brief(3.0)
    ('12.3 µs', '42.1 ms', '3.00 s')
    """
    size, unit = next(
        x for x in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= x[0] or x[0] < 1e-5
    )
    value = seconds / size
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def model(inspection: Inspection) -> str:
    """The name of a model, that of its folder, and its `model_type`; safe to print."""
    kind, name = printable(inspection.spec.model), printable(inspection.name, 80)
    if name and kind and name != kind:
        return f"{name} ({kind})"
    return name or kind or printable(inspection.file)


def facts(inspection: Inspection) -> str:
    """Layers, heads and lengths of a model: "28 layers, 28 heads in 4 groups, 32,768 tokens"."""
    spec = inspection.spec
    nothing = "no attention, nothing to encode" if spec.model else "no config beside it"
    parts = [f"{len(spec.layers)} layers"] if spec.layers else [nothing]
    if spec.heads:
        shared = "" if spec.groups == spec.heads else f" in {spec.groups} groups"
        parts.append(f"{spec.heads} heads{shared}")
    if spec.context:
        parts.append(f"{spec.context:,} tokens")
    if spec.trained and spec.trained != spec.context:
        parts.append(f"stretched from {spec.trained:,}")
    return ", ".join(parts)


def verdict_of(inspection: Inspection) -> str:
    """The verdict on the target: it fits, breaks, or cannot be judged.

    Beside a warning it does not say that nothing breaks.
    """
    target = f"{inspection.target:,} tokens"
    if inspection.verdict == "fits" and warned(inspection):
        return f"No fault is known at {target}; mind the notes on the layers."
    return {
        "fits": f"Nothing breaks at {target}.",
        "breaks": f"This breaks at {target}:",
        "cannot say": f"Whether it serves {target} cannot be said:",
    }[inspection.verdict or "fits"]


def warned(inspection: Inspection) -> bool:
    """Test whether anything said of a model or its parts speaks against a text of the target."""
    target = inspection.target or 0
    weak = any(
        group.turning and not group.window and group.turning.reach < target
        for group in inspection.groups
    )
    return weak or bool(inspection.spec.notes) or any(map(_noted, inspection.parts.values()))


def _noted(part: Inspection) -> bool:
    return bool(part.spec.notes) or any(map(_noted, part.parts.values()))


def basis(inspection: Inspection) -> str:
    """The files that the verdict was judged by."""
    config = [printable(inspection.file)] if inspection.spec.model or inspection.spec.layers else []
    if inspection.weighing:
        return f"judged by {' and '.join([*config, 'the weights'])}"
    return f"judged by {''.join(config)} alone; with --weights the weights are read too"


def tokens(count: float) -> str:
    """A length in tokens, four digits where it is short.

    >>> tokens(6.283185), tokens(160114.3), tokens(float("inf"))
    ('6.283', '160,114', '∞')
    """
    return "∞" if count == float("inf") else f"{count:,.4g}" if count < 1000 else f"{count:,.0f}"


def runs(layers: list[int]) -> str:
    """Numbers of layers, short.

    >>> runs([0, 1, 2, 5, 7, 8]), runs([3]), runs([5, 11, 17, 23])
    ('layers 0–2, 5, 7–8', 'layer 3', 'layers 5, 11, … 23 (4)')
    """
    together = [
        [n for _, n in run]
        for _, run in groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0])
    ]
    named = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in together]
    if len(named) > 3:
        named = [named[0], named[1], f"… {named[-1]} ({len(layers)})"]
        return f"layers {named[0]}, {named[1]}, {named[2]}"
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(named)}"


def turning(rotation: Turning) -> list[str]:
    """The positions that a rotation can tell apart, and how exactly, in sentences."""
    rotary = rotation.rotary
    lines = []
    if rotary.gain != 1:
        lines.append(f"attention factor {rotary.gain:.6g}: logits × {rotary.gain**2:.6g}")
    if rotary.logit_gain != 1:
        lines.append(
            f"softmax scale × {rotary.logit_gain:.6g}, for turned and unturned channels alike"
        )
    if rotation.trained:
        lines.append(
            f"{rotation.unfinished} of {len(rotation.pairs)} pairs complete no turn within the"
            f" trained {rotation.trained:,} tokens: training has shown only part of their angles"
            if rotation.unfinished
            else f"all pairs complete a turn within the trained {rotation.trained:,} tokens"
        )
    behind = "a key equal to the query can score below a random one (Σ cos mθ < 0)"
    if rotation.reach >= LONGEST:
        lines.append(
            f"up to {rotation.reach:,} tokens a key equal to the query scores above a random one"
        )
    else:
        lines.append(f"from {rotation.reach:,} tokens on, {behind}")
    if rotation.smallest_base is not None and rotation.span:
        least = f"≥ {rounded(rotation.smallest_base)}"
        lines.append(
            f"for that not to happen within {rotation.span:,} tokens, without scaling, takes a base"
            f" {'> 10¹⁵' if rotation.smallest_base == inf else least} (now {rotary.base:,.10g})"
        )
    errors = "; ".join(
        f"in {name}: {_radians(error)} ({_judged(error)})"
        for name, error in rotation.errors.items()
    )
    lines.append(f"angle error at the last position if frequencies are stored {errors}")
    return lines


def _radians(error: float) -> str:
    return f"{number(error, 2)} rad" if error < 10 else f"{error:.0f} rad"


def _judged(error: float) -> str:
    """Judge the error of an angle: a tenth of a radian is 6 degrees, π is the other side."""
    return "fine" if error < 0.1 else "harmful" if error < pi else "meaningless"


def _everywhere(measured: Measured) -> bool:
    return all(far.change is not None and far.change < BLIND for far in measured.far)


def _accepts(measured: Measured) -> bool:
    return all(far.change is not None for far in measured.far)


def _names(result: Comparison, test: Callable[[Measured], bool | None]) -> str:
    return ", ".join(measured.name for measured in result.encodings if test(measured))


def _percent(share: float) -> str:
    if share > 9.99:
        return f"{share:,.0f}×"
    return f"{share:.0%}" if share >= 0.01 else "<1%"
