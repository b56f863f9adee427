"""Turning the channel pairs of queries and keys: one formula, and the fastest path equal to it.

    (a, b) → (a cos − b sin, b cos + a sin)        for each pair, in float32, rounded once

Queries and keys are read once and written once, so the limit is a copy of them; which path comes
nearest depends on layout, size, dtype and device, and `path_of` says which is taken. Going back is
turning the other way: gradients need cos and sin, and nothing of what was turned.
"""

import torch
from torch import Tensor

from posenc.core.frequencies import Layout, join, split
from posenc.core.shapes import Heads, Keys
from posenc.rotation import torch_kernels
from posenc.rotation.dispatch import alike, fast, kernel, path_of
from posenc.rotation.table import Ready, Turn

ON_CPU = {
    "complex": torch_kernels.by_complex,
    "complex blocks": torch_kernels.by_complex_blocks,
    "roll": torch_kernels.by_roll,
    "blocks": torch_kernels.by_blocks,
    "numba": lambda *given: fast().by_numba(*given),
}


def rotate(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """Turn every channel pair of `x`, in float32, and round once to the dtype of `x`.

    With `start`, as many channels as `by` turns, from there on; the others stay as they are.
    """
    by = _as_it_is(by)
    path = path_of(x, by, layout, start)
    if path == "formula":
        return formula(x, by, layout, start)
    if x.requires_grad and torch.is_grad_enabled():
        return _Rotation.apply(path, by, layout, start, x)[0]
    return _run(path, (x,), by, layout, start)[0]


def rotate_both(
    q: Heads, k: Keys, by: Turn, layout: Layout, start: int | None = None
) -> tuple[Tensor, Tensor]:
    """`rotate` of queries and keys of the same tokens: in one launch on CUDA, few calls if small.

    Without gradients, what it returns may be two views of one tensor.
    """
    by = _as_it_is(by)
    path = path_of(q, by, layout, start)
    learns = (q.requires_grad or k.requires_grad) and torch.is_grad_enabled()
    if path == "formula" or (path == "roll" and learns) or not alike(q, k, by):
        return rotate(q, by, layout, start), rotate(k, by, layout, start)
    if learns:
        return _Rotation.apply(path, by, layout, start, q, k)
    first, second = _run(path, (q, k), by, layout, start)
    return first, second


def rotate_(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """`rotate`, written over `x`: for inference, where a copy is one too many."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("`x` needs gradients and cannot be overwritten: use `rotate`.")
    if path_of(x, by, layout, start) == "triton" and x.stride(-1) == 1:
        return kernel().turned((x,), by, layout, start, in_place=True)[0]
    return x.copy_(rotate(x, by, layout, start))


def formula(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """What all paths equal. Halves are rounded before they are joined: compiled, that is faster."""
    if start is not None:
        stop = start + 2 * by.cos.shape[-1]
        turned = formula(x[..., start:stop], by, layout)
        return torch.cat((x[..., :start], turned, x[..., stop:]), -1)
    a, b = split(x, layout)
    first, second = a * by.cos - b * by.sin, b * by.cos + a * by.sin
    return join(first.to(x.dtype), second.to(x.dtype), layout)


def _as_it_is(by: Turn) -> Turn:
    """Without the forms of `Ready`, if cos or sin were written to after these were made."""
    if torch.compiler.is_compiling() or type(by) is not Ready or not by.edited:
        return by
    return Turn(*by)


def _run(
    path: str, given: tuple[Tensor, ...], by: Turn, layout: Layout, start: int | None
) -> tuple[Tensor, ...]:
    if path == "triton":
        return kernel().turned(given, by, layout, start)
    if start is None:
        if path == "roll" and len(given) == 2:
            heads = given[0].shape[1], given[1].shape[1]
            return torch_kernels.by_roll(torch.cat(given, 1), by).split_with_sizes(heads, 1)
        turned = ON_CPU[path]
        return tuple([turned(x, by) for x in given])
    made, stop = tuple(torch.empty_like(x) for x in given), start + 2 * by.cos.shape[-1]
    for x, out in zip(given, made, strict=True):
        for rest in (slice(0, start), slice(stop, None)):
            out[..., rest] = x[..., rest]
        ON_CPU[path](x[..., start:stop], by, out[..., start:stop])
    return made


class _Rotation(torch.autograd.Function):
    """Its gradient is turned the other way; nothing of what was turned is kept."""

    @staticmethod
    def forward(ctx, path, by, layout, start, *given):  # type: ignore[override]
        ctx.save_for_backward(by.cos, by.sin)
        ctx.how = layout, start
        return _run(path, given, by, layout, start)

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[override]
        cos, sin = ctx.saved_tensors
        back, (layout, start) = Turn(cos, -sin), ctx.how
        if len(grads) == 1:
            return None, None, None, None, rotate(grads[0], back, layout, start)
        return None, None, None, None, *rotate_both(grads[0], grads[1], back, layout, start)
