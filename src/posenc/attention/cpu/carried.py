"""Causal attention to keys that are carried from one chunk of queries to the next.

Queries of a chunk meet all keys before it as these were carried to its start, in torch's kernel,
and the keys of the chunk itself in a product of matrices. The two are joined (`parts.py`). A weight
is exp(score − L) in either, so that the gradients of each are those of attention to its keys alone,
given `out` and L of both.
"""

from typing import Any

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu import kernel
from posenc.attention.cpu.engine import heads_dealt
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.parts import join_, softmax
from posenc.attention.cpu.sinks import refuse_second_derivative
from posenc.biases.carried import CarriedBias, Chunks, carried, in_chunks
from posenc.compat.threads import spread
from posenc.compat.tracing import in_full
from posenc.core.biases import per_query_head

# One chunk in so many keeps the keys that it meets; the gradient carries those of the others again.
KEPT = 8


def serves(call: Call) -> bool:
    """Test whether the keys of a call can be carried; if not, its scores can still be computed."""
    if not isinstance(call.bias, CarriedBias) or call.bias.chunks is None:
        return False
    if (
        not (call.readable and call.plain)
        or call.by_weight
        or kernel.lacks()
        or not min(call.shape)
    ):
        return False
    causal = call.seen is not None and call.seen.is_causal
    return causal and call.v.shape[-1] == call.q.shape[-1]


def run(call: Call) -> Tensor:
    """Compute attention of a call that it `serves`."""
    bias = call.bias
    assert isinstance(bias, CarriedBias)
    assert bias.chunks is not None
    with in_full(call.q):
        own, q, k, step = bias.chunks()
        v = in_chunks(per_query_head(call.v, call.q).to(q.dtype))
        # Texts may share one step.
        step = step.expand(*q.shape[:3], *step.shape[3:])
        out = _Carried.apply(own, q, k, step, v, bias.scale)  # type: ignore
    return out.flatten(2, 3)[..., : call.shape[2], :].to(call.q.dtype)


class _Carried(torch.autograd.Function):
    """Attention of `Chunks` to v, (batch, head, chunk, token, channel)."""

    @staticmethod
    def forward(
        ctx: Any, own: Tensor, q: Tensor, k: Tensor, step: Tensor, v: Tensor, scale: float
    ) -> Tensor:
        tokens = own.shape[2] * own.shape[3]
        ctx.heads = heads_dealt(own.shape[1], own.shape[0] * own.shape[1] * tokens**2)
        ctx.scale, keep = scale, any(ctx.needs_input_grad)
        found = spread(
            lambda some: _forward(
                *[x[:, some] for x in (own, q, k, step, v)], scale=scale, keep=keep
            ),
            ctx.heads,
        )
        out, lse, kept = zip(*found, strict=True)
        out, lse = (x[0] if len(x) == 1 else torch.cat(x, 1) for x in (out, lse))
        ctx.save_for_backward(own, q, k, step, v, out, lse, *[x for some in kept for x in some])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        refuse_second_derivative("attention to carried keys")
        saved, kept = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
        each = len(kept) // len(ctx.heads)

        def of_heads(n: int) -> tuple[Tensor, ...]:
            some: list[Any] = [x[:, ctx.heads[n]] for x in (grad, *saved)]
            mine = [*kept[each * n : each * (n + 1)]]
            return _gradients(*some, kept=mine, scale=ctx.scale)

        grads = zip(*spread(of_heads, range(len(ctx.heads))), strict=True)
        return *[x[0] if len(x) == 1 else torch.cat(x, 1) for x in grads], None


def _forward(
    own: Tensor, q: Tensor, k: Tensor, step: Tensor, v: Tensor, scale: float, keep: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the output, its log-sum-exps, and the carried keys that gradients begin from."""
    chunks = Chunks(own, q, k, step)
    weights, lse = softmax(_masked(own, scale))
    out, values, keys = weights @ v, v.flatten(2, 3), k[:, :, 0, :0]
    kept = []
    for n in range(1, own.shape[2]):
        keys = chunks.past(keys, n - 1)
        far, far_lse = flash(q[:, :, n], keys, values[..., : keys.shape[-2], :], None, scale)
        join_(out[:, :, n], lse[:, :, n], far, far_lse)
        if keep and n % KEPT == 0:
            kept.append(keys)
    return out, lse, kept


def _gradients(
    grad: Tensor, own: Tensor, q: Tensor, k: Tensor, step: Tensor, v: Tensor, out: Tensor,
    lse: Tensor, kept: list[Tensor], scale: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of own, q, k, step and v, from the last chunk to the first."""
    chunks = Chunks(own, q, k, step)
    weights = _masked(own, scale).sub_(lse.unsqueeze(-1)).exp_()
    inner = (grad * out).sum(-1, keepdim=True)  # Σ dout · out
    of_v = weights.mT @ grad
    of_own = weights.mul_((grad @ v.mT).sub_(inner)).mul_(scale)
    of_q, of_k, of_step = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(step)
    values, of_values = v.flatten(2, 3), of_v.flatten(2, 3)
    met: list[Tensor] = []  # keys that chunks up to this one meet
    # The gradient, from later chunks, of the keys that were carried past this one.
    of_later = None
    for n in range(own.shape[2] - 1, 0, -1):
        if not met:
            met = [kept.pop() if n >= KEPT else k[:, :, 0, :0]]
            for before in range(n - n % KEPT, n):
                met.append(chunks.past(met[-1], before))
        keys = met.pop()
        tokens = keys.shape[-2]
        of_q[:, :, n], of_keys, of_far = flash_backward(
            grad[:, :, n], q[:, :, n], keys, values[..., :tokens, :], out[:, :, n],
            lse[:, :, n], None, scale,
        )  # fmt: skip
        of_values[..., :tokens, :] += of_far
        if of_later is not None:
            past, of_k[:, :, n] = of_later[..., :tokens, :], of_later[..., tokens:, :]
            by_channel = step.shape[-2] == 1
            of_step[:, :, n] = (keys * past).sum(-2, True) if by_channel else keys.mT @ past
            of_keys += carried(past, step[:, :, n] if by_channel else step[:, :, n].mT)
        of_later = of_keys
    if of_later is not None:
        of_k[:, :, 0] = of_later
    return of_own, of_q, of_k, of_step, of_v


def _masked(own: Tensor, scale: float) -> Tensor:
    ahead = torch.ones(own.shape[-2:], dtype=torch.bool, device=own.device).triu(1)
    return (own * scale).masked_fill_(ahead, float("-inf"))
