"""Frequencies θ, in radians per unit of position, and the angles and pairs made from them.

    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1        angle(p, j) = p · θⱼ

A vector (pair,) turns by a number; a matrix (axis, pair) turns by a point, summing over its axes.
θ is a constant in float64 on the CPU, outside parameters and buffers, so that no cast rounds it.
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.positions import exact
from posenc.shapes import Frequencies, Heads, Points, Positions

Layout = Literal["interleaved", "half"]
LAYOUTS = {  # where the two channels of a pair sit: (unflattened shape, axis of the pair)
    "interleaved": ((-1, 2), -1),  # x₀x₁ x₂x₃ …   the papers, GPT-J, Llama as Meta ships it
    "half": ((2, -1), -2),  # x₀…x_{d/2−1} with x_{d/2}…   tensor2tensor, GPT-NeoX, transformers
}


def frequencies(dim: int, base: float = 10_000.0) -> Frequencies:
    """θ for `dim` channels, fastest first.

    >>> frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"channels turn in pairs: `dim` must be even and at least 2, got {dim}.")
    if not 0 < base < float("inf"):
        raise ValueError(f"`base` must be a positive number, got {base}.")
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim)


def angles(pos: Positions | Points, freqs: Frequencies) -> Tensor:
    """p·θ of shape (*batch, token, pair), in float64, elementwise.

    In float32 a position of a million is already 0.05 radians off; in bfloat16, 257 is 256; and a
    matrix product would be rounded further by TF32 and autocast.
    """
    pos = exact(pos)
    if freqs.ndim == 2 and (pos.ndim < 2 or pos.shape[-1] != len(freqs)):
        raise ValueError(
            f"these frequencies have {len(freqs)} axes: `pos` must be points (…, token,"
            f" {len(freqs)}), as `positions.grid` makes them, got shape {tuple(pos.shape)}."
        )
    if pos.device.type == "mps":  # which has no float64
        pos = pos.cpu()
    angle = pos.double().unsqueeze(-1) * freqs.to(pos.device).double()
    return angle.sum(-2) if freqs.ndim == 2 else angle


def split(x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """The first and the second channel of every pair."""
    shape, axis = LAYOUTS[checked(layout)]
    first, second = x.unflatten(-1, shape).unbind(axis)
    return first, second


def join(first: Tensor, second: Tensor, layout: Layout) -> Tensor:
    """The inverse of `split`."""
    return torch.stack((first, second), LAYOUTS[checked(layout)][1]).flatten(-2)


def one_each(x: Heads, by: Tensor) -> None:
    """Refuses a table (*batch, 1, token, pair) that would broadcast over `x` in silence."""
    batch, tokens = by.shape[:-3], by.shape[-2]
    if x.shape[-2] != tokens or batch not in ((), (1,), x.shape[:1]):
        raise ValueError(
            f"`x` has {x.shape[-2]} tokens in a batch of {x.shape[0]}, the positions are for"
            f" {tokens} tokens in a batch of {batch[0] if batch else 1}: give each token its own."
        )


def checked(layout: Layout) -> Layout:
    if layout not in LAYOUTS:
        known = " or ".join(map(repr, LAYOUTS))
        raise ValueError(f"`layout` is where the channels of a pair sit: {known}, got {layout!r}.")
    return layout
