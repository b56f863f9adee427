"""Turning the channel pairs of queries and keys: one formula, and the fastest path equal to it.

    (a, b) → (a cos − b sin, b cos + a sin)        for each pair, in float32, rounded once

Queries and keys are read once and written once, so the limit is a copy of them; which path comes
nearest depends on layout, size, dtype and device, and `path_of` says which is taken. Going back is
turning the other way: gradients need cos and sin, and nothing of what was turned. Whoever compiles
or transforms the call gets the formula, which fuses; θ that is learned gets it too.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from posenc.rotary import eager
from posenc.rotary.turn import FEW, Ready, Turn
from posenc.shapes import Heads, Keys
from posenc.theta import Layout, checked, join, one_each, split

ON_CPU = {
    "complex": eager.by_complex,
    "complex blocks": eager.by_complex_blocks,
    "roll": eager.by_roll,
    "blocks": eager.by_blocks,
}
VECTOR = 16  # complex numbers that torch multiplies at a time
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def rotate(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """Turn every channel pair of `x`, in float32, and round once to the dtype of `x`.

    With `start`, as many channels as `by` turns, from there on; the others stay as they are.
    """
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

    What it returns may be two views of one tensor.
    """
    path = path_of(q, by, layout, start)
    if path == "formula" or not _alike(q, k, by):
        return rotate(q, by, layout, start), rotate(k, by, layout, start)
    if (q.requires_grad or k.requires_grad) and torch.is_grad_enabled():
        return _Rotation.apply(path, by, layout, start, q, k)
    first, second = _run(path, (q, k), by, layout, start)
    return first, second


def rotate_(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> Heads:
    """`rotate`, written over `x`: for inference, where a copy is one too many."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("`x` needs gradients and cannot be overwritten: use `rotate`.")
    if path_of(x, by, layout, start) == "triton" and x.stride(-1) == 1:
        return _triton().turned((x,), by, layout, start, in_place=True)[0]
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


def path_of(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> str:
    """Raises ValueError for what does not fit, whatever the path."""
    if (
        torch.compiler.is_compiling()
    ):  # a graph must not depend on the length that `by` is meant for
        _fits(x, by, layout, start)
        return "formula"
    meant = type(by) is Ready and by.meant == (layout, *x.shape[2:]) and start is None
    if not (meant and x.is_cpu and x.dtype in FLOATS):
        _fits(x, by, layout, start)
        learned = by.cos.requires_grad and torch.is_grad_enabled()
        if learned or x.dtype not in FLOATS or x.ndim != 4 or by.cos.dtype is not torch.float32:
            return "formula"
    if _watched(x):
        return "formula"
    if not x.is_cpu:
        return "triton" if x.is_cuda and _triton() is not None else "formula"
    if layout == "half":
        return "roll" if x.numel() <= FEW else "blocks"
    if by.cos.shape[-1] < VECTOR:
        return "formula"
    return "complex" if x.dtype is torch.float32 or x.numel() <= FEW else "complex blocks"


def _watched(x: Tensor) -> bool:
    """Does somebody follow the single operations, to differentiate or to record them?"""
    return (
        type(x) not in (Tensor, nn.Parameter)
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    )


@cache
def _triton() -> Any:
    """The kernel of CUDA; None where Triton, or the C compiler that it needs, is missing."""
    if find_spec("triton") is None:
        return None
    from posenc.rotary import triton_kernel

    return triton_kernel if triton_kernel.usable() else None


def _alike(q: Tensor, k: Tensor, by: Turn) -> bool:
    """Does the path found for `q` do for `k`?"""
    batch, _, *rest = q.shape
    return (
        k.shape == (batch, k.shape[1], *rest)
        and by.cos.shape[-3] == 1
        and q.dtype is k.dtype
        and q.device == k.device
        and type(k) is type(q)
    )


def _run(
    path: str, given: tuple[Tensor, ...], by: Turn, layout: Layout, start: int | None
) -> tuple[Tensor, ...]:
    if path == "triton":
        return _triton().turned(given, by, layout, start)
    if start is None:
        if path == "roll" and len(given) == 2:
            heads = given[0].shape[1], given[1].shape[1]
            return eager.by_roll(torch.cat(given, 1), by).split_with_sizes(heads, 1)
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


def _fits(x: Tensor, by: Turn, layout: Layout, start: int | None) -> None:
    """Refuses what would broadcast in silence: each token turns by its own angles."""
    checked(layout)
    size, table = x.shape, by.cos.shape
    channels, turned = size[-1], 2 * table[-1]
    if channels != turned if start is None else not 0 <= start <= channels - turned:
        where = f" from channel {start} on" if start else ""
        raise ValueError(f"the frequencies turn {turned} channels{where}, `x` has {channels}.")
    one_each(x, by.cos)
    if table[-3] not in (1, size[-3]):
        raise ValueError(
            f"the frequencies are for {table[-3]} heads, `x` has {size[-3]}: repeat its heads."
        )
    if x.device != by.cos.device:
        raise ValueError(
            f"`x` is on {x.device}, the positions are on {by.cos.device}: move them to one device."
        )
    if not x.is_floating_point():
        raise TypeError(f"`x` must be real floating-point numbers, got {x.dtype}: convert it.")
