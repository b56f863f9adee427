"""Biases: what an encoding adds to the score of a query and a key.

Only `block` has to be written: the bias of some queries and some keys, told which of these keys are
seen. The other forms of a `ScoreBias` are optional: attention asks the bias for them, and is faster
where it has one.
"""

from collections.abc import Callable
from functools import reduce
from itertools import chain
from operator import add
from typing import Any

import torch
from torch import Tensor, nn

from posenc.core.cache import OF_EVERY_MODULE, cached_with
from posenc.core.positions import whole
from posenc.core.shapes import Bias, BlockBias, KeyPositions, PairBias, Positions
from posenc.core.tracing import readable, traced

FEW_QUERIES = 8  # queries, as in decoding
ALL = slice(None)

OfDistance = Callable[[Tensor, Tensor], Tensor]  # (head, offset), to broadcast, -> bias
OneQuery = Callable[[Tensor, Tensor, Tensor], Tensor]  # attention of it: (q, k, v) -> out


class ScoreBias:
    """The base class of biases: `block`, and its faster forms, all optional.

    `distance`: f(head, offset), where the bias is nothing but that; read out of one vector a head.
    `strided`: all of attention over a strip of pairs at equal steps, (call, strip, steps) -> out.
    `q_pos` and `k_pos`: the positions that these two go by.
    `made_by`: the encodings whose tensors and numbers the bias is computed from, and from nothing
    else but positions; (): it reads more than these, or that is not known.
    """

    distance: OfDistance | None = None
    strided: Callable[..., Tensor] | None = None
    strided_decodes = False  # whether `strided` is the faster for one query too
    made_by: tuple[nn.Module, ...] = ()
    adds_to_values = False  # whether `strided` adds to the values what `by_weight` does
    q_pos: Any
    k_pos: Any

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        """The bias of some queries and keys; it broadcasts to (batch, head, query, key).

        `seen` is the mask of these pairs, bool, in a shape that broadcasts to the same; None: each
        of the queries sees each of the keys.
        """
        raise NotImplementedError

    def pair(self) -> PairBias | None:
        """The bias of one pair, (b, h, i, j) -> value, which fused kernels compile; or None.

        What the function looks up is computed by this call, outside of what is traced.
        """
        return None

    def absorbed(self, q: Tensor, k: Tensor, wholly: bool) -> tuple[Tensor, Tensor, Any]:
        """Queries and keys whose dot product carries a part of the bias, and the part left over.

        `wholly`: no part is to be left over, if that can be; it is None then.
        """
        return q, k, self

    def terms(self) -> dict[str, "ScoreBias"]:
        """The terms of the paper's formula by name; empty where the formula has one term."""
        return {}

    def sources(self) -> tuple[Any, ...] | None:
        """The tensors and numbers it is computed from; None: not known, so nothing is cached."""
        return None

    def one_query(self, call: Any) -> tuple[OneQuery, nn.Module] | None:
        """Prepare attention of one query that sees every key, for a bias that depends on q or k.

        The function serves layers that share the positions, as long as the module is what it was.
        """
        return None

    def cached(self, what: tuple[Any, ...], compute: Callable[[], Tensor]) -> Tensor:
        """Call `compute`, which reads the `sources` alone, once for all layers."""
        sources = None if traced() else self.sources()
        if sources is None:
            return compute()
        tensors, numbers = [self.q_pos, self.k_pos], [*what]
        for x in sources:
            (tensors if isinstance(x, _OBJECTS) else numbers).append(x)
        return cached_with(self.k_pos, tuple(numbers), tuple(tensors), compute)

    def cached_block(self, rows: slice, keys: slice, compute: Callable[[], Tensor]) -> Tensor:
        """Call `compute` for a block; it is cached where queries are few, as in decoding."""
        q_pos = getattr(self, "q_pos", None)
        # A graph serves every number of queries
        if traced() or q_pos is None or q_pos.shape[-1] > FEW_QUERIES:
            return compute()
        return self.cached(("block", rows.start, rows.stop, keys.start, keys.stop), compute)


class DistanceBias(ScoreBias):
    """The bias f(head, offset): `DistanceBias(self.curve, q, q_at, k_at, of=self)`.

    `f` takes indices of heads and offsets (position of the query − position of the key) that
    broadcast. Over positions at equal steps the bias is a Toeplitz matrix, a strided view of one
    vector for each head.

    `of` is the encoding, where f reads nothing but its tensors and numbers: then attention computes
    f of a new token once for all layers that share the positions. `reach`, of whole offsets: f is
    constant beyond it on either side, and is looked up in a table.
    """

    def __init__(
        self,
        f: OfDistance,
        q: Tensor,
        q_pos: Positions,
        k_pos: KeyPositions,
        of: nn.Module | None = None,
        reach: int | None = None,
    ):
        self.distance, self.q_pos, self.heads = f, q_pos, q.shape[1]
        self.k_pos = for_query_heads(k_pos, self.heads)
        self.of, self.dtype, self.reach = of, q.dtype, reach
        self.made_by = () if of is None else (of,)
        # A table is made now where blocks are made again for gradients, else when it is asked for
        now = reach is not None and (torch.is_grad_enabled() or not readable(q_pos))
        self.lookup = f if reach is None else self.of_pairs() if now else None

    def sources(self) -> tuple[Any, ...] | None:
        sources = None if self.of is None else held_by(self.of)
        return None if sources is None else (self.dtype, self.heads, *sources)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        def compute() -> Tensor:
            h = torch.arange(self.heads, device=self.q_pos.device).view(1, -1, 1, 1)
            f = self.lookup or self.of_pairs()
            return f(h, offsets(self.q_pos, self.k_pos, rows, keys))

        return self.cached_block(rows, keys, compute)

    def pair(self) -> PairBias:
        apart, f = offset(self.q_pos, self.k_pos), self.lookup or self.of_pairs()
        return lambda b, h, i, j: f(h, apart(b, h, i, j))

    def of_pairs(self) -> OfDistance:
        """The function f, looked up in a table (offset, head) up to `reach`."""
        reach, f, name = self.reach, self.distance, type(self.of).__name__
        assert f is not None
        assert reach is not None

        def compute() -> Tensor:
            device = self.q_pos.device
            apart = torch.arange(-reach, reach + 1, device=device).unsqueeze(-1)
            return f(torch.arange(self.heads, device=device), apart)

        table = self.cached(("table", reach), compute)
        return lambda h, apart: table[whole(apart, name).clamp(-reach, reach) + reach, h]


class PlaceBias(ScoreBias):
    """The bias f(head, position of the query, position of the key), which broadcast.

    `of` is the encoding, where f reads nothing but its tensors and numbers, as for `DistanceBias`.
    """

    def __init__(
        self,
        f: Callable[[Tensor, Tensor, Tensor], Tensor],
        q: Tensor,
        q_pos: Positions,
        k_pos: KeyPositions,
        of: nn.Module | None = None,
    ):
        self.f, self.q_pos, self.heads = f, q_pos, q.shape[1]
        self.k_pos = for_query_heads(k_pos, self.heads)
        self.of, self.dtype = of, q.dtype
        self.made_by = () if of is None else (of,)

    def sources(self) -> tuple[Any, ...] | None:
        sources = None if self.of is None else held_by(self.of)
        return None if sources is None else (self.dtype, self.heads, *sources)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        def compute() -> Tensor:
            h = torch.arange(self.heads, device=self.q_pos.device).view(1, -1, 1, 1)
            q_pos, k_pos = (
                with_head_axis(self.q_pos[..., rows]),
                with_head_axis(self.k_pos[..., keys]),
            )
            return self.f(h, q_pos.unsqueeze(-1), k_pos.unsqueeze(-2))

        return self.cached_block(rows, keys, compute)

    def pair(self) -> PairBias:
        q_pos, k_pos = take(self.q_pos), take(self.k_pos)
        return lambda b, h, i, j: self.f(h, q_pos(b, h, i), k_pos(b, h, j))


class SumBias(ScoreBias):
    """The sum of several biases, in the forms that all of them have."""

    def __init__(self, biases: list[ScoreBias]):
        self.biases = biases
        if all([bias.made_by for bias in biases]):
            self.made_by = tuple(chain(*[bias.made_by for bias in biases]))
        curves = [bias.distance for bias in biases if bias.distance is not None]
        if len(curves) == len(biases):
            self.distance = _total(curves)
            self.q_pos, self.k_pos = biases[0].q_pos, biases[0].k_pos

    def sources(self) -> tuple[Any, ...] | None:
        sources = [bias.sources() for bias in self.biases]
        return None if None in sources else tuple(chain(*sources))  # type: ignore[arg-type]

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        compute = lambda: reduce(add, [x.block(rows, keys, seen) for x in self.biases])  # noqa: E731
        return self.cached_block(rows, keys, compute)

    def pair(self) -> PairBias | None:
        functions = [bias.pair() for bias in self.biases]
        return None if None in functions else _total(functions)

    def absorbed(self, q: Tensor, k: Tensor, wholly: bool) -> tuple[Tensor, Tensor, Any]:
        """Absorb wholly, whatever is asked: a fast path of one of the biases is none of the sum."""
        left = []
        for bias in self.biases:
            q, k, bias_left = bias.absorbed(q, k, True)
            left += [] if bias_left is None else [bias_left]
        return q, k, self if left == self.biases else added(left)


class FunctionBias(ScoreBias):
    """A plain function of one pair, (b, h, i, j) -> value, broadcast over blocks."""

    def __init__(self, f: PairBias, q: Tensor, k: Tensor):
        self.f, self.device = f, q.device
        self.shape = q.shape[0], q.shape[1], q.shape[2], k.shape[-2]

    def pair(self) -> PairBias:
        return self.f

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.f(*pairs(self.shape, rows, self.device, keys))


class ComputedBias(ScoreBias):
    """Blocks that a function computes, (rows, keys) -> bias, whatever the mask hides of them."""

    def __init__(self, f: Callable[[slice, slice], Tensor]):
        self.f = f

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.f(rows, keys)


class ForeignBias(ScoreBias):
    """A bias from outside the library that has `block` and no other form."""

    def __init__(self, bias: BlockBias):
        self.bias = bias

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.bias.block(rows, keys, seen)


def as_bias(bias: Bias | None, q: Tensor, k: Tensor) -> ScoreBias | None:
    """Wrap what `on_scores` returned, so that every form of a bias can be asked for."""
    if bias is None or isinstance(bias, ScoreBias):
        return bias
    return ForeignBias(bias) if hasattr(bias, "block") else FunctionBias(bias, q, k)  # type: ignore


def added(biases: list[ScoreBias]) -> ScoreBias | None:
    if len(biases) < 2:
        return biases[0] if biases else None
    return SumBias(biases)


def _total(functions: list[Any]) -> Any:
    return lambda *index: reduce(add, [f(*index) for f in functions])


_OBJECTS = Tensor, nn.Module
_SIMPLE = Tensor, int, float, str, type(None)


def held_by(module: nn.Module) -> tuple[Any, ...] | None:
    """The module, its tensors and its numbers; None if it holds what may change unnoticed."""
    held: list[Any] = [module, *module._parameters.values(), *module._buffers.values()]
    for name, value in module.__dict__.items():
        if name not in OF_EVERY_MODULE:
            words = isinstance(value, tuple) and all([type(x) is str for x in value])
            if not (words or isinstance(value, _SIMPLE)):
                return None
            held.append(value)
    for child in module._modules.values():
        inner = () if child is None else held_by(child)
        if inner is None:
            return None
        held += inner
    return tuple(held)


def take(values: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function that looks values of tokens up: (batch, head, token) indices -> the value there.

    `values` are (token,), (batch, token) or (batch, head, token).
    """
    if values.ndim == 3 and values.shape[1] == 1:
        values = values.squeeze(1)
    if values.ndim == 3:
        by_head, alike = values, len(values) == 1
        return lambda b, h, n: by_head[0 * b if alike else b, h, n]
    if values.ndim == 1 or len(values) == 1:
        flat = values.reshape(-1)
        return lambda b, h, n: flat[n]
    return lambda b, h, n: values[b, n]


def offset(q_pos: Positions, k_pos: KeyPositions) -> PairBias:
    """A function of (batch, head, query, key) indices: position of query − position of key."""
    q, k = take(q_pos), take(k_pos)
    return lambda b, h, i, j: q(b, h, i) - k(b, h, j)


def offsets(q_pos: Positions, k_pos: KeyPositions, rows: slice, keys: slice) -> Tensor:
    """Offsets of these queries and keys, (batch or 1, head or 1, query, key)."""
    if q_pos.ndim != k_pos.ndim:  # those with fewer axes serve all texts or heads
        q_pos, k_pos = (pos if pos.ndim == 3 else pos.unsqueeze(-2) for pos in (q_pos, k_pos))
    apart = q_pos[..., rows].unsqueeze(-1) - k_pos[..., keys].unsqueeze(-2)
    if apart.ndim == 4:
        return apart
    return apart.unsqueeze(-3) if apart.ndim == 3 else apart.unsqueeze(0).unsqueeze(0)


def with_head_axis(pos: Positions) -> Tensor:
    """Positions as (batch or 1, head or 1, token)."""
    while pos.ndim < 3:
        pos = pos.unsqueeze(-2)
    return pos


def for_query_heads(pos: KeyPositions, heads: int) -> Tensor:
    """Positions for each head of keys that heads share, repeated for each head of the queries."""
    if pos.ndim < 3 or pos.shape[1] == 1 or pos.shape[1] == heads:
        return pos
    if heads % pos.shape[1]:
        raise ValueError(
            f"`pos` is for {pos.shape[1]} heads, `q` has {heads}: give each head its own."
        )
    return pos.repeat_interleave(heads // pos.shape[1], 1)


def pairs(
    shape: tuple[int, int, int, int],
    rows: slice = ALL,
    device: torch.device | None = None,
    keys: slice = ALL,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Indices of every pair of (batch, head, query, key), or of some rows and keys, to broadcast.

    >>> [tuple(index.shape) for index in pairs((2, 4, 3, 5))]
    [(2, 1, 1, 1), (1, 4, 1, 1), (1, 1, 3, 1), (1, 1, 1, 5)]
    """
    b, h, i, j = (torch.arange(n, device=device) for n in shape)
    b, h, i = b.view(-1, 1, 1, 1), h.view(1, -1, 1, 1), i[rows].view(1, 1, -1, 1)
    return b, h, i, j[keys].view(1, 1, 1, -1)


def dense(
    of_pair: PairBias, shape: tuple[int, int, int, int], device: torch.device | None = None
) -> Tensor:
    """Evaluate a function of one pair, a mask for instance, for every pair at once."""
    return of_pair(*pairs(shape, device=device))
