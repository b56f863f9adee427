"""Compute attention with a `TiledBias` on the CPU, one tile of queries and keys at a time.

    score(i, j) = qᵢ · kⱼ · scale + bias(i, j)      outputs of tiles are merged (`merge_softmax.py`)

Each tile of a bias, n queries and m keys, has one of two forms:

near  A matrix (text or 1, head, n, m), with its rows in reverse order. A bias that depends on the
      difference i − j is a view of E, (text or 1, head, n or 1, n + m − 1), a number for each
      difference: row r and key j use column r + j, so the row stride is larger by one. The gradient
      of the bias is written into the same view of zeros.
far   One number per query and one per key. torch's kernel adds the latter as a mask. For their
      gradients q and k get two more channels, (1, 0) and (0, 1), whose gradients are the sums of dS
      by query and by key.

If the bias is not learned, torch's kernel computes the gradients of q, k and v. Otherwise dS is
recomputed tile by tile. There is no second derivative. Memory is O(tokens · channels + tile).
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from math import e, log2
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.merge_softmax import join_, softmax
from posenc.attention.cpu.sinks import gradient, joined, refuse_second_derivative, weight
from posenc.attention.spacing import DiagonalBand
from posenc.compat.threads import alone, free_threads, spread
from posenc.compat.tracing import upcast
from posenc.core.biases import per_query_head

LOG2_E = log2(e)
ALL = slice(None)
# Scores of several texts in one step, 1 MB in float32, which fits into a CPU cache
CACHED_SCORES = 2**18
# Range of scores in which tiles are distributed to threads, each with separate sums of gradients.
# Outside of this range, all threads share each operation. Below it, Python's lock costs more.
FEWEST_SCORES, MOST_SCORES, MOST_THREADS = 2**22, 2**25, 4
# Scores of the tiles alone, such as those of a window, from which several threads are faster
WORTH_SHARING = 2**16

Tensors = Sequence[Any]  # the tensors of a bias, or their gradients


class Tile(NamedTuple):
    """A tile of the score matrix: some heads, some queries, and some keys."""

    heads: slice
    rows: slice
    keys: slice
    far: bool = False
    first: bool = True  # False: the output is merged with the tile before it
    causal: bool = False  # True: row r sees the keys up to the r-th
    origin: int | None = None  # the key from which running sums are counted, see `decay.py`

    @property
    def size(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.keys.stop - self.keys.start


class TiledBias:
    """Base class of biases that are computed tile by tile, with their gradients.

    A near tile of n queries and m keys has n + m − 1 distances, and its bias is often a view of a
    matrix E with one column per distance; far tiles have one term per query and one per key.

    - `band`: the visible pairs
    - `tiles`: tiles that contain every visible pair once
    - `tensors`: tensors of the bias. Methods receive them as `t`, and the tensors to which their
      gradients are added as `grads`
    - `learned`: True if `tensors` need gradients
    - `largest`: the difference i − j of the first of all columns, for `columns`
    - `whole`: True if each tile of `again` contains all keys of its rows
    - `by_texts`: True if `near` computes only some texts, so that its results are small

    - `joins`: True if rows have several tiles, so that outputs are float32 or wider
    - `by_heads`: True if methods compute only the heads of a tile, so that tiles may be cut
    - `what`: name in messages
    """

    whole = by_heads = False
    by_texts = joins = True
    what = "attention by tiles"

    def __init__(self, band: DiagonalBand, tiles: list[Tile], tensors: Tensors, learned: bool):
        self.band, self.tiles, self.tensors, self.learned = band, tiles, tensors, learned
        self.largest = band.queries - 1

    def again(self) -> list[Tile]:
        """Return the tiles for the backward pass, by default the same as in the forward pass."""
        return self.tiles

    def columns(self, tile: Tile) -> slice:
        """Return the slice of a tile in a vector of all differences i − j, the largest first.

        For a far tile, whose differences are equivalent, return one of them.
        """
        rows, keys = tile.rows, tile.keys
        first = self.largest + 1 - rows.stop + keys.start
        if tile.far:
            return slice(first, first + 1)
        return slice(first, first + rows.stop - rows.start + keys.stop - keys.start - 1)

    def near(self, tile: Tile, t: Tensors, unit: float, texts: slice) -> Tensor:
        """Return the bias of a tile, (text, head, query, key), multiplied by `unit`.

        The queries are in reverse order. Called for near tiles, whose `far` is False.
        """
        raise NotImplementedError

    def near_grad(
        self, tile: Tile, t: Tensors, grads: Tensors, texts: slice, of_e: Tensor, ds: Tensor
    ) -> None:
        """Backpropagate through `near`: add a tile's gradients of the bias to `grads`.

        - `ds`: the gradient of the bias, (text, head, n, m)
        - `of_e`: the gradient of E, (text, head, n, n + m − 1), of which `ds` is a view
        """

    def far(self, tile: Tile, t: Tensors) -> tuple[Tensor | None, Tensor | None]:
        """Return the bias of a tile as one term per query and one per key; each may be None.

        Called for far tiles, whose `far` is True. Shapes: (text, head, n) by query and (text, head,
        n or 1, m) by key.
        """
        raise NotImplementedError

    def far_grad(
        self, tile: Tile, t: Tensors, grads: Tensors, of_query: Tensor, of_key: Tensor
    ) -> None:
        """Backpropagate through `far`: add a tile's gradients of the bias to `grads`."""

    def values(self, tile: Tile, t: Tensors) -> Tensor | None:
        """Return one vector per distance to add to the values, or None if nothing is added.

        Shape: (n + m − 1, value) in a near tile, (1, value) in a far one.
        """
        return None

    def values_grad(self, tile: Tile, t: Tensors, grads: Tensors, of_values: Tensor) -> None:
        """Backpropagate through `values`: add a tile's gradients of the bias to `grads`."""


def by_tiles(
    q: Tensor, k: Tensor, v: Tensor, bias: TiledBias, sinks: Tensor | None, scale: float,
    trains: bool,
) -> Tensor:  # fmt: skip
    """Return the output of attention with a tiled bias, (batch, head, query, value).

    q, k and v must have equally many contiguous channels; `sinks.fitted` pads them.
    """
    if trains:
        return Tiled.apply(q, k, v, sinks, bias, scale, *bias.tensors)  # type: ignore
    return joined(*_forward(q, k, v, bias, bias.tensors, scale), sinks)[0]


def skewed(x: Tensor, n: int) -> Tensor:
    """Return a strided view of x with row r shifted left by r: y[…, r, j] = x[…, r, r + j].

    Shapes: (…, n or 1, n + m − 1) → (…, n, m).
    """
    row, shape = x.stride(-2) if x.shape[-2] > 1 else 0, (*x.shape[:-2], n, x.shape[-1] - n + 1)
    return x.as_strided(shape, (*x.stride()[:-2], row + 1, 1), x.storage_offset())


def zeros_around(x: Tensor, shape: tuple[int, ...], n: int, m: int) -> tuple[Tensor, Tensor]:
    """Return zeros (…, n, n + m − 1) around an uninitialised diagonal band, and a view of the band.

    The band is a view (…, n, m) with row r shifted by r, as in `skewed`: entry
    [r, r + j] of a row of n + m − 1 is entry [r, j] of a row of n + m, whose last n entries are 0.
    """
    padded = x.new_empty(*shape, n, n + m)
    padded[..., m:] = 0
    strides = (*padded.stride()[:-2], n + m - 1, 1)
    return padded.as_strided((*shape, n, n + m - 1), strides), padded[..., :m]


def key_heads(tile: Tile, q: Tensor, k: Tensor) -> slice:
    """Return the key heads that the query heads of a tile use."""
    group = q.shape[1] // k.shape[1]
    return slice(tile.heads.start // group, (tile.heads.stop - 1) // group + 1)


def dealt(tiles: list[Tile], texts: int, group: int = 0) -> list[list[Tile]]:
    """Distribute tiles to threads, and return one list of tiles for each thread.

    A single list is returned if one thread is faster.

    Tiles of the same rows, which are joined, stay together. `group`: the number of heads that share
    a key, where tiles may be cut between such groups; 0: they may not.
    """
    starts = [n for n, tile in enumerate(tiles) if tile.first]
    rows = [tiles[a:b] for a, b in itertools.pairwise([*starts, len(tiles)])]
    scores, most = texts * sum(map(_scores, tiles)), thread_count(MOST_SCORES, MOST_THREADS)
    if group and len(rows) < 2 * most:
        rows = [part for some in rows for part in _by_heads(some, most, group)]
    count = thread_count(scores, len(rows))
    if count < 2:
        return [tiles]
    shares: list[list[Tile]] = [[] for _ in range(count)]
    taken = [0] * count
    # Distribute the largest groups first, each to the thread with the fewest scores so far
    for some in sorted(rows, key=lambda some: -sum(map(_scores, some))):
        least = taken.index(min(taken))
        shares[least] += some
        taken[least] += sum(map(_scores, some))
    return shares


def _by_heads(tiles: list[Tile], count: int, group: int) -> Iterator[list[Tile]]:
    """Split tiles by heads, and yield up to `count` lists of tiles.

    All tiles have the same queries. Heads that share keys, a group, stay together.
    """
    heads = tiles[0].heads
    first, last = heads.start // group, -(-heads.stop // group)
    ends = [(first + (last - first) * n // count) * group for n in range(count + 1)]
    for a, b in itertools.pairwise(ends):
        cut = [slice(max(a, tile.heads.start), min(b, tile.heads.stop)) for tile in tiles]
        part = [t._replace(heads=h) for t, h in zip(tiles, cut, strict=True) if h.start < h.stop]
        if part:
            yield part


def thread_count(scores: int, parts: int) -> int:
    """Return the number of threads, at most `parts`, for a computation of `scores` scores."""
    few = MOST_THREADS if WORTH_SHARING <= scores <= MOST_SCORES else 1
    return min(few, parts, free_threads())


def calm(scores: int) -> AbstractContextManager[None]:
    """Limit torch to one thread within a context, unless there are very few or very many scores.

    Operations with several threads of torch would wait for the slowest thread each.
    """
    return alone() if FEWEST_SCORES <= scores <= 2 * MOST_SCORES else nullcontext()


def heads_dealt(heads: int, scores: int) -> list[slice]:
    """Split heads evenly into slices, one for each thread."""
    count = thread_count(scores, heads)
    ends = [heads * n // count for n in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def _scores(tile: Tile) -> int:
    n, m = tile.size
    return (tile.heads.stop - tile.heads.start) * n * m // (2 if tile.causal else 1)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, bias: TiledBias, t: Tensors, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exps of all tiles; queries that see no key get output 0."""
    exact = torch.promote_types(q.dtype, torch.float32)
    dtype, empty = (exact, float("-inf")) if bias.joins else (q.dtype, 0.0)
    out = q.new_zeros(*q.shape[:3], v.shape[-1], dtype=dtype)
    lse = q.new_full(q.shape[:3], empty, dtype=exact)

    def compute(tiles: list[Tile]) -> None:
        for tile in tiles:
            some, some_lse = _part(q, k, v, bias, tile, t, scale)
            at = (ALL, tile.heads, tile.rows)
            if tile.first:
                out[at], lse[at] = some, some_lse
            else:
                join_(out[at], lse[at], some, some_lse)

    if lse.numel() * k.shape[2] < FEWEST_SCORES:
        compute(bias.tiles)
    else:
        group = q.shape[1] // k.shape[1]
        spread(compute, dealt(bias.tiles, len(q), bias.by_heads * group))
    return out, lse


def _part(
    q: Tensor, k: Tensor, v: Tensor, bias: TiledBias, tile: Tile, t: Tensors, scale: float
) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exps of attention over the keys of one tile, before merging."""
    heads = tile.heads if q.shape[1] == k.shape[1] else key_heads(tile, q, k)
    q, k, v = q[:, tile.heads, tile.rows], k[:, heads, tile.keys], v[:, heads, tile.keys]
    n, m, c = q.shape[2], k.shape[2], bias.values(tile, t)
    if tile.far:
        of_query, of_key = bias.far(tile, t)
        mask = None if of_key is None else of_key.expand(*q.shape[:2], n, m)
        out, lse = flash(q, k, v, mask, scale, tile.causal)
        # A bias term per query shifts the query's log-sum-exp, but changes no softmax weight
        return out if c is None else out + c, lse if of_query is None else lse + of_query
    view, q = bias.near(tile, t, 1.0, ALL), q.flip(2)
    if c is None:
        out, lse = flash(q, k, v, view, scale)
        return out.flip(2), lse.flip(2)
    q, k, v = upcast(q), upcast(per_query_head(k, q)), upcast(per_query_head(v, q))
    weights, lse = softmax(torch.add(view, q @ k.mT, alpha=scale))
    columns, view = zeros_around(weights, weights.shape[:2], n, m)
    view.copy_(weights)
    out = (weights @ v).add_(columns @ c)
    return out.flip(2), lse.flip(2)


class Tiled(torch.autograd.Function):
    """Attention by tiles, with gradients for q, k, v, the sinks and the tensors of the bias."""

    @staticmethod
    def forward(  # type: ignore
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, bias: TiledBias,
        scale: float, *t: Tensor | None,
    ) -> Tensor:  # fmt: skip
        out, lse = _forward(q, k, v, bias, t, scale)
        if sinks is not None:
            out, lse = joined(out, lse, sinks)
        ctx.bias, ctx.scale = bias, scale
        ctx.save_for_backward(q, k, v, sinks, out, lse, *t)
        return out.to(q.dtype)

    @staticmethod
    @torch.autocast("cpu", enabled=False)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative(ctx.bias.what)
        # With checkpointing each access recomputes the tensors, and a second access fails
        q, k, *_ = saved = ctx.saved_tensors
        with calm(q[..., 0].numel() * k.shape[2]):
            return _Gradients(ctx.bias, ctx.scale, grad, *saved).all()


class _Gradients:
    """The backward pass of one attention call, which sums gradients tile by tile."""

    def __init__(
        self, bias: TiledBias, scale: float, grad: Tensor, q: Tensor, k: Tensor, v: Tensor,
        sinks: Tensor | None, out: Tensor, lse: Tensor, *t: Tensor | None,
    ):  # fmt: skip
        self.bias, self.scale, self.t, self.sinks = bias, scale, t, sinks
        self.dtype, self.exact = q.dtype, lse.dtype
        self.dim, self.channels = q.shape[-1], v.shape[-1]
        self.tiles = bias.again() if bias.learned else bias.tiles
        self.learns_far = bias.learned and any([tile.far for tile in self.tiles])
        # Σ dO · out, of each row
        self.inner = None
        if bias.learned and not bias.whole:
            self.inner = (grad * out).sum(-1, keepdim=True)
        self.inputs = q, k, v, grad  # without the two additional channels
        if self.learns_far:
            q, k, v, grad, out = self._with_two_channels(q, k, v, grad, out)
        self.q, self.k, self.v, self.grad, self.out, self.lse = q, k, v, grad, out, lse
        self.dq, self.dk, self.dv = (torch.zeros_like(x, dtype=self.exact) for x in (q, k, v))
        self.grads = [None if x is None or not bias.learned else torch.zeros_like(x) for x in t]
        self.of_sinks = None if sinks is None else torch.zeros_like(sinks, dtype=self.exact)

    def _with_two_channels(
        self, q: Tensor, k: Tensor, *others: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Append two channels to q and k, whose gradients equal the gradients of the bias terms.

        The channels leave the scores unchanged.

        Channels are padded to a multiple of 8, with which the kernel is faster.
        """
        dim = self.dim
        wide = -(-max(dim + 2, self.channels) // 8) * 8
        q, k, v, grad, out = (F.pad(x, (0, wide - x.shape[-1])) for x in (q, k, *others))
        q[..., dim] = k[..., dim + 1] = 1
        return q, k, v, grad, out

    def all(self) -> tuple[Tensor | None, ...]:
        """Compute the gradients of all tiles; return one for each argument of `Tiled.forward`."""
        group = self.q.shape[1] // self.k.shape[1]
        shares = dealt(self.tiles, len(self.q), self.bias.by_heads * group)
        parts = [self, *[self.apart() for _ in shares[1:]]]
        spread(lambda n: parts[n].add(shares[n]), range(len(parts)))
        for part in parts[1:]:
            for total, x in zip(self.sums(), part.sums(), strict=True):
                if total is not None:
                    total += x
        if self.sinks is not None and not (self.bias.learned and self.bias.whole):
            self.of_sinks = gradient(self.grad, self.out, self.lse, self.sinks)
        dq, dk = (x[..., : self.dim].to(self.dtype) for x in (self.dq, self.dk))
        dv = self.dv[..., : self.channels].to(self.dtype)
        return dq, dk, dv, self.of_sinks, None, None, *self.grads

    def apart(self) -> "_Gradients":
        """Return a copy of this object, with its own gradient tensors, for another thread.

        dq is shared, because threads write different rows of it.
        """
        other = copy(self)
        other.dk, other.dv, other.of_sinks, *other.grads = (
            None if x is None else torch.zeros_like(x) for x in self.sums()
        )
        return other

    def sums(self) -> list[Any]:
        """Return all gradient tensors except dq; each thread needs a copy of them."""
        return [self.dk, self.dv, self.of_sinks, *self.grads]

    def add(self, tiles: list[Tile]) -> None:
        """Compute the gradients of some tiles, and add them to the gradients in this object."""
        for tile in tiles:
            if tile.far or not self.bias.learned:
                self.by_kernel(tile)
            else:
                self.by_scores(tile)

    def by_kernel(self, tile: Tile) -> None:
        """Add the gradients of one tile, computed by the backward pass of torch's CPU kernel."""
        (n, m), bias, t, heads = tile.size, self.bias, self.t, key_heads(tile, self.q, self.k)
        at, keys = (ALL, tile.heads, tile.rows), (ALL, heads, tile.keys)
        grad, q, out, lse = (x[at] for x in (self.grad, self.q, self.out, self.lse))
        k, v, c = self.k[keys], self.v[keys], bias.values(tile, t)
        if tile.far:
            of_query, mask = bias.far(tile, t)
            mask = None if mask is None else mask.expand(*q.shape[:2], n, m)
            lse = lse if of_query is None else lse - of_query
            v = v if c is None else v + F.pad(c, (0, v.shape[-1] - c.shape[-1]))
            # The bias term of a key differs between the query heads that share the key
            if self.learns_far and mask is not None:
                k, v = per_query_head(k, q), per_query_head(v, q)
        else:
            grad, q, out, lse = (x.flip(2) for x in (grad, q, out, lse))
            mask = bias.near(tile, t, 1.0, ALL)
        rest = lse, mask, self.scale, tile.causal
        dq, dk, dv = flash_backward(grad, q, k, v, out.to(q.dtype), *rest)
        if self.learns_far:
            # The kernel multiplies the gradients of the two channels by the scale
            of_query, of_key = dq[..., self.dim + 1], dk[..., self.dim]
            bias.far_grad(tile, t, self.grads, of_query / self.scale, of_key / self.scale)
            if c is not None:
                of_values = dv[..., : c.shape[-1]].sum((0, 1, 2)).unsqueeze(0)
                bias.values_grad(tile, t, self.grads, of_values)
        self.dq[at] += dq if tile.far else dq.flip(2)
        _add(self.dk[keys], dk)
        _add(self.dv[keys], dv)

    def by_scores(self, tile: Tile) -> None:
        """Recompute the scores of a tile, and add the gradients of q, k, v and a learned bias.

        dS = P (dO vᵀ − Σ P dO vᵀ), with the weights P and the gradient dO of the output.

        Without sinks a row of dS sums to 0. A rounding error of this sum is multiplied by the
        derivative of the bias, which may be large for far keys. For a `whole` bias, Σ P dO vᵀ is
        therefore not computed from the output, which may be rounded to 16 bits, and P is divided by
        its sum, which differs from 1 because L is rounded.
        """
        (n, m), heads = tile.size, tile.heads.stop - tile.heads.start
        batch, most = len(self.q), max(1, CACHED_SCORES // (heads * n * (n + m)))
        most = most if self.bias.by_texts else batch
        for start in range(0, batch, most):
            self._of_texts(tile, slice(start, min(start + most, batch)))

    def _of_texts(self, tile: Tile, texts: slice) -> None:
        (n, m), bias, t, scale = tile.size, self.bias, self.t, self.scale
        at = texts, tile.heads, tile.rows
        keys = texts, key_heads(tile, self.q, self.k), tile.keys
        dim, channels = slice(self.dim), slice(self.channels)
        q, k, v, grad = self.inputs
        q, grad = (x[at].flip(2).to(self.exact).contiguous() for x in (q, grad))
        k, v = (x[keys].to(self.exact).flatten(0, 1) for x in (k, v))
        # (text · key head, heads that share it · n, x), one product per text and key head
        by_group = lambda x: x.reshape(len(k), -1, x.shape[-1])  # noqa: E731
        grouped_q = by_group(q)
        # P = 2^(bias + scale q kᵀ − L), in bits, (text, head, n, m); `exp` is many times slower
        # than `exp2` for hidden and very small weights
        lse, view = self.lse[at].flip(2).unsqueeze(-1) * LOG2_E, bias.near(tile, t, LOG2_E, texts)
        p = torch.sub(view, lse, out=q.new_empty(*q.shape[:3], m))
        by_group(p).baddbmm_(grouped_q, k.mT, alpha=scale * LOG2_E)
        p.exp2_()
        total = share = None
        if bias.whole:
            total = p.sum(-1, keepdim=True)
            if self.sinks is not None:
                share = weight(self.sinks[tile.heads], self.lse[at].flip(2)).unsqueeze(-1)
                total += share
            # Dividing a row of dO by `total` divides the row of P in all later products
            grad = grad / total
        grouped_grad = by_group(grad)
        # dv = Pᵀ dO, summed over the heads that share a key
        _add_product(self.dv[(*keys, channels)], by_group(p).mT, grouped_grad)
        # dS, (text, head, n, m), written into columns of E
        of_e, ds = zeros_around(q, q.shape[:2], n, m)
        shared = q.shape[0] * q.shape[1] // len(k)
        strides = (ds.stride(1) * shared, n + m, 1)
        grouped_ds = ds.as_strided((len(k), shared * n, m), strides)
        torch.bmm(grouped_grad, v.mT, out=grouped_ds)
        if (c := bias.values(tile, t)) is not None:
            ds += skewed(grad @ c.mT, n)
            columns, of_p = zeros_around(q, q.shape[:2], n, m)
            of_p.copy_(p)
            of_values = columns.flatten(0, 2).mT @ grad.flatten(0, 2)
            bias.values_grad(tile, t, self.grads, of_values)
        if total is not None:
            inner = ds.mul_(p).sum(-1, keepdim=True)
            ds.addcmul_(p, inner / total, value=-1)
            if self.of_sinks is not None and share is not None:
                self.of_sinks[tile.heads] -= (share / total * inner).sum((0, 2, 3))
        else:
            assert self.inner is not None
            ds.sub_(self.inner[at].flip(2)).mul_(p)
        # dq = scale dS k, dk = scale dSᵀ q
        self.dq[(*at, dim)] += torch.bmm(grouped_ds, k).view_as(q).mul_(scale).flip(2)
        _add_product(self.dk[(*keys, dim)], grouped_ds.mT, grouped_q, scale)
        bias.near_grad(tile, t, self.grads, texts, of_e, ds)


def _add(total: Tensor, x: Tensor) -> None:
    """Add x to `total`, after summing the heads of x that share a head of `total`."""
    if x.shape[1] != total.shape[1]:
        x = x.unflatten(1, (total.shape[1], -1)).sum(2)
    total += x


def _add_product(total: Tensor, x: Tensor, y: Tensor, scale: float = 1.0) -> None:
    """Add x @ y · scale to the gradient `total` (text, key head, key, channel), in place."""
    if len(total) == 1 or total.stride(0) == total.stride(1) * total.shape[1]:
        total.flatten(0, 1).baddbmm_(x, y, alpha=scale)
    else:
        total += (x @ y).mul_(scale).view(total.shape)
