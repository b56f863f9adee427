"""RoPE: turn each pair of channels by an angle proportional to the token's position.

    rope(x, p)ⱼ = xⱼ · exp(i p θⱼ)          x read as d/2 complex numbers
    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1     radians per token

The dot product of a query at m and a key at n then depends on m − n only:

    ⟨rope(q, m), rope(k, n)⟩ = Re Σⱼ qⱼ k̄ⱼ exp(i (m − n) θⱼ)

Lengths stay as they are, nothing is learned, and any position will do; that scores fall with
distance is only an upper bound: a key turned by r tokens beforehand is found best r tokens away.

Su et al. 2021, "RoFormer", arXiv:2104.09864, eq. 14-16 and 34.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.card import Card, Paper
from posenc.encoding import Encoding
from posenc.properties import (
    any_length,
    bounded,
    length_independent,
    linear_shift,
    norm_constant,
    norm_preserving,
    order_sensitive,
    shift_invariant,
    unique_positions,
)
from posenc.shapes import Frequencies, Heads, Points, Positions
from posenc.theta import Layout, angles, checked, frequencies, join, one_each, split


class Turn(NamedTuple):
    """How each pair turns, shape (*batch, 1 or head, token, pair); 1: the same for all heads."""

    cos: Tensor
    sin: Tensor


def turn(pos: Positions | Points, freqs: Frequencies, gain: float | Tensor = 1.0) -> Turn:
    """gain · cos and gain · sin of p·θ, formed in float64 and rounded once."""
    angle = angles(pos, freqs)
    cos, sin = ((gain * f(angle)).float().to(pos.device) for f in (torch.cos, torch.sin))
    return Turn(cos.unsqueeze(-3), sin.unsqueeze(-3))


def rotate(x: Heads, by: Turn, layout: Layout) -> Heads:
    """Turn every channel pair of `x`, in float32, and round once to the dtype of `x`."""
    if x.shape[-1] != 2 * by.cos.shape[-1]:
        turned = 2 * by.cos.shape[-1]
        raise ValueError(f"the frequencies turn {turned} channels, `x` has {x.shape[-1]}.")
    one_each(x, by.cos)
    a, b = split(x, layout)
    return join(a * by.cos - b * by.sin, a * by.sin + b * by.cos, layout).to(x.dtype)


class RoPE(Encoding):
    """`RoPE(64)`, or with other frequencies: `RoPE(frequencies(64, base=500_000.0))`.

    Partial: `RoPE(16, dim=64)` turns the first 16 of 64 channels and leaves the rest to content;
    with `trailing=True` it turns the last 16, as DeepSeek's heads do.
    """

    def __init__(
        self,
        freqs: int | Frequencies,
        dim: int | None = None,
        gain: float = 1.0,
        layout: Layout = "interleaved",
        trailing: bool = False,
        logit_gain: float = 1.0,
    ):
        """An nn.Parameter as `freqs` is learned. `gain` scales what turns, as YaRN needs, and
        `logit_gain` the softmax scale of all channels, as DeepSeek does.

        A matrix (axis, pair) as `freqs` turns by points: see `posenc.rotary.axial`.
        """
        super().__init__()
        self.freqs = frequencies(freqs) if isinstance(freqs, int) else freqs
        self.turned = 2 * self.freqs.shape[-1]
        self.dim = self.turned if dim is None else dim
        if self.dim < self.turned:
            raise ValueError(f"the frequencies turn {self.turned} channels, `dim` is {self.dim}.")
        self.axes = 1 if self.freqs.ndim == 1 else len(self.freqs)
        self.gain, self.logit_gain, self.trailing = gain, logit_gain, trailing
        self.layout: Layout = checked(layout)

    def prepare(self, pos: Positions | Points) -> Turn:
        return turn(pos, self.freqs, self.gain)

    def on_queries(self, q: Heads, at: Turn) -> Heads:
        if q.shape[-1] != self.dim:
            raise ValueError(f"this RoPE is for heads of {self.dim} channels, got {q.shape[-1]}.")
        if self.trailing:
            rest, last = q.split((self.dim - self.turned, self.turned), -1)
            return torch.cat((rest, rotate(last, at, self.layout)), -1)
        first, rest = q.split((self.turned, self.dim - self.turned), -1)
        return torch.cat((rotate(first, at, self.layout), rest), -1)

    def on_keys(self, k: Heads, at: Turn) -> Heads:
        return self.on_queries(k, at)

    def scale(self, dim: int) -> float:
        return super().scale(dim) * self.logit_gain

    def extra_repr(self) -> str:
        which = "last" if self.trailing else "first"
        part = "" if self.turned == self.dim else f"{which} {self.turned} of "
        return f"{part}{self.dim} channels, layout={self.layout!r}, gain={self.gain:g}"


SU = Paper(
    key="su2021roformer",
    title="RoFormer: Enhanced Transformer with Rotary Position Embedding",
    authors="Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo"
    " and Liu, Yunfeng",
    year=2021,
    arxiv="2104.09864",
)

HOLDS = frozenset(  # of all rotations, whatever their frequencies
    {unique_positions, bounded, norm_constant, linear_shift, shift_invariant}
    | {norm_preserving, any_length, length_independent, order_sensitive}
)

CARD = Card(
    name="RoPE",
    paper=SU,
    make=lambda dim, heads, **options: RoPE(dim, **options),
    holds=HOLDS,
)
