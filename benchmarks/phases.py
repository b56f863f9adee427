"""Angles as 64-bit fixed-point turns, against float64: how exact, how fast, how much code.

    turn = round(θ / 2π · 2⁶⁴)        kept as a wrapping 64-bit integer
    angle = (p · turn mod 2⁶⁴) · 2π / 2⁶⁴        the product of integers wraps at whole turns

    python benchmarks/phases.py

posenc makes cos and sin in float64, on the CPU where a device has none (theta.angles). This is the
alternative for such a device: int64 positions, and nothing but float32 after the product. It holds
for whole positions and for frequencies that nobody learns; points of several axes, positions at
halves, extensions' gains and gradients would still need the other way beside it.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import mpmath
import torch
from posenc.bench.timing import malloc, timed
from torch import Tensor

from posenc import frequencies
from posenc.rotation.table import turn

DIM, BASE = 128, 500_000.0
mpmath.mp.prec = 200


def turns(freqs: Tensor) -> Tensor:
    """θ/2π as 64-bit fractions; the product with 2⁶⁴ needs more digits than float64 has."""
    made = [round(Fraction(x) * Fraction(str(2**64 / (2 * mpmath.pi)))) for x in freqs.tolist()]
    return torch.tensor([n % 2**64 - (2**64 if n % 2**64 >= 2**63 else 0) for n in made])


def by_turns(pos: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
    """Reduced to an eighth of a turn, so that float32 holds the angle to the last bit."""
    phase = pos.unsqueeze(-1) * turns
    quarter = (phase + 2**61) >> 62  # −2 … 1, the nearest
    angle = (phase - (quarter << 62)).float() * (torch.pi / 2**63)
    cos, sin = angle.cos(), angle.sin()
    odd, negative_cos = quarter % 2 != 0, (quarter == 1) | (quarter == -2)
    negative_sin = (quarter == -1) | (quarter == -2)
    c, s = torch.where(odd, sin, cos), torch.where(odd, cos, sin)
    return torch.where(negative_cos, -c, c), torch.where(negative_sin, -s, s)


def error(pos: int, freqs: Tensor, cos: Tensor, sin: Tensor) -> float:
    worst = 0.0
    for theta, c, s in zip(freqs.tolist(), cos.tolist(), sin.tolist(), strict=True):
        angle = mpmath.mpf(theta) * pos
        worst = max(worst, abs(float(mpmath.cos(angle) - c)), abs(float(mpmath.sin(angle) - s)))
    return worst


def main() -> None:
    freqs = frequencies(DIM, BASE)
    fixed = turns(freqs)
    print(f"{'position':>12} {'float64':>9} {'turns':>9}   largest error of cos and sin")
    for pos in (1_000, 10**5, 10**7, 2**31 - 1, 10**12):
        at = torch.tensor([pos])
        ours, theirs = turn(at, freqs), by_turns(at, fixed)
        errors = [error(pos, freqs, c.flatten(), s.flatten()) for c, s in (ours, theirs)]
        print(f"{pos:12,} {errors[0]:9.1e} {errors[1]:9.1e}")
    single = freqs.float()
    for tokens in (32, 4096, 131_072):
        ways: dict[str, Callable[[Tensor], object]] = {
            "float32, as usual": lambda at: (lambda a: (a.cos(), a.sin()))(at.outer(single)),
            "float64, as posenc": lambda at: turn(at, freqs),
            "fixed-point turns": lambda at: by_turns(at, fixed),
        }
        runs = {name: partial(way, torch.arange(tokens)) for name, way in ways.items()}
        found = timed(runs, 21, 10.0)
        first = found["float32, as usual"].median
        told = ", ".join(f"{name} {t.median / first:.2f}" for name, t in found.items())
        print(f"{tokens:7,} tokens, × float32, malloc {malloc()}: {told}")


if __name__ == "__main__":
    main()
