"""Turn the channel pairs of queries and keys: one formula, and the fastest kernel equal to it.

    (a, b) → (a cos − b sin, b cos + a sin)        for each pair, in float32, rounded once

Queries and keys are read once and written once, so the limit is a copy of them; which kernel comes
nearest depends on layout, size, dtype and device: `kernel_for` chooses it. The inverse is the turn
by −θ, so gradients need cos and sin, and of what was turned only where these are learned.
"""

import torch
from torch import Tensor

from posenc.core.frequencies import Layout, join, split
from posenc.core.shapes import Heads, Keys
from posenc.rotation import torch_kernels
from posenc.rotation.dispatch import (
    kernel_for,
    load_numba,
    load_triton,
    prepared_for,
    same_kernel_fits,
)
from posenc.rotation.table import Ready, Turn

ON_CPU = {
    "complex": torch_kernels.by_complex,
    "complex blocks": torch_kernels.by_complex_blocks,
    "roll": torch_kernels.by_roll,
    "blocks": torch_kernels.by_blocks,
    "numba": lambda *arguments: load_numba().by_numba(*arguments),
}


def rotate(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """Turn every channel pair of `x`, in float32, and round once to the dtype of `x`.

    With `start`, as many channels as `by` turns, from there on; the others stay as they are.
    """
    if start is None and prepared_for(x, by, layout):
        return ON_CPU["complex" if layout == "interleaved" else "roll"](x, by)
    by = _without_stale_forms(by)
    kernel = kernel_for(x, by, layout, start)
    if kernel == "formula":
        return formula(x, by, layout, start)
    if (x.requires_grad or by.cos.requires_grad) and torch.is_grad_enabled():
        return _Rotation.apply(kernel, by, layout, start, *by, x)[0]
    return _run(kernel, (x,), by, layout, start)[0]


def rotate_both(
    q: Heads, k: Keys, by: Turn, layout: Layout, start: int | None = None
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys of the same tokens: in one launch on CUDA, few calls if small.

    Without gradients, what it returns may be two views of one tensor.
    """
    by = _without_stale_forms(by)
    kernel = kernel_for(q, by, layout, start)
    learned = q.requires_grad or k.requires_grad or by.cos.requires_grad
    learns = learned and torch.is_grad_enabled()
    if kernel == "formula" or (kernel == "roll" and learns) or not same_kernel_fits(q, k, by):
        return rotate(q, by, layout, start), rotate(k, by, layout, start)
    if learns:
        return _Rotation.apply(kernel, by, layout, start, *by, q, k)
    first, second = _run(kernel, (q, k), by, layout, start)
    return first, second


def rotate_(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """Rotate in place, over `x`: for inference, where a copy is one too many."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("`x` needs gradients and cannot be overwritten: use `rotate`.")
    if kernel_for(x, by, layout, start) == "triton" and x.stride(-1) == 1:
        return load_triton().rotate_tensors((x,), by, layout, start, in_place=True)[0]
    return x.copy_(rotate(x, by, layout, start))


def formula(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """The definition that every kernel equals.

    Halves are rounded before they are joined: compiled, that is faster.
    """
    if start is not None:
        stop = start + 2 * by.cos.shape[-1]
        turned = formula(x[..., start:stop], by, layout)
        return torch.cat((x[..., :start], turned, x[..., stop:]), -1)
    a, b = split(x, layout)
    first, second = a * by.cos - b * by.sin, b * by.cos + a * by.sin
    return join(first.to(x.dtype), second.to(x.dtype), layout)


def _without_stale_forms(by: Turn) -> Turn:
    """Drop the precomputed forms of `Ready` if cos or sin were written to after they were made."""
    if torch.compiler.is_compiling() or type(by) is not Ready or not by.edited:
        return by
    return Turn(*by)


def _run(
    kernel: str, tensors: tuple[Tensor, ...], by: Turn, layout: Layout, start: int | None
) -> tuple[Tensor, ...]:
    if kernel == "triton":
        return load_triton().rotate_tensors(tensors, by, layout, start)
    if start is None:
        if kernel == "roll" and len(tensors) == 2:
            heads = tensors[0].shape[1], tensors[1].shape[1]
            return torch_kernels.by_roll(torch.cat(tensors, 1), by).split_with_sizes(heads, 1)
        run_kernel = ON_CPU[kernel]
        return tuple([run_kernel(x, by) for x in tensors])
    outputs, stop = tuple(torch.empty_like(x) for x in tensors), start + 2 * by.cos.shape[-1]
    for x, out in zip(tensors, outputs, strict=True):
        for unturned in (slice(0, start), slice(stop, None)):
            out[..., unturned] = x[..., unturned]
        ON_CPU[kernel](x[..., start:stop], by, out[..., start:stop])
    return outputs


class _Rotation(torch.autograd.Function):
    """A rotation whose gradient is turned the other way, so that only cos and sin are saved.

    Where cos and sin are learned, what was turned is saved too: a turned pair is z·(cos + i sin),
    and the gradient of cos + i sin is z̄ times that of the turned pair.
    """

    @staticmethod
    def forward(ctx, kernel, by, layout, start, cos, sin, *tensors):  # type: ignore[override]
        ctx.save_for_backward(cos, sin, *(tensors if cos.requires_grad else ()))
        ctx.how = layout, start
        return _run(kernel, tensors, by, layout, start)

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[override]
        cos, sin, *tensors = ctx.saved_tensors
        back, (layout, start) = Turn(cos, -sin), ctx.how
        of_table = None, None
        if tensors:
            stop = None if start is None else start + 2 * cos.shape[-1]
            each = [
                _pairs(x[..., start:stop], layout).conj() * _pairs(grad[..., start:stop], layout)
                for x, grad in zip(tensors, grads, strict=True)
            ]
            of_both = torch.stack([z.sum_to_size(cos.shape) for z in each]).sum(0)
            of_table = of_both.real, of_both.imag
        if len(grads) == 1:
            turned = (rotate(grads[0], back, layout, start),)
        else:
            turned = rotate_both(grads[0], grads[1], back, layout, start)
        return None, None, None, None, *of_table, *turned


def _pairs(x: Heads, layout: Layout) -> Tensor:
    """Pairs of channels as complex numbers, (…, token, pair): a view, where strides allow."""
    x = x.float()
    strides = (*x.stride()[:-1], x.storage_offset())
    if layout == "interleaved" and x.stride(-1) == 1 and not any(n % 2 for n in strides):
        return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.complex(*split(x, layout))
