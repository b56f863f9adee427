"""Measure the errors of angles computed in low precision, and of the scores computed from them.

    error         max | cos′ − cos |, | sin′ − sin |   over pairs, and a window of positions
    drift, far    √ mean (score′ − score)² / √ mean score²     of random q at m and k at n

For `drift` both are in the window, and a score should not change if the window is shifted, because
it depends on m − n only. For `far` the keys are at the beginning of the text. bfloat16 positions
skip whole numbers above 256, so neighbouring tokens get equal or wrong positions. bfloat16
frequencies are off by up to one part in 256, which changes near scores little and far scores
completely. The error of cos and sin in bfloat16 is the same at all positions. posenc computes
angles in float64 and rounds cos and sin once.

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
    """Return a function that rounds frequencies and positions to two dtypes and multiplies them."""
    return lambda p, theta: p.to(pos).float().unsqueeze(-1) * theta.to(freqs).float()


def _exact(p: Tensor, theta: Tensor) -> Tensor:
    return p.double().unsqueeze(-1) * theta.double()


# Functions for angles, and the dtype of cos and sin
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
    """RoPE's errors in texts that start at several positions, for each choice of dtypes in `WAYS`.

    NaN is stored as None.
    """

    position: list[int]
    error: dict[str, list[float | None]]  # largest error of cos and sin
    drift: dict[str, list[float | None]]  # relative error of scores within the window
    far: dict[str, list[float | None]]  # relative error of scores with keys at 0, 1, 2, …


def precision(
    freqs: Frequencies, positions: Sequence[int] = tuple(POSITIONS), seed: int = 0
) -> Precision:
    """Measure the errors of RoPE's angles, and of scores of random q and k, at low precision."""
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
    """Return cos + i sin of `angle`, computed in the dtype of `angle` and rounded to `dtype`."""
    return torch.complex(angle.cos().to(dtype).double(), angle.sin().to(dtype).double())


def _number(value: Tensor) -> float | None:
    return float(value) if isfinite(value) else None
