"""Measure which angles a pair of channels met in training, and which it meets in longer texts.

A pair that turns by θ a token shows, over the distances of L tokens, the angles

    [0, L θ) mod 2π         met in training; the whole circle where L θ ≥ 2π
    [0, T θ′) mod 2π        used in texts of T tokens, with θ′ after an extension

Both arcs begin at 0 and run the same way, so what is met for the first time is the part by which
the second is longer. A distance m stands for the angles up to those of m + 1. A pair without
wavelength (θ′ = 0) turns through none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, pi

from posenc.analysis.frequencies import stretched
from posenc.encodings.rotary.theta import Theta

TINY = 1e-9  # turns that rounding may leave
LIKE_YARN = "by_parts"  # left out: it turns as "yarn" does, but for the rounding of its ramp


@dataclass(frozen=True)
class Dial:
    """One pair of channels: shares of its circle."""

    wavelength: float  # tokens, as it turns in the longer text; infinite where it does not
    met: float  # share of the circle met in training
    new: float  # share met for the first time in the longer text


def dials(before: Theta, now: Theta, trained: int, target: int) -> list[Dial]:
    """Compare each pair's angles over `trained` tokens with those over `target` tokens."""
    return [
        _dial(abs(was), abs(turns), trained, target) for was, turns in zip(before, now, strict=True)
    ]


def by_method(
    freqs: Theta,
    trained: int,
    target: int,
    configured: Theta | None = None,
    long: Sequence[float] | None = None,
) -> dict[str, list[Dial]]:
    """Compare over `target` tokens: as trained ("none"), as `configured`, after each extension.

    LongRoPE is among them where its factors are given as `long`.
    """
    factor = max(1.0, target / trained)
    methods = {name: now for name, (now, _) in stretched(freqs, trained, factor, long).items()}
    del methods[LIKE_YARN]
    if configured is not None:
        methods = {"none": methods.pop("none"), "configured": configured} | methods
    return {name: dials(freqs, now, trained, target) for name, now in methods.items()}


def _dial(was: float, turns: float, trained: int, target: int) -> Dial:
    if not turns:
        return Dial(inf, 0.0, 0.0)
    met, used = (
        min(1.0, theta * length / (2 * pi)) for theta, length in ((was, trained), (turns, target))
    )
    return Dial(2 * pi / turns, met, used - met if used - met > TINY else 0.0)
