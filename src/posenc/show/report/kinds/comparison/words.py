"""Sentences on a comparison, the same on the terminal and on its page."""

from collections.abc import Callable
from math import prod

from posenc.analysis.rounding import BLIND
from posenc.lab.compare.comparison import Comparison, Measured


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
    # Either ratio may be off by its own noise
    alone = [result.nope_ratio_by_length[n] for n in (0, -1)]
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


def _everywhere(measured: Measured) -> bool:
    return all(far.change is not None and far.change < BLIND for far in measured.far)


def _accepts(measured: Measured) -> bool:
    return all(far.change is not None for far in measured.far)


def _names(result: Comparison, test: Callable[[Measured], bool | None]) -> str:
    return ", ".join(measured.name for measured in result.encodings if test(measured))
