"""Sentences about a comparison, for the terminal and the page."""

from collections.abc import Callable

from posenc.analysis.rounding import BLIND
from posenc.lab.compare.comparison import Comparison, Measured, Multiple, ratio_text

BLIND_TO_ORDER = "Ignores word order (unless the mask is causal)"
ENDS = "Has a last position, and rejects later ones"


def timing(result: Comparison) -> str:
    """Describe the timing method and, on a busy machine, the share of time waiting for a CPU."""
    most = result.settings.cost_rounds
    rounds = [m.cost.training_ratio.rounds for m in result.encodings]
    fewer = f"; {min(rounds)} for the slowest" * (min(rounds) < most)
    sentence = (
        "Times are CPU seconds over those of NoPE in the same round: the median [95 % interval, or"
        f" the range of fewer than six] of {most} {'round' if most == 1 else 'rounds'}{fewer}."
    )
    busy = f" This process waited for a processor {result.waited:.0%} of that time."
    return sentence + busy * result.busy


def dearest(result: Comparison) -> str:
    """Name the encoding whose training costs most."""
    most = max(result.encodings, key=lambda m: m.cost.training_ratio.median)
    ratio = ratio_text(most.cost.training_ratio)
    return f"Costs most: {most.name}, {ratio} × the training time of NoPE."


def width(result: Comparison) -> str:
    """State the width of the layer in which the encodings were measured."""
    sizes = result.settings
    heads = f"{sizes.heads} {'head' if sizes.heads == 1 else 'heads'} of {sizes.dim}"
    return f"Each in a layer of the same width, {sizes.width:,} channels: {heads}."


def times(multiple: float) -> str:
    """Format a ratio with two digits, or as an integer from 10 on.

    >>> times(1.234), times(12.6), times(315.7)
    ('1.2 ×', '13 ×', '316 ×')
    """
    return f"{multiple:.0f} ×" if multiple >= 10 else f"{multiple:.2g} ×"


def growth(result: Comparison) -> str:
    """Name the encodings whose cost, compared with NoPE, grows most with the text length."""
    first, last = (result.nope_by_length[n].tokens for n in (0, -1))
    growths = []
    for what in ("time", "memory"):
        grown = []
        for measured in result.encodings:
            ends = [ratio for ratio in measured.cost_ratio_by_length if ratio.time is not None]
            before, after = getattr(ends[0], what), getattr(ends[-1], what)
            grown.append((after / before, before, after, measured.name, _apart(what, *ends)))
        most, before, after, name, sure = max(grown)
        if sure and most > 1:
            growths.append(f"{what} of {name}, from {times(before)} to {times(after)} NoPE")
    grows = "; ".join(growths) or "none beyond the noise"
    refused = [m.name for m in result.encodings if m.cost_ratio_by_length[-1].time is None]
    ends = f" {', '.join(refused)}: refused at {last:,} tokens." * bool(refused)
    return f"Largest growth from {first:,} to {last:,} tokens, relative to NoPE: {grows}.{ends}"


def _apart(what: str, first: Multiple, *others: Multiple) -> bool:
    """Test whether a cost grows by more than noise.

    For times, the intervals of the first and the last length must not overlap.
    """
    last = others[-1] if others else first
    return what == "memory" or (last.low or 0.0) > (first.high or 0.0)


def closing(result: Comparison) -> list[str]:
    """Name the encodings that ignore word order, limit the length, or cost most."""
    blind = _names(result, _blind) or "none"
    ends = _names(result, lambda m: not _accepts(m)) or "none"
    return [f"{BLIND_TO_ORDER}: {blind}.", f"{ENDS}: {ends}.", dearest(result)]


def verdict(result: Comparison) -> list[str]:
    """Summarise a comparison in a few sentences made from its numbers."""
    sentences = [
        (BLIND_TO_ORDER, _blind),
        (
            "Output does not change when the whole text is moved (tested to position 1,000,000)",
            _everywhere,
        ),
        (
            "Output changes when the whole text is moved",
            lambda m: _accepts(m) and not _everywhere(m),
        ),
        (ENDS, lambda m: not _accepts(m)),
        ("Scores only fall with distance", lambda m: m.properties["decaying"].holds),
    ]
    return [f"{what}: {names}." for what, test in sentences if (names := _names(result, test))]


def _blind(measured: Measured) -> bool:
    return measured.shuffle.plain < BLIND


def _everywhere(measured: Measured) -> bool:
    return all(far.change is not None and far.change < BLIND for far in measured.far)


def _accepts(measured: Measured) -> bool:
    return all(far.change is not None for far in measured.far)


def _names(result: Comparison, test: Callable[[Measured], bool | None]) -> str:
    return ", ".join(measured.name for measured in result.encodings if test(measured))
