"""CUDA kernel of the rotation in Triton, which reads and writes each number once.

    grid (block of tokens, head, text of the batch); one program rotates a few tokens of one head by
    their rows of cos and sin, and copies the channels that are not rotated

If the tables have one head or one text, their stride along that axis is 0. Products and sums are
rounded separately (no fused multiply-add), as in the other kernels.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
import warnings
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from posenc.core.frequencies import Layout
from posenc.rotation.table import Turn

# Numbers of one program, a power of 2.
NUMBERS = 2048


@triton.jit
def _kernel(
    x, out, cos, sin, tokens,
    x_batch, x_head, x_token,
    out_batch, out_head, out_token,
    table_batch, table_head, table_token,
    START: tl.constexpr, PAIRS: tl.constexpr, CHANNELS: tl.constexpr,
    INTERLEAVED: tl.constexpr, COPY: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    text = tl.program_id(2).to(tl.int64)
    token = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    there = token < tokens
    x += text * x_batch + head * x_head + token * x_token
    out += text * out_batch + head * out_head + token * out_token
    pair = tl.arange(0, COLUMNS)[None, :]
    seen = there & (pair < PAIRS)
    # The stride is 0 along an axis that a table shares
    at = text * table_batch + head * table_head + token * table_token + pair
    c = tl.load(cos + at, mask=seen, other=0.0)
    s = tl.load(sin + at, mask=seen, other=0.0)
    # Contiguous reads of whole rows are fast; pairs are split in registers
    if INTERLEAVED:
        channel = tl.arange(0, 2 * COLUMNS)[None, :]
        own_channels = there & (channel < 2 * PAIRS)
        row = tl.load(x + START + channel, mask=own_channels, other=0.0).to(tl.float32)
        a, b = tl.split(tl.reshape(row, (ROWS, COLUMNS, 2)))
        turned = tl.reshape(tl.join(a * c - b * s, b * c + a * s), (ROWS, 2 * COLUMNS))
        tl.store(out + START + channel, turned.to(out.dtype.element_ty), mask=own_channels)
    else:
        a = tl.load(x + START + pair, mask=seen, other=0.0).to(tl.float32)
        b = tl.load(x + START + PAIRS + pair, mask=seen, other=0.0).to(tl.float32)
        tl.store(out + START + pair, (a * c - b * s).to(out.dtype.element_ty), mask=seen)
        tl.store(out + START + PAIRS + pair, (b * c + a * s).to(out.dtype.element_ty), mask=seen)
    # Copy the channels before START and after the pairs
    if COPY:
        index = tl.arange(0, WIDE)[None, :]
        copied = there & (index < CHANNELS) & ((index < START) | (index >= START + 2 * PAIRS))
        tl.store(out + index, tl.load(x + index, mask=copied, other=0.0), mask=copied)


def by_triton(x: Tensor, by: Turn, layout: Layout, start: int | None) -> Tensor:
    """Rotate `x` on CUDA by tables in float32."""
    if x.numel() == 0:
        return x.clone()
    x = x if x.stride(-1) == 1 else x.contiguous()
    out = torch.empty_like(x)
    if out.stride(-1) != 1:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    cos, sin = by
    if cos.stride() != sin.stride() or cos.stride(-1) != 1:
        cos, sin = (t.contiguous() for t in torch.broadcast_tensors(*by))
    batch, heads, tokens, channels = x.shape
    pairs = cos.shape[-1]
    columns = triton.next_power_of_2(pairs)
    rows = max(1, min(NUMBERS // (2 * columns), triton.next_power_of_2(tokens)))
    _kernel[triton.cdiv(tokens, rows), heads, batch](
        x, out, cos, sin, tokens,
        *x.stride()[:3], *out.stride()[:3], *cos.expand(*x.shape[:3], -1).stride()[:3],
        START=start or 0, PAIRS=pairs, CHANNELS=channels,
        INTERLEAVED=layout == "interleaved", COPY=channels != 2 * pairs,
        ROWS=rows, COLUMNS=columns, WIDE=triton.next_power_of_2(channels),
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


@cache
def usable() -> bool:
    """Test whether the kernel runs; Triton needs a C compiler, which some machines lack."""
    try:
        x, table = torch.zeros(1, 1, 1, 2, device="cuda"), torch.zeros(1, 1, 1, device="cuda")
        by_triton(x, Turn(table, table), "half", None)
    except Exception as error:
        warnings.warn(
            "posenc rotates queries and keys with plain tensor operations, several times slower,"
            f" because Triton does not work here: {error} Install a C compiler, or set the"
            " environment variable `CC` to the path of one.",
            stacklevel=2,
        )
        return False
    return True
