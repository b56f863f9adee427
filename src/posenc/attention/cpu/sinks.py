"""A sink: one more logit for each head, which takes its share of the softmax and has no value.

    weight(i, j) = exp(sᵢⱼ) / (exp(sink) + Σₘ exp(sᵢₘ))

With L = ln Σₘ exp(sᵢₘ), which kernels give beside their output, it need not be among the keys:

    out = out of the keys alone · exp(L − L′),      L′ = ln(exp(L) + exp(sink))

The gradients of q, k and v are what the kernel's backward makes of this output and L′, for it
computes weights as exp(s − L′) and subtracts Σ dout · out. The sink's own weight is exp(sink − L′)
and its value 0, so its gradient is −Σ exp(sink − L′) dout · out. Of an output rounded to 16 bits it
would be off by some 2 %, so where sinks learn, the kernel computes in float32.

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


def cannot_serve(call: Call) -> str:
    """Why sinks cannot be joined here to what torch's kernel gives; "" where they can."""
    if not call.readable:
        return "`sinks` take the log-sum-exp of torch's CPU kernel, outside of what is traced"
    if not min(call.shape) or not call.q.shape[-1] * call.v.shape[-1]:
        return "there is nothing to share with `sinks`"
    return "torch's kernel has no `dropout` beside `sinks`" if call.dropout else kernel.lacks()


def attended(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    """Attention with sinks by torch's CPU kernel, for some queries and keys."""
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
    """Pad and lay out q, k and v as the kernel wants: equally many channels, side by side."""
    wide = max(q.shape[-1], v.shape[-1])
    if q.shape[-1] == v.shape[-1] and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        return q, k, v
    q, k, v = (F.pad(x, (0, wide - x.shape[-1])) if x.shape[-1] < wide else x for x in (q, k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    return q, k, v


def joined(out: Tensor, lse: Tensor, sinks: Sinks | None) -> tuple[Tensor, Tensor]:
    """Output (batch, head, query, value) and log-sum-exp (batch, head, query), sinks among them."""
    if sinks is None:
        return out, lse
    total = torch.logaddexp(lse, sinks.to(lse.dtype).unsqueeze(-1))  # L′, (batch, head, query)
    return (out * (lse - total).exp().unsqueeze(-1)).to(out.dtype), total


def widened(q: Tensor, k: Tensor, v: Tensor, sinks: Sinks) -> tuple[Tensor, ...]:
    """Convert q, k and v to float32 at least where the sinks learn."""
    if not (sinks.requires_grad and torch.is_grad_enabled()):
        return q, k, v
    return tuple([upcast(x) for x in (q, k, v)])


def weight(sinks: Sinks, lse: Tensor) -> Tensor:
    """The weight of the sinks, exp(sink − L′), (batch, head, query); `lse` counts them in."""
    return (sinks.to(lse.dtype).unsqueeze(-1) - lse).exp()


def gradient(grad: Tensor, out: Tensor, lse: Tensor, sinks: Sinks) -> Tensor:
    """The gradient of the sinks; `out` and `lse` are those `joined` with them."""
    inner = (grad.to(lse.dtype) * out).sum(-1)  # Σ dout · out, (batch, head, query)
    return -(weight(sinks, lse) * inner).sum((0, 2)).to(sinks.dtype)


def refuse_second_derivative(of: str) -> None:
    """Refuse a second derivative by torch's kernels: it would silently lack a part."""
    if torch.is_grad_enabled():
        raise _no_second_derivative(of)


def _no_second_derivative(of: str) -> RuntimeError:
    return RuntimeError(
        f"{of} has no second derivative, which `create_graph=True` asks for: pass"
        ' `implementation="reference"`.'
    )


def explain_second_derivative(out: Tensor) -> None:
    """Have torch's own attention, `out`, say in a sentence that it has no second derivative.

    It does where one is taken, and not where a graph is created for other parts of a model.
    """
    node = out.grad_fn
    # The plain form of the kernel has a second derivative
    if node is None or not node.name().startswith("ScaledDotProduct"):
        return

    def refuse(_: Tensor) -> None:
        raise _no_second_derivative("attention by torch's kernel")

    def follow(gradients: tuple[Tensor | None, ...], _: Any) -> None:
        for gradient in gradients:
            if gradient is not None and gradient.requires_grad:
                gradient.register_hook(refuse)

    node.register_hook(follow)


class WithSinks(torch.autograd.Function):
    """Torch's CPU kernel, and the sinks. q, k and v have equally many channels, side by side."""

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
