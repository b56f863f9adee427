"""Frequencies θ, in radians per unit of position, and the angles and pairs made from them.

    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1        angle(p, j) = p · θⱼ

A vector (pair,) turns by a number; a matrix (axis, pair) turns by a point, summing over its axes.
θ is a constant in float64 on the CPU, outside parameters and buffers, so that no cast rounds it.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from posenc.compat.tracing import has_values
from posenc.core.positions import exact, refuse_other_axes
from posenc.core.shapes import Frequencies, Heads, Points, Positions
from posenc.support.arguments import brief, paired, positive, room

Layout = Literal["interleaved", "half"]
LAYOUTS = {  # where the two channels of a pair sit: (unflattened shape, axis of the pair)
    "interleaved": ((-1, 2), -1),  # x₀x₁ x₂x₃ …   the papers, GPT-J, Llama as Meta ships it
    "half": ((2, -1), -2),  # x₀…x_{d/2−1} with x_{d/2}…   tensor2tensor, GPT-NeoX, transformers
}


def frequencies(dim: int, base: float = 10_000.0) -> Frequencies:
    """Return θ, (pair,) in float64 and in radians per token, fastest first: base^(−2j/dim).

    - `dim`: channels that turn in pairs, an even number
    - `base`: base of θ, 10,000 by default

    Raises ValueError for an odd `dim`, or a `base` that is not positive.

    >>> frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    room("θ", paired(dim, "dim"))
    index = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu")
    return positive(base, "base") ** (-index / dim)


BASE = 10_000.0  # base of Vaswani et al., and of RoPE


def theta(freqs: int | Frequencies, base: float | None = None) -> Frequencies:
    """Check frequencies and return them; of a number of channels, make their θ."""
    if not isinstance(freqs, Tensor):
        return frequencies(freqs, BASE if base is None else base)
    if base is not None:
        raise ValueError(
            f"`base` makes the frequencies of so many channels, and these are made already: pass"
            f" the number with it, `RoPE(64, base={brief(base)})`, or the frequencies alone."
        )
    if freqs.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"`freqs` must be float64, or float32 where they are learned, got {freqs.dtype}: make"
            " them with `posenc.frequencies`."
        )
    if freqs.ndim not in (1, 2) or not freqs.numel():
        raise ValueError(
            "`freqs` must be a vector (pair,) or a matrix (axis, pair), and not empty, got shape"
            f" {tuple(freqs.shape)}: for `dim` channels pass the number alone."
        )
    if has_values(freqs) and not freqs.isfinite().all():
        raise ValueError("`freqs` must be finite numbers, in radians per unit of position.")
    return freqs


def base_of(freqs: Frequencies) -> str:
    """The base of these frequencies, as reprs show it; "" where they are not powers of one base.

    >>> base_of(frequencies(64, 500_000.0)), base_of(torch.tensor([1.0, 0.3, 0.2]).double())
    (', base=500000', '')
    """
    if freqs.is_meta:
        return ""
    rows = freqs.detach().double().cpu()
    # of several axes, either together (M-RoPE) or each by itself (axial) they are one row of powers
    for row in [rows] if rows.ndim == 1 else [rows.sum(0), rows[0][rows[0] != 0]]:
        if len(row) > 1 and 0 < row[1] < row[0]:
            base = float(f"{row[1].item() ** -len(row):.10g}")
            # p-RoPE's pairs that do not turn keep θ = 0
            powers = frequencies(2 * len(row), base).where(row != 0, 0.0)
            if torch.allclose(row, powers, rtol=1e-9):
                return f", base={base:.10g}"
    return ""


def angles(pos: Positions | Points, freqs: Frequencies) -> Tensor:
    """The angles p·θ, (*batch, token, pair), in float64, elementwise.

    In float32 a position of a million is already 0.05 radians off; in bfloat16, 257 is 256; and a
    matrix product would be rounded further by TF32 and autocast.
    """
    pos = exact(pos)
    if not isinstance(freqs, Tensor) or not freqs.is_floating_point():
        got = freqs.dtype if isinstance(freqs, Tensor) else brief(freqs)
        raise TypeError(
            f"`freqs` must be a tensor of frequencies, real numbers, got {got}: pass"
            " `posenc.frequencies(dim)`."
        )
    if freqs.ndim == 2:
        refuse_other_axes(pos, len(freqs), "these frequencies have")
    if freqs.is_meta and not pos.is_meta:
        raise ValueError(
            "the learned frequencies are on the meta device and have no values: load them before"
            " positions are prepared."
        )
    # MPS has no float64
    if pos.device.type == "mps":
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


def for_heads(table: Tensor) -> Tensor:
    """View (…, token, pair) as (…, 1, token, pair), which serves all heads.

    A table of positions for each head, (batch, head, token, pair), has that axis already.
    """
    return table if table.ndim == 4 else table.unsqueeze(-3)


def refuse_broadcast(x: Heads, by: Tensor) -> None:
    """Refuse a table (*batch, 1 or head, token, pair) that would broadcast in silence."""
    batch, heads, tokens = by.shape[:-3], by.shape[-3], by.shape[-2]
    if len(batch) > 1:
        raise ValueError(not_positions((*batch, tokens)))
    if x.shape[-2] != tokens or batch not in ((), (1,), x.shape[:1]):
        raise ValueError(
            f"`x` has {x.shape[-2]} tokens in a batch of {x.shape[0]}, the positions are for"
            f" {tokens} tokens in a batch of {batch[0] if batch else 1}: give each token its own."
        )
    # In a trace, `heads in (1, n)` would miss an equal symbol
    if heads != 1 and heads != x.shape[-3]:
        raise ValueError(
            f"the positions or frequencies are for {heads} heads, `x` has {x.shape[-3]}: repeat its"
            " heads."
        )


def not_positions(shape: Sequence[int]) -> str:
    """The message about a tensor of a shape that positions never have."""
    return (
        "`pos` must be (token,), (batch, token), or (batch, head, token) where heads stand"
        f" elsewhere, with one more axis where positions are points, got {tuple(shape)}: take away"
        " the axes that are too many."
    )


def checked(layout: Layout) -> Layout:
    if not isinstance(layout, str) or layout not in LAYOUTS:
        known = " or ".join(map(repr, LAYOUTS))
        got = brief(layout)
        raise ValueError(f"`layout` is where the channels of a pair sit: {known}, got {got}.")
    return layout
