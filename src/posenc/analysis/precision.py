"""Measure errors of angles formed in few bits, and of the scores made with them.

    error         max | cos′ − cos |, | sin′ − sin |   over pairs, and a window of positions
    drift, far    √ mean (score′ − score)² / √ mean score²     of random q at m and k at n

For `drift` both stand in the window: a score depends on m − n only, and should stay as it is moved
along. For `far` the keys stay at the beginning of the text. Positions in bfloat16 cannot count past
256: there, near tokens change places. Frequencies in bfloat16 are others, by up to one part in 256:
near tokens hardly notice, far ones are somewhere else. cos and sin in bfloat16 cost the same
everywhere. posenc forms angles in float64 and rounds cos and sin once.

Wang et al. 2024, "When Precision Meets Position", arXiv:2411.13476, for bfloat16.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from posenc.core.shapes import Frequencies

POSITIONS = [10**n * m for n in range(7) for m in (1, 3)] + [10**7]
WINDOW = 32


def _product(freqs: torch.dtype, pos: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
    """A function for angles in float32, of frequencies and positions kept in these dtypes."""
    return lambda p, theta: p.to(pos).float().unsqueeze(-1) * theta.to(freqs).float()


def _exact(p: Tensor, theta: Tensor) -> Tensor:
    return p.double().unsqueeze(-1) * theta.double()


# The ways to form angles, and the dtype that their cos and sin are kept in
WAYS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], torch.dtype]] = {
    "posenc: float64, rounded once": (_exact, torch.float32),
    "float32 angles": (_product(torch.float32, torch.float32), torch.float32),
    "bfloat16 cos and sin": (_exact, torch.bfloat16),
    "float16 cos and sin": (_exact, torch.float16),
    "bfloat16 frequencies": (_product(torch.bfloat16, torch.float32), torch.float32),
    "float16 frequencies": (_product(torch.float16, torch.float32), torch.float32),
    "bfloat16 positions": (_product(torch.float32, torch.bfloat16), torch.float32),
    "float16 positions": (_product(torch.float32, torch.float16), torch.float32),
}


@dataclass(frozen=True)
class Precision:
    """Errors by way of forming angles, for windows that begin at each position. None: NaN."""

    position: list[int]
    error: dict[str, list[float | None]]  # largest error of cos and sin
    drift: dict[str, list[float | None]]  # drift of scores in the window, as a share of their size
    far: dict[str, list[float | None]]  # the same of scores with keys at 0, 1, 2, …


def precision(
    freqs: Frequencies, positions: Sequence[int] = tuple(POSITIONS), seed: int = 0
) -> Precision:
    """Measure the errors of a vector of frequencies, for q and k of unit normal entries."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, WINDOW, len(freqs), dtype=torch.complex128, generator=generator)
    errors = Precision(list(positions), *({way: [] for way in WAYS} for _ in range(3)))
    for start in positions:
        here, there = torch.arange(WINDOW), torch.arange(start, start + WINDOW)
        exact = [_turn(_exact(pos, freqs), torch.float64) for pos in (here, there)]
        for way, (angles, dtype) in WAYS.items():
            turns = [_turn(angles(pos, freqs), dtype) for pos in (here, there)]
            off = torch.view_as_real(turns[1] - exact[1]).abs().max()
            errors.error[way].append(_number(off))
            for scores, keys in ((errors.drift, 1), (errors.far, 0)):
                true = ((q * exact[1]) @ (k * exact[keys]).mH).real
                change = ((q * turns[1]) @ (k * turns[keys]).mH).real - true
                scores[way].append(_number(change.norm() / true.norm()))
    return errors


def _turn(angle: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute cos + i sin, as exactly as the angle is, and keep it in `dtype`."""
    return torch.complex(angle.cos().to(dtype).double(), angle.sin().to(dtype).double())


def _number(value: Tensor) -> float | None:
    return float(value) if isfinite(value) else None
