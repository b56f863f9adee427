"""Attention with a bias of content by offset: a product for each block of offsets, read skewed.

    bias[i, j] = x[i] · vectors(pᵢ − pⱼ)

For rows r of a block, E[r, c] = x[r] · vectors(offset of column c) is one matrix product; with
c = j − r + rows − 1 the bias of the block is E read with the strides (columns − 1, 1), so nothing
is gathered and nothing copied. One block of E, small enough to stay in the cache, serves all.

For positions at equal steps, without gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

from posenc.attention.call import Call, per_query_head
from posenc.attention.spacing import Strip, lines
from posenc.attention.toeplitz import fitted, flash
from posenc.core.biases import ALL, OneQuery, ScoreBias, held_by
from posenc.core.cache import cached_with
from posenc.core.shapes import KeyPositions, Positions

ROWS, HEADS = 256, 2  # of a block
LEAST_OFFSETS = 256  # offsets of a table that is kept
MOST_NUMBERS = 2**24  # numbers of it: 64 MB in float32


@dataclass(eq=False)
class VectorBias(ScoreBias):
    """Bias (u_h · k[j] + (q[i] + v_h) · vectors(pᵢ − pⱼ)[h]) · scale,   u and v: (head, 1, channel)

    `vectors` takes offsets to (head, offset, channel). `products` of some rows and keys takes their
    (q + v) to the second term, by another formula, which is faster for few queries. `channels` of
    queries and keys gives them more channels that carry the whole bias, and so its gradients.
    `of` is the encoding, `joined` the u that is in the queries already. `prepared` are the tensors
    that `products` goes by instead of positions: where one was written to, no table serves.
    """

    q_pos: Positions
    k_pos: KeyPositions
    q: Tensor
    k: Tensor
    u: Tensor | None
    v: Tensor
    scale: float
    vectors: Callable[[Tensor], Tensor]
    products: Callable[[slice, slice], Callable[[Tensor], Tensor]]
    channels: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    of: nn.Module
    prepared: tuple[Tensor, ...] = ()
    joined: Tensor | None = None

    def __post_init__(self) -> None:
        self.strided = skewed

    @property
    def x(self) -> Tensor:
        """The queries (q + v) · scale, at least float32."""
        return (self.q + self.v).to(torch.promote_types(self.q.dtype, torch.float32)) * self.scale

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        bias = self.products(rows, keys)(self.x if rows == ALL else self.x[..., rows, :])
        if self.u is None:
            return bias
        k = per_query_head(self.k[..., keys, :], self.q).to(bias.dtype)
        return bias + self.u.to(bias.dtype) @ k.mT * self.scale

    def absorbed(self, q: Tensor, k: Tensor, wholly: bool) -> tuple[Tensor, Tensor, Any]:
        """Add u to the queries; wholly, append channels whose products are the bias."""
        if wholly or q.dtype == torch.float64:  # vectors are rounded to float32
            return *self.channels(q, k), None
        if self.u is None:
            return q, k, self
        return (q + self.u).to(q.dtype), k, replace(self, u=None, joined=self.u)

    def one_query(self, call: Call) -> tuple[OneQuery, nn.Module] | None:
        u, scale, grouped = self.joined, self.scale, call.grouped
        if u is None or call.q.dtype is not call.exact or scale != call.scale:
            return None
        vectors = self.of_keys(call)
        if vectors is None:
            products, q_added = self.products(ALL, ALL), self.v.to(call.exact) * scale

            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                row = products(torch.add(q_added, q, alpha=scale))
                return sdpa(q + u, k, v, row, scale=scale, enable_gqa=grouped)

            return attend, self.of
        of_v = torch.bmm(self.v.to(call.exact), vectors) * scale  # (head, 1, key)

        def attend_by_table(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            # (head, batch, channel) @ (head, channel, key): the texts share the vectors
            row = torch.baddbmm(of_v, q.squeeze(2).transpose(0, 1), vectors, alpha=scale)
            row = row.transpose(0, 1).unsqueeze(2)
            return sdpa(q + u, k, v, row, scale=scale, enable_gqa=grouped)

        return attend_by_table, self.of

    def of_keys(self, call: Call) -> Tensor | None:
        """The vectors of each key of one query, (head, channel, key); None: no table serves.

        A view of a table of offsets, largest first, as keys stand: it is kept with the encoding,
        for it serves every token and every text until one is longer than all before.
        """
        if any([x.is_inference() or x._version for x in self.prepared]):
            return None
        steps, sources = lines(self.q_pos, self.k_pos), held_by(self.of)
        (_, heads, _, keys), dim = call.shape, call.q.shape[-1]
        if sources is None or steps is None or steps[0] != 1 or steps[1] < keys - 1:
            return None
        size = max(LEAST_OFFSETS, 1 << steps[1].bit_length())  # offsets 0 … size − 1
        if size * heads * dim > MOST_NUMBERS:
            return None
        made_of = tuple([x for x in sources if isinstance(x, Tensor)])
        numbers = tuple([x for x in sources if not isinstance(x, Tensor | nn.Module)])

        def table() -> Tensor:
            return self.vectors(torch.arange(size - 1, -1, -1)).to(call.exact).mT.contiguous()

        what = "vectors", size, call.exact, *numbers
        first = size - 1 - steps[1]  # where the offset of the first key stands
        return cached_with(self.of, what, made_of, table)[..., first : first + keys]

    def terms(self) -> dict[str, ScoreBias]:
        """Name the terms as Transformer-XL's paper does; the fourth is q · k."""
        none, nobody = torch.zeros_like(self.q), torch.zeros_like(self.v)
        return {
            "u·k": replace(self, q=none, v=nobody),
            "q·r": replace(self, u=None, v=nobody),
            "v·r": replace(self, u=None, q=none),
        }


def skewed(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call whose bias is a `VectorBias` without u."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, VectorBias)
    q, k, v = fitted(call.q, call.k, call.v)
    batch, heads, queries, _ = q.shape
    group = heads // k.shape[1]
    # All differences i − j that a block may ask for, largest first, as columns run; (head, channel,
    # difference), once for all blocks
    top = min(queries - 1, strip.high + ROWS)
    apart = torch.arange(top, max(-strip.keys, strip.low - ROWS), -1, device=q.device)
    vectors = bias.vectors(step * apart + shift).mT.to(call.exact)
    x = bias.x.to(call.exact)
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    held = q.new_empty(batch * HEADS * ROWS * (strip.keys + ROWS), dtype=call.exact)
    some = HEADS if group % HEADS == 0 or group == 1 else 1  # heads of a block share their keys
    for start in strip.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, strip.rows.stop))
        keys = strip.seen(rows)
        # n rows and m keys meet at n + m − 1 differences: from that of the last row and the first
        # key, column 0, down to that of the first row and the last key.
        n, m = rows.stop - rows.start, keys.stop - keys.start
        columns = n + m - 1
        most = rows.stop - 1 - keys.start
        first = top - most  # where the block's columns begin among all
        # Column c has the difference most − c: hidden below `low`, from `ahead` on, and above
        # `high`, up to `behind`.
        ahead, behind = most - strip.low + 1, most - strip.high
        for h in range(0, heads, some):
            these = slice(h, min(h + some, heads))
            shared = slice(h // group, (these.stop - 1) // group + 1)
            shape = (batch, these.stop - h, n, columns)
            block = held[: batch * shape[1] * n * columns].view(shape)
            torch.matmul(x[:, these, rows], vectors[these, :, first : first + columns], out=block)
            block[..., max(0, ahead) :] = float("-inf")
            block[..., : max(0, behind)] = float("-inf")
            # Row r meets key j in column j + n − 1 − r, at r · columns + j + n − 1 − r in memory:
            # n − 1 + r · (columns − 1) + j, which is a view (…, n, m) of these strides.
            strides = (*block.stride()[:2], columns - 1, 1)
            view = block.as_strided((*shape[:3], m), strides, n - 1)
            out[:, these, rows] = flash(
                q[:, these, rows], k[:, shared, keys], v[:, shared, keys],
                attn_mask=view, scale=call.scale,
            )[0]  # fmt: skip
    return out[..., : call.v.shape[-1]]
