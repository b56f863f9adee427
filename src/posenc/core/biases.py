"""Biases: what an encoding adds to the score of a query and a key.

Only `block` has to be written: the bias of some queries and some keys, told which of these keys are
seen. The other forms of a `ScoreBias` are optional. Attention is faster where a bias has one.
"""

from collections.abc import Callable
from functools import cached_property, reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from posenc.compat.tracing import is_eager_cpu
from posenc.core.positions import common_step
from posenc.core.shapes import Bias, BlockBias, Heads, KeyPositions, Keys, PairBias, Positions
from posenc.support.arguments import brief

ALL = slice(None)
FEW_QUERIES = 8  # queries, as in decoding

OfDistance = Callable[[Tensor, Tensor], Tensor]  # (head, offset), to broadcast, -> bias


class ScoreBias:
    """The base class of biases: `block`, and its faster forms, all optional.

    - `distance`: f(head, offset), where the bias is nothing but that; read out of one vector a head
    - `q_pos`, `k_pos`: the positions that it goes by
    - `scores`: f(rows, keys), whole scores, where q · k is no part of them by itself

    Of `attended`, the form for the CPU:

    - `takes_sinks`: False where it has no place for sinks
    - `adds_values`: True where it computes what the encoding adds to values
    - `few_scores`: scores of a head that take less time than their tiles
    - `view`: the sentence that explains the form, where {} is the encoding
    """

    distance: OfDistance | None = None
    q_pos: Any
    k_pos: Any
    scores: Callable[[slice, slice], Tensor] | None = None
    takes_sinks, adds_values, few_scores = True, False, 0
    view = (
        "the bias of {} goes by distance, positions stand at equal steps and the mask is a strip"
        " along the diagonal."
    )

    @cached_property
    def steps(self) -> tuple[int, int] | None:
        """(step, shift) if the offset of query i and key j is step · (i − j) + shift, or None."""
        return common_step(self.q_pos, self.k_pos)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        """The bias of some queries and keys; it broadcasts to (batch, head, query, key).

        `seen` is the mask of these pairs, bool, in a shape that broadcasts to the same; None: each
        of the queries sees each of the keys.
        """
        raise NotImplementedError

    def hold(self) -> None:
        """Compute what all blocks share, before they are made, and made again for gradients."""

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

    def refuses(self, call: Any, strip: Any) -> str:
        """Return the reason why `attended` cannot compute a call, or ""."""
        if self.distance is None and type(self).attended is ScoreBias.attended:
            return f"the bias of {call.name} is no view"
        steps = self.steps is not None
        return "" if steps else "positions are not whole numbers at equal steps, alike in the batch"

    def attended(self, call: Any, strip: Any) -> Tensor:
        """Compute attention of the pairs of a strip on the CPU, (batch, head, query, value)."""
        raise NotImplementedError

    def terms(self) -> dict[str, "ScoreBias"]:
        """The terms of the paper's formula by name; empty where the formula has one term."""
        return {}


class SumBias(ScoreBias):
    """The sum of several biases, in the forms that all of them have."""

    def __init__(self, biases: list[ScoreBias]):
        self.biases = biases
        curves = [bias.distance for bias in biases if bias.distance is not None]
        first = biases[0]
        if len(curves) == len(biases) and all([_stand_alike(first, bias) for bias in biases]):
            self.distance, self.q_pos, self.k_pos = _total(curves), first.q_pos, first.k_pos

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return reduce(add, [bias.block(rows, keys, seen) for bias in self.biases])

    def hold(self) -> None:
        for bias in self.biases:
            bias.hold()

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


def _stand_alike(one: ScoreBias, other: ScoreBias) -> bool:
    """Test whether two biases go by the same positions, where these can be read."""
    pairs = ((one.q_pos, other.q_pos), (one.k_pos, other.k_pos))
    return all([a is b or not is_eager_cpu(a, b) or a.equal(b) for a, b in pairs])


class FunctionBias(ScoreBias):
    """A plain function of one pair, (b, h, i, j) -> value, broadcast over blocks."""

    def __init__(self, f: PairBias, q: Tensor, k: Tensor):
        self.f, self.device = f, q.device
        self.shape = q.shape[0], q.shape[1], q.shape[2], k.shape[-2]

    def pair(self) -> PairBias:
        return self.f

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.f(*pairs(self.shape, rows, self.device, keys))


class TensorBias(ScoreBias):
    """A bias of all pairs as a tensor, which broadcasts to (batch, head, query, key)."""

    def __init__(self, bias: Tensor, q: Tensor, k: Tensor):
        self.bias = bias.expand(*q.shape[:3], k.shape[-2])

    def pair(self) -> PairBias:
        return lambda b, h, i, j: self.bias[b, h, i, j]

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.bias[..., rows, keys]


class ForeignBias(ScoreBias):
    """A bias from outside the library that has `block` and no other form."""

    def __init__(self, bias: BlockBias):
        self.bias = bias

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.bias.block(rows, keys, seen)


def as_bias(bias: Bias | Tensor | None, q: Tensor, k: Tensor) -> ScoreBias | None:
    """Wrap what `on_scores` returned, so that every form of a bias can be asked for."""
    if bias is None or isinstance(bias, ScoreBias):
        return bias
    if isinstance(bias, Tensor):
        return TensorBias(bias, q, k)
    if hasattr(bias, "block"):
        return ForeignBias(bias)  # type: ignore
    if not callable(bias):
        raise TypeError(
            "a bias is a tensor that broadcasts to (batch, head, query, key), a function of one"
            f" pair, (b, h, i, j) -> value, or an object with `block`, got {brief(bias)}."
        )
    return FunctionBias(bias, q, k)


def added(biases: list[ScoreBias]) -> ScoreBias | None:
    if len(biases) < 2:
        return biases[0] if biases else None
    return SumBias(biases)


def _total(functions: list[Any]) -> Any:
    return lambda *index: reduce(add, [f(*index) for f in functions])


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
    if q_pos.ndim == k_pos.ndim == 1:
        # The usual case, in the fewest calls of torch
        return q_pos[rows].view(1, 1, -1, 1) - k_pos[keys]
    # Positions with fewer axes serve all texts or heads
    if q_pos.ndim != k_pos.ndim:
        q_pos, k_pos = (pos if pos.ndim == 3 else pos.unsqueeze(-2) for pos in (q_pos, k_pos))
    # Slicing costs as much as a small kernel
    q_pos = q_pos if rows == ALL else q_pos[..., rows]
    k_pos = k_pos if keys == ALL else k_pos[..., keys]
    # One row of keys broadcasts as it is, which saves a call
    one_row = k_pos.ndim == 3 and k_pos.shape[:2] == (1, 1)
    apart = q_pos.unsqueeze(-1) - (k_pos if one_row else k_pos.unsqueeze(-2))
    if apart.ndim == 4:
        return apart
    return apart.unsqueeze(-3) if apart.ndim == 3 else apart.unsqueeze(0).unsqueeze(0)


def for_query_heads(pos: KeyPositions, heads: int) -> Tensor:
    """Positions for each head of keys that heads share, repeated for each head of the queries."""
    if pos.ndim < 3 or pos.shape[1] == 1 or pos.shape[1] == heads:
        return pos
    if heads % pos.shape[1]:
        raise ValueError(
            f"`pos` is for {pos.shape[1]} heads, `q` has {heads}: give each head its own."
        )
    return pos.repeat_interleave(heads // pos.shape[1], 1)


def per_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Repeat grouped heads of keys or values, one for each head of the queries."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def content(q: Heads, k: Keys) -> tuple[Tensor, Tensor]:
    """Queries and keys in float32 at least, head by head: what a bias of content is made of."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    return q.to(dtype), per_query_head(k, q).to(dtype)


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
