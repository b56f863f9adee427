"""Rotation frequencies θ in radians per unit of position, angles p·θ, and channel pairs.

    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1        angle(p, j) = p · θⱼ

Positions that are numbers need a vector (pair,). Positions that are points need a matrix (axis,
pair); their angles are summed over the axes. θ is a constant in float64 on the CPU, outside of
parameters and buffers, so that no cast rounds it.
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
LAYOUTS = {  # arrangement of the two channels of a pair: (unflattened shape, axis of the pair)
    "interleaved": ((-1, 2), -1),  # x₀x₁ x₂x₃ …   the papers, GPT-J, Llama as Meta ships it
    "half": ((2, -1), -2),  # x₀…x_{d/2−1} with x_{d/2}…   tensor2tensor, GPT-NeoX, transformers
}


def frequencies(dim: int, base: float = 10_000.0) -> Frequencies:
    """Return RoPE's frequencies θⱼ = base^(−2j/dim), j = 0 … dim/2 − 1, in radians per token.

    - `dim`: channels that are rotated in pairs, an even number
    - `base`: base of θ, 10,000 by default

    Raises ValueError if `dim` is odd or `base` is not positive.

    >>> frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    room("θ", paired(dim, "dim"))
    index = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu")
    return positive(base, "base") ** (-index / dim)


BASE = 10_000.0  # base of Vaswani et al., and of RoPE


def theta(freqs: int | Frequencies, base: float | None = None) -> Frequencies:
    """Check frequencies and return them; if `freqs` is an int, return RoPE's frequencies.

    The int is the number of channels.
    """
    if not isinstance(freqs, Tensor):
        return frequencies(freqs, BASE if base is None else base)
    if base is not None:
        raise ValueError(
            f"`base` must be None if `freqs` is a tensor of frequencies, got {brief(base)}. Leave"
            f" out `base`, or pass a number of channels instead, `RoPE(64, base={brief(base)})`."
        )
    if freqs.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"`freqs` must have the dtype float64, or float32 if learned, got {freqs.dtype}. Use"
            " `posenc.frequencies`, which returns float64."
        )
    if freqs.ndim not in (1, 2) or not freqs.numel():
        raise ValueError(
            "`freqs` must be a vector (pair,) or a matrix (axis, pair) with at least one frequency,"
            f" got shape {tuple(freqs.shape)}. Pass `posenc.frequencies(64)`, for instance."
        )
    if has_values(freqs) and not freqs.isfinite().all():
        raise ValueError("`freqs` must be finite numbers, in radians per unit of position.")
    return freqs


def base_of(freqs: Frequencies) -> str:
    """Format the base of frequencies for `repr`, or "" if they are not powers of one base.

    >>> base_of(frequencies(64, 500_000.0)), base_of(torch.tensor([1.0, 0.3, 0.2]).double())
    (', base=500000', '')
    """
    if freqs.is_meta:
        return ""
    rows = freqs.detach().double().cpu()
    # With several axes, either all rows together (M-RoPE) or each row (axial) hold the powers
    for row in [rows] if rows.ndim == 1 else [rows.sum(0), rows[0][rows[0] != 0]]:
        if len(row) > 1 and 0 < row[1] < row[0]:
            base = float(f"{row[1].item() ** -len(row):.10g}")
            # p-RoPE has θ = 0 for pairs that are not rotated
            powers = frequencies(2 * len(row), base).where(row != 0, 0.0)
            if torch.allclose(row, powers, rtol=1e-9):
                return f", base={base:.10g}"
    return ""


def angles(pos: Positions | Points, freqs: Frequencies) -> Tensor:
    """Return the angles p·θ, (*batch, token, pair), in float64, by elementwise products.

    In float32 the angle of position one million is off by 0.05 radians; in bfloat16, 257 is rounded
    to 256; TF32 and autocast would also round a matrix product.
    """
    pos = exact(pos)
    if not isinstance(freqs, Tensor) or not freqs.is_floating_point():
        got = freqs.dtype if isinstance(freqs, Tensor) else brief(freqs)
        raise TypeError(
            f"`freqs` must be a floating-point tensor of frequencies, got {got}. Pass"
            " `posenc.frequencies(dim)`."
        )
    if freqs.ndim == 2:
        refuse_other_axes(pos, len(freqs), "these frequencies have")
    if freqs.is_meta and not pos.is_meta:
        raise ValueError(
            "`freqs` must have values, got a tensor on the meta device. Load the weights"
            " before you call `prepare`."
        )
    # MPS does not support float64
    if pos.device.type == "mps":
        pos = pos.cpu()
    angle = pos.double().unsqueeze(-1) * freqs.to(pos.device).double()
    return angle.sum(-2) if freqs.ndim == 2 else angle


def split(x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Split x into the first and the second channels of its rotary pairs, each (…, pair)."""
    shape, axis = LAYOUTS[checked(layout)]
    first, second = x.unflatten(-1, shape).unbind(axis)
    return first, second


def join(first: Tensor, second: Tensor, layout: Layout) -> Tensor:
    """Join the first and second channels of all pairs in one tensor, the inverse of `split`."""
    return torch.stack((first, second), LAYOUTS[checked(layout)][1]).flatten(-2)


def for_heads(table: Tensor) -> Tensor:
    """Insert an axis of heads, so that a table (…, token, pair) broadcasts to all heads.

    A table per head, (batch, head, token, pair), is returned unchanged.
    """
    return table if table.ndim == 4 else table.unsqueeze(-3)


def refuse_broadcast(x: Heads, by: Tensor) -> None:
    """Raise ValueError if a table (*batch, 1 or head, token, pair) does not broadcast to x."""
    batch, heads, tokens = by.shape[:-3], by.shape[-3], by.shape[-2]
    if len(batch) > 1:
        raise ValueError(not_positions((*batch, tokens)))
    if x.shape[-2] != tokens or batch not in ((), (1,), x.shape[:1]):
        raise ValueError(
            f"the positions must be for {x.shape[-2]} tokens in a batch of {x.shape[0]}, like `x`,"
            f" got {tokens} tokens in a batch of {batch[0] if batch else 1}. Pass one position per"
            " token."
        )
    # In a trace, `heads in (1, n)` would miss an equal symbol
    if heads != 1 and heads != x.shape[-3]:
        raise ValueError(
            f"the positions or frequencies must be for 1 head or for the {x.shape[-3]} heads of"
            f" `x`, got {heads} heads. Repeat the heads of `x` with `repeat_interleave`, or use"
            " positions and frequencies for 1 head."
        )


def not_positions(shape: Sequence[int]) -> str:
    """Return the error message for positions with too many axes."""
    return (
        "`pos` must be (token,), (batch, token) or, for positions per head, (batch, head, token),"
        f" with one more axis if positions are points, got {tuple(shape)}. Remove the other axes."
    )


def checked(layout: Layout) -> Layout:
    if not isinstance(layout, str) or layout not in LAYOUTS:
        known = " or ".join(map(repr, LAYOUTS))
        got = brief(layout)
        raise ValueError(f"`layout` must be {known}, got {got}.")
    return layout
