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
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.parts import join_, softmax
from posenc.attention.cpu.sinks import refuse_second_derivative
from posenc.core.biases import per_query_head
from posenc.core.carried import CarriedBias, Chunks, carried, in_chunks
from posenc.core.tracing import in_full

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
        chunks = Chunks(own, q, k, step)
        weights, lse = softmax(_masked(own, scale))
        out, values, keys = weights @ v, v.flatten(2, 3), k[:, :, 0, :0]
        kept = []
        for n in range(1, own.shape[2]):
            keys = chunks.past(keys, n - 1)
            far, far_lse = flash(q[:, :, n], keys, values[..., : keys.shape[-2], :], None, scale)
            join_(out[:, :, n], lse[:, :, n], far, far_lse)
            if any(ctx.needs_input_grad) and n % KEPT == 0:
                kept.append(keys)
        ctx.scale = scale
        ctx.save_for_backward(*chunks, v, out, lse, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        refuse_second_derivative("attention to carried keys")
        own, q, k, step, v, out, lse, *kept = ctx.saved_tensors
        chunks = Chunks(own, q, k, step)
        weights = _masked(own, ctx.scale).sub_(lse.unsqueeze(-1)).exp_()
        inner = (grad * out).sum(-1, keepdim=True)  # Σ dout · out
        of_v = weights.mT @ grad
        of_own = weights.mul_((grad @ v.mT).sub_(inner)).mul_(ctx.scale)
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
                lse[:, :, n], None, ctx.scale,
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
        return of_own, of_q, of_k, of_step, of_v, None


def _masked(own: Tensor, scale: float) -> Tensor:
    ahead = torch.ones(own.shape[-2:], dtype=torch.bool, device=own.device).triu(1)
    return (own * scale).masked_fill_(ahead, float("-inf"))
