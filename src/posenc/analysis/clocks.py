"""Show each rotary pair as a clock with two hands: the rotated query and the rotated key.

    query at m        hand at m θ          key at n        hand at n θ
    m − n fixed       the angle from key to query is (m − n) θ at every n

Hands are computed by the hooks of the encoding, from vectors with (1, 0) in each pair.

Su et al. 2021, arXiv:2104.09864, eq. 11-14.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, cos, inf, pi, sin

import torch
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, split
from posenc.properties.probe import in_float64

Hand = tuple[float, float]
# The selected pairs, in sevenths of the way from the fastest pair to the slowest
SEVENTHS_SHOWN = 0, 1, 3, 7


@dataclass(frozen=True)
class Clock:
    """The rotations of a query and a key in one rotary pair, drawn as the two hands of a clock."""

    channels: tuple[int, int]
    theta: float  # radians per token, measured over one token
    query: list[Hand]
    key: list[Hand]
    changed: float  # largest change of the angle between them, in radians

    @property
    def wavelength(self) -> float:
        """The number of tokens per full turn of the pair; infinite if the pair is not rotated."""
        return 2 * pi / abs(self.theta) if self.theta else inf


@dataclass(frozen=True)
class Clocks:
    """The rotations of a key at several positions, and of a query `gap` tokens after each key."""

    gap: int
    position: list[int]  # position of the key, step by step
    clocks: list[Clock]  # from the fastest to the slowest


@torch.no_grad()
def clocks(encoding: Encoding, positions: Sequence[int], gap: int = 4) -> Clocks:
    """Return the rotations of a query and a key by position in four rotary pairs, fastest first."""
    encoding, pos = in_float64(encoding), torch.tensor(list(positions))
    channels = encoding.dim or 16
    pairs = channel_pairs(encoding, channels)
    shown = dict.fromkeys(pairs[n * (len(pairs) - 1) // 7] for n in SEVENTHS_SHOWN)
    vector = torch.zeros(1, encoding.heads or 1, len(pos), channels, dtype=torch.float64)
    vector[..., [first for first, _ in pairs]] = 1
    at_zero, at_one = (
        encoding.on_queries(vector[:, :, :1], encoding.prepare(torch.tensor([p])))[0, 0, 0]
        for p in (0, 1)
    )
    query = encoding.on_queries(vector, encoding.prepare(pos + gap))[0, 0]
    key = encoding.on_keys(vector, encoding.prepare(pos))[0, 0]
    return Clocks(
        gap,
        pos.tolist(),
        [
            _clock(
                (a, b),
                _hands(query, a, b),
                _hands(key, a, b),
                _turned(at_zero[[a, b]], at_one[[a, b]]),
            )
            for a, b in shown
        ],
    )


@torch.no_grad()
def angles(encoding: Encoding, positions: Sequence[int]) -> Tensor:
    """Return the angle by which each rotary pair is rotated at each position, (position, pair)."""
    encoding, pos = in_float64(encoding), torch.tensor(list(positions))
    channels = encoding.dim or 16
    first, second = (list(side) for side in zip(*channel_pairs(encoding, channels), strict=True))
    vector = torch.zeros(1, encoding.heads or 1, len(pos), channels, dtype=torch.float64)
    vector[..., first] = 1
    query = encoding.on_queries(vector, encoding.prepare(pos))[0, 0]
    return torch.atan2(query[:, second], query[:, first])


def channel_pairs(encoding: Encoding, channels: int) -> list[tuple[int, int]]:
    """Return the channels of each rotated pair, from fast to slow."""
    turned = getattr(encoding, "turned", channels)
    start = getattr(encoding, "start", None) or 0
    layout: Layout = getattr(encoding, "layout", "interleaved")
    first, second = split(torch.arange(start, start + turned), layout)
    return [*zip(first.tolist(), second.tolist(), strict=True)]


def _clock(pair: tuple[int, int], query: list[Hand], key: list[Hand], theta: float) -> Clock:
    angles = [_turned(k, q) for q, k in zip(query, key, strict=True)]
    changed = max(abs(_wrapped(angle - angles[0])) for angle in angles)
    return Clock(pair, theta, query, key, changed)


def _hands(rows: Tensor, first: int, second: int) -> list[Hand]:
    return [*zip(rows[:, first].tolist(), rows[:, second].tolist(), strict=True)]


def _turned(before: Hand | Tensor, after: Hand | Tensor) -> float:
    """Return the angle from one two-dimensional vector to another, −π … π."""
    (x, y), (u, v) = map(float, before), map(float, after)
    return atan2(x * v - y * u, x * u + y * v)


def _wrapped(angle: float) -> float:
    return atan2(sin(angle), cos(angle))
