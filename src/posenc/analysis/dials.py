"""Compute the share of RoPE's rotation angles that occur in longer texts but not in training.

A pair with θ radians per token has, over the distances of L tokens, the angles

    [0, L θ) mod 2π         used in training; the whole circle if L θ ≥ 2π
    [0, T θ′) mod 2π        used in texts of T tokens, with θ′ after an extension

Both arcs begin at 0 and have the same direction, so the untrained angles are the part by which the
second is longer. A distance m covers the angles up to those of m + 1. A pair with θ′ = 0 has no
angles.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, pi

from posenc.analysis.frequencies import stretched
from posenc.encodings.rotary.theta import Theta

TINY = 1e-9  # turns that rounding errors may cause
LIKE_YARN = "by_parts"  # left out, because it equals "yarn" except for the rounding of its ramp


@dataclass(frozen=True)
class Dial:
    """The share of the circle that a RoPE pair covers in training, and what longer texts add."""

    wavelength: float  # tokens per turn in the longer text; infinite if it is not rotated
    met: float  # share of the circle that training used
    new: float  # additional share that the longer text uses


def dials(before: Theta, now: Theta, trained: int, target: int) -> list[Dial]:
    """Return a `Dial` for each RoPE pair, from its frequencies in training and in longer texts."""
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
    """Return, for each method of context extension, a `Dial` for each RoPE pair.

    The keys are "none", "configured" and the methods of extension; "longrope" needs its factors,
    `long`.
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
