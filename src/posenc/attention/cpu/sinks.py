"""Attention sinks: an extra logit for each head, in the softmax but without a value.

    weight(i, j) = exp(sᵢⱼ) / (exp(sink) + Σₘ exp(sᵢₘ))

Kernels return L = ln Σₘ exp(sᵢₘ), so the sink can be added afterwards:

    out = out without sinks · exp(L − L′),      L′ = ln(exp(L) + exp(sink))

The kernel's backward with this output and L′ gives the gradients of q, k and v, because it computes
weights as exp(s − L′) and subtracts Σ dout · out. The weight of the sink is exp(sink − L′) and its
value is 0, so its gradient is −Σ exp(sink − L′) dout · out. With an output in 16 bits this gradient
would be off by about 2 %, so trained sinks are computed in float32.

As in gpt-oss (OpenAI 2025, arXiv:2508.10925) and Xiao et al. 2023, arXiv:2309.17453, §3.3.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu import kernel
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.compat.tracing import upcast
from posenc.core.shapes import Sinks


def unsupported(call: Call) -> str:
    """Return the reason why sinks cannot be added to the result of torch's kernel, or ""."""
    if not call.readable:
        return "`sinks` need torch's CPU kernel, which other devices and traced graphs cannot call"
    if not min(call.shape) or not call.q.shape[-1] * call.v.shape[-1]:
        return "a tensor is empty"
    return (
        "torch's kernel does not support `dropout` with `sinks`" if call.dropout else kernel.lacks()
    )


def attended(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    """Compute attention with sinks by torch's CPU kernel, for encoded q, k and v."""
    assert call.sinks is not None
    q, k, v = fitted(*widened(q, k, v, call.sinks))
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    if call.trains:
        out = WithSinks.apply(q, k, v, call.sinks, mask, causal, call.scale)[0]  # type: ignore
        return out.to(call.q.dtype)
    out, lse = flash(q, k, v, mask, call.scale, causal)
    return joined(out, lse, call.sinks)[0]


def fitted(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Convert q, k and v for the CPU kernel: equally many channels, stored contiguously.

    Missing channels are padded with 0.
    """
    wide = max(q.shape[-1], v.shape[-1])
    if q.shape[-1] == v.shape[-1] and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        return q, k, v
    q, k, v = (F.pad(x, (0, wide - x.shape[-1])) if x.shape[-1] < wide else x for x in (q, k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    return q, k, v


def joined(out: Tensor, lse: Tensor, sinks: Sinks | None) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exps of attention, with the sinks included in the softmax.

    `out` is the attention output without sinks, (batch, head, query, value).
    """
    if sinks is None:
        return out, lse
    total = torch.logaddexp(lse, sinks.to(lse.dtype).unsqueeze(-1))  # L′, (batch, head, query)
    return (out * (lse - total).exp().unsqueeze(-1)).to(out.dtype), total


def widened(q: Tensor, k: Tensor, v: Tensor, sinks: Sinks) -> tuple[Tensor, ...]:
    """Convert q, k and v to float32 or wider if the sinks are trained."""
    if not (sinks.requires_grad and torch.is_grad_enabled()):
        return q, k, v
    return tuple([upcast(x) for x in (q, k, v)])


def weight(sinks: Sinks, lse: Tensor) -> Tensor:
    """Return the softmax weight of each head's sink, (batch, head, query).

    It is exp(sink − L′), where L′ = `lse` is the log-sum-exp that includes the sink.
    """
    return (sinks.to(lse.dtype).unsqueeze(-1) - lse).exp()


def gradient(grad: Tensor, out: Tensor, lse: Tensor, sinks: Sinks) -> Tensor:
    """Return the gradient of the sinks, from output and log-sum-exps that include the sinks."""
    inner = (grad.to(lse.dtype) * out).sum(-1)  # Σ dout · out, (batch, head, query)
    return -(weight(sinks, lse) * inner).sum((0, 2)).to(sinks.dtype)


def refuse_second_derivative(of: str, needed: bool | None = None) -> None:
    """Raise RuntimeError for a second derivative, in which torch's kernels silently omit a term.

    `needed`: True in a second derivative; None: True if the first derivative records a graph.
    """
    if torch.is_grad_enabled() if needed is None else needed:
        raise RuntimeError(
            f"{of} has no second derivative, which `create_graph=True` needs. Pass"
            ' `implementation="reference"`.'
        )


def explain_second_derivative(out: Tensor) -> None:
    """Make a second derivative of torch's attention output `out` raise an error that explains why.

    A graph that is created for other parts of a model raises no error.
    """
    node = out.grad_fn
    # The plain form of the kernel has a second derivative
    if node is None or not node.name().startswith("ScaledDotProduct"):
        return

    def refuse(_: Tensor) -> None:
        refuse_second_derivative("attention by torch's kernel", True)

    def follow(gradients: tuple[Tensor | None, ...], _: Any) -> None:
        for gradient in gradients:
            if gradient is not None and gradient.requires_grad:
                gradient.register_hook(refuse)

    node.register_hook(follow)


class WithSinks(torch.autograd.Function):
    """Attention with sinks by torch's CPU kernel, for q, k and v with equally many channels."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, mask: Tensor | None, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        out, lse = flash(q, k, v, mask, scale, causal)
        return joined(out, lse, sinks)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        q, k, v, sinks, mask, ctx.causal, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, sinks, mask, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative("attention with sinks")
        q, k, v, sinks, mask, out, lse = ctx.saved_tensors
        grads = flash_backward(grad, q, k, v, out, lse, mask, ctx.scale, ctx.causal)
        of_q, of_k, of_v = (x.to(q.dtype) for x in grads)
        return of_q, of_k, of_v, gradient(grad, out, lse, sinks), None, None, None
