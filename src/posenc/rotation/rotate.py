"""Rotate the channel pairs of queries and keys, by the formula or by a faster equal kernel.

    (a, b) → (a cos − b sin, b cos + a sin)        for each pair, in float32, rounded once

A rotation reads and writes its input once, so it cannot be faster than a copy. `kernel_for` chooses
the fastest kernel for the layout, size, dtype and device. The gradient is a rotation by −θ, so only
cos and sin are saved; the input is saved too if these are learned.
"""

import torch
from torch import Tensor

from posenc.core.frequencies import Layout, join, split
from posenc.core.shapes import Heads, Keys, PerHead
from posenc.rotation import torch_kernels
from posenc.rotation.kernels import kernel_for, load_numba, load_triton
from posenc.rotation.table import Turn, copied

ON_CPU = {
    "complex": torch_kernels.by_complex,
    "halves": torch_kernels.by_halves,
    "numba": lambda *arguments: load_numba().by_numba(*arguments),
}


def rotate(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """Rotate every channel pair of `x` in float32, and round once to the dtype of `x`.

    - `x`: queries or keys, (batch, head, token, channel)
    - `by`: cos and sin of the angles, the result of `posenc.turn`
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + d/2
    - `start`: first rotated channel; `by` sets the number; None: all channels are rotated

    Returns a new tensor like `x`. Raises ValueError if `by` has other tokens, heads or channels.

    >>> from posenc import frequencies, positions, turn
    >>> q = torch.ones(1, 1, 2, 2)
    >>> rotate(q, turn(positions.sequence(2), frequencies(2)), "interleaved")[0, 0]
    tensor([[ 1.0000,  1.0000],
            [-0.3012,  1.3818]])

    Su et al. 2021, arXiv:2104.09864, eq. 34.
    """
    kernel = kernel_for(x, by, layout, start)
    if kernel == "formula":
        return formula(x, by, layout, start)
    if (x.requires_grad or by.cos.requires_grad) and torch.is_grad_enabled():
        return _Rotation.apply(kernel, layout, start, *by, x)
    return _run(kernel, x, by, layout, start)


def rotate_keys(k: Keys, by: Turn, layout: Layout, start: int | None = None) -> PerHead:
    """Rotate each key by the angles at its position.

    If positions differ between query heads, each query head gets a copy of its key.
    """
    return rotate(copied(k, by.cos), by, layout, start)


def formula(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """Rotate by plain torch operations; every kernel must equal this function.

    The halves are rounded before they are joined, because this is faster when compiled.
    """
    if start is not None:
        stop = start + 2 * by.cos.shape[-1]
        turned = formula(x[..., start:stop], by, layout)
        return torch.cat((x[..., :start], turned, x[..., stop:]), -1)
    a, b = split(x, layout)
    first, second = a * by.cos - b * by.sin, b * by.cos + a * by.sin
    return join(first.to(x.dtype), second.to(x.dtype), layout)


def _run(kernel: str, x: Tensor, by: Turn, layout: Layout, start: int | None) -> Tensor:
    if kernel == "triton":
        return load_triton().by_triton(x, by, layout, start)
    if start is None:
        return ON_CPU[kernel](x, by)
    out, stop = torch.empty_like(x), start + 2 * by.cos.shape[-1]
    for unturned in (slice(0, start), slice(stop, None)):
        out[..., unturned] = x[..., unturned]
    ON_CPU[kernel](x[..., start:stop], by, out[..., start:stop])
    return out


class _Rotation(torch.autograd.Function):
    """A rotation whose gradient is the inverse rotation, so that only cos and sin are saved.

    If cos and sin are learned, the input is saved too: a rotated pair is z·(cos + i sin), and the
    gradient of cos + i sin is z̄ times the gradient of the rotated pair.
    """

    @staticmethod
    def forward(ctx, kernel, layout, start, cos, sin, x):  # type: ignore[override]
        ctx.save_for_backward(cos, sin, *((x,) if cos.requires_grad else ()))
        ctx.how = layout, start
        return _run(kernel, x, Turn(cos, sin), layout, start)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        cos, sin, *turned = ctx.saved_tensors
        layout, start = ctx.how
        of_table = None, None
        if turned:
            stop = None if start is None else start + 2 * cos.shape[-1]
            z, of_z = (_pairs(x[..., start:stop], layout) for x in (turned[0], grad))
            of_both = (z.conj() * of_z).sum_to_size(cos.shape)
            of_table = of_both.real, of_both.imag
        return None, None, None, *of_table, rotate(grad, Turn(cos, -sin), layout, start)


def _pairs(x: Heads, layout: Layout) -> Tensor:
    """Return pairs of channels as complex numbers, (…, token, pair), without a copy if possible."""
    x = x.float()
    strides = (*x.stride()[:-1], x.storage_offset())
    if layout == "interleaved" and x.stride(-1) == 1 and not any(n % 2 for n in strides):
        return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.complex(*split(x, layout))
