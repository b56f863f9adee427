"""Attention scores in which a key is multiplied by the matrix of each later token up to the query.

    score(i, j) = scale · qᵢ · (kⱼ C_{j+1} C_{j+2} ⋯ Cᵢ)          C_t: the matrix of token t

Keys are transported from chunk to chunk: they are multiplied by one matrix for each chunk of
tokens. torch's kernel computes the attention of a chunk's queries to all earlier keys, transported
to the start of the chunk, and a matrix product computes the attention to keys of the same chunk.
The two parts are merged (`merge_softmax.py`). Weights are exp(score − L) in both, so the gradients
of each part are those of attention to its keys, with `out` and L of both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import calm, heads_dealt
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.merge_softmax import join_, softmax
from posenc.attention.cpu.sinks import refuse_second_derivative
from posenc.attention.spacing import DiagonalBand
from posenc.compat.threads import spread
from posenc.compat.tracing import is_eager_cpu, traced
from posenc.core.biases import ScoreBias, per_query_head
from posenc.core.prepared import Prepared
from posenc.core.running_sums import CHUNK, RunningSums
from posenc.core.shapes import Heads, Keys, Scores

# One of this number of chunks stores its transported keys; the gradient recomputes the others.
KEPT = 8


class Chunks(NamedTuple):
    """Queries, keys, and the matrices by which tokens transform earlier keys, in chunks of tokens.

    Shapes: (batch, head, chunk, …). The last chunk is padded.

    - `own`: dot products within a chunk, (query, key), valid for keys up to the query
    - `q`: queries transported back to the start of their chunk, (token, channel)
    - `k`: keys transported to the end of their chunk, (token, channel)
    - `step`: product of the matrices of the chunk, (channel, channel), or (1, channel) if they are
      diagonal
    """

    own: Tensor
    q: Tensor
    k: Tensor
    step: Tensor

    def past(self, keys: Tensor, n: int) -> Tensor:
        """Multiply earlier keys by the matrices of chunk n, and append the keys of chunk n."""
        return torch.cat((transported(keys, self.step[:, :, n]), self.k[:, :, n]), -2)


Cut = Callable[..., Chunks]


@dataclass(eq=False)
class TransportedBias(ScoreBias):
    """A bias that replaces the score of each key by the score of the transformed key.

    The key is multiplied by the matrices of all later tokens up to the query.

    `chunks` is a function from the tensors `of`, (batch, head, token, …), to `Chunks`, if queries
    and keys are the same tokens; otherwise None.
    """

    takes_sinks, view = False, "{} transforms keys chunk by chunk."

    q: Heads
    k: Keys
    scale: float
    scores: Callable[[slice, slice], Scores]
    chunks: Cut | None = None
    of: tuple[Tensor, ...] = ()

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Scores:
        content = self.q[..., rows, :] @ self.k[..., keys, :].mT * self.scale
        return self.scores(rows, keys) - content

    def refuses(self, call: Call, band: DiagonalBand) -> str:
        """Return the reason why this class cannot compute attention for a call, or ""."""
        if self.chunks is None:
            return "queries and keys are not the same tokens"
        if not band.is_causal:
            return "the mask is not causal"
        fits = call.v.shape[-1] == call.q.shape[-1]
        return "" if fits else "values do not have as many channels as queries"

    def attended(self, call: Call, band: DiagonalBand) -> Tensor:
        v = per_query_head(call.v, call.q).to(self.q.dtype)
        return _Transported.apply(self.chunks, self.scale, v, *self.of)  # type: ignore


class TransportedKeys(RunningSums):
    """Mixin for `Prepared` classes whose field `past` caches keys transformed by later tokens.

    They are the keys of the first tokens, (batch, head, key, channel), transported past the last of
    these tokens.
    """

    __slots__ = ()
    past: Tensor

    def slice_tokens(self: Any, some: slice) -> Any:
        """Return the prepared positions of a slice of the tokens.

        The cached keys are kept only if the slice contains all of them.
        """
        kept = self.past.shape[-2]
        start, stop, _ = some.indices(self.tokens) if kept else (0, 0, 1)
        past = self.past if start == 0 and stop >= kept else self.none()
        rest: Any = Prepared.slice_tokens(self._replace(past=self.none()), some)
        return rest._replace(past=past)

    def append(self: Any, more: Any) -> Any:
        if not self.tokens:
            return more
        both: Any = RunningSums.append(self._replace(past=self.none()), more)
        return both._replace(past=self.past)

    def none(self) -> Keys:
        return self.past[..., :0, :]

    def precomputed(self: Any, k: Keys) -> Any:
        """Transform the cached keys of all full chunks but the last, and store them in `past`.

        `Cache.crop` may shorten the last full chunk.
        """
        start, stop = self.past.shape[-2], max(0, self.tokens // CHUNK - 1) * CHUNK
        if traced() or stop <= start:
            return self
        chunks, past = self.chunks(k, slice(start, stop)), self.past
        for n in range(chunks.k.shape[2]):
            past = chunks.past(past, n)
        return self._replace(past=past)

    def chunks(self, k: Keys, some: slice) -> Chunks:
        """Return a `Chunks` object for the tokens in the slice `some`, whose keys are `k`."""
        raise NotImplementedError


def alike(x: Tensor, y: Tensor) -> bool:
    """Test whether two tensors have equal values.

    Returns False unless both are plain tensors on the CPU, not traced or wrapped by torch.func.
    """
    return is_eager_cpu(x, y) and x.equal(y)


def in_chunks(x: Tensor) -> Tensor:
    """Split tokens into chunks, (…, chunk, token, channel), repeating the last token as padding."""
    missing = -x.shape[-2] % CHUNK
    if missing:
        x = torch.cat((x, x[..., -1:, :].expand(*x.shape[:-2], missing, -1)), -2)
    return x.unflatten(-2, (-1, CHUNK))


def transported(k: Tensor, step: Tensor) -> Tensor:
    """Multiply keys (batch, head, key, channel) by the product of a chunk's matrices."""
    return k * step if step.shape[-2] == 1 else k @ step


class _Transported(torch.autograd.Function):
    """Autograd function for attention with a `TransportedBias`, computed chunk by chunk.

    Each thread computes the chunks of its heads. They are stored for one backward pass; a second
    one recomputes them.
    """

    @staticmethod
    def forward(ctx: Any, chunks: Cut, scale: float, v: Tensor, *of: Tensor) -> Tensor:
        batch, heads, tokens, _ = v.shape
        ctx.chunks, ctx.scale, keep = chunks, scale, any(ctx.needs_input_grad)
        ctx.scores = batch * heads * tokens**2
        ctx.heads = heads_dealt(heads, ctx.scores)

        def of_heads(some: slice) -> tuple[Tensor, Tensor, list[Tensor], tuple[Any, ...]]:
            made = _chunked(chunks, some, keep, v, *of)
            parts: list[Any] = [x.detach() for x in made[1]]
            return *_forward(*parts, scale=scale, keep=keep), made

        out, lse, kept, made = zip(*spread(of_heads, ctx.heads), strict=True)
        ctx.made = made if keep else None
        out, lse = (x[0] if len(x) == 1 else torch.cat(x, 1) for x in (out, lse))
        ctx.each = len(kept[0])
        ctx.save_for_backward(out, lse, *[x for some in kept for x in some], v, *of)
        return out.flatten(2, 3)[:, :, :tokens]

    @staticmethod
    @torch.autocast("cpu", enabled=False)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative("attention to transported keys")
        out, lse, *others = ctx.saved_tensors
        kept, given = others[: ctx.each * len(ctx.heads)], others[ctx.each * len(ctx.heads) :]
        earlier, ctx.made = ctx.made, None

        def of_heads(n: int) -> tuple[Tensor, ...]:
            some, mine = ctx.heads[n], kept[ctx.each * n : ctx.each * (n + 1)]
            leaves, made = earlier[n] if earlier else _chunked(ctx.chunks, some, True, *given)
            # The padding has no queries, so its gradient is 0
            due = F.pad(grad[:, some], (0, 0, 0, -grad.shape[2] % CHUNK)).unflatten(2, (-1, CHUNK))
            parts: list[Any] = [*[x.detach() for x in made], out[:, some], lse[:, some]]
            grads = _gradients(due, *parts, kept=[*mine], scale=ctx.scale)
            return torch.autograd.grad(made, leaves, grads)

        with calm(ctx.scores):
            grads = zip(*spread(of_heads, range(len(ctx.heads))), strict=True)
            return None, None, *[x[0] if len(x) == 1 else torch.cat(x, 1) for x in grads]


def _chunked(
    chunks: Cut, heads: slice, graph: bool, *given: Tensor
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Split q, k, v and other tensors of some heads into chunks of tokens.

    Returns the tensors, and own, q, k, step and v in chunks. With `graph`, the chunks have
    gradients for the tensors.
    """
    v, *of = leaves = [x[:, heads].detach().requires_grad_(graph) for x in given]
    with torch.set_grad_enabled(graph):
        own, q, k, step = chunks(*of)
        # All texts may share one step
        return leaves, (own, q, k, step.expand(*q.shape[:3], *step.shape[3:]), in_chunks(v))


def _forward(
    own: Tensor, q: Tensor, k: Tensor, step: Tensor, v: Tensor, scale: float, keep: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the attention output, its log-sum-exps, and the keys that the backward pass needs."""
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
    """Return the gradients of the `Chunks` tensors and of v; the last chunk is computed first."""
    chunks = Chunks(own, q, k, step)
    weights = _masked(own, scale).sub_(lse.unsqueeze(-1)).exp_()
    inner = (grad * out).sum(-1, keepdim=True)  # Σ dout · out
    of_v = weights.mT @ grad
    of_own = weights.mul_((grad @ v.mT).sub_(inner)).mul_(scale)
    of_q, of_k, of_step = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(step)
    values, of_values = v.flatten(2, 3), of_v.flatten(2, 3)
    met: list[Tensor] = []  # transported keys of chunks up to this one
    # The gradient, from later chunks, of the keys transported past this chunk
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
            of_keys += transported(past, step[:, :, n] if by_channel else step[:, :, n].mT)
        of_later = of_keys
    if of_later is not None:
        of_k[:, :, 0] = of_later
    return of_own, of_q, of_k, of_step, of_v


def _masked(own: Tensor, scale: float) -> Tensor:
    ahead = torch.ones(own.shape[-2:], dtype=torch.bool, device=own.device).triu(1)
    return (own * scale).masked_fill_(ahead, float("-inf"))
