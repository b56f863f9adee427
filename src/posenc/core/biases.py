"""Biases: the terms that an encoding adds to the score of a query and a key.

A bias must define `block`, which returns the bias of some queries and some keys and receives the
mask of these pairs. The other forms of a `ScoreBias` are optional and make attention faster.
"""

from collections.abc import Callable
from functools import cached_property, reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from posenc.compat.tracing import is_eager_cpu, upcast
from posenc.core.positions import common_step, per_head
from posenc.core.shapes import Bias, BlockBias, Heads, KeyPositions, Keys, PairBias, Positions
from posenc.support.arguments import brief

ALL = slice(None)
FEW_QUERIES = 8  # up to this number of queries, as in decoding, call overhead dominates

# (head, offset), which broadcast -> bias; some functions accept None for all heads
OfDistance = Callable[[Any, Tensor], Tensor]


class ScoreBias:
    """Base class of score biases: subclasses define `block` and may add faster forms.

    - `distance`: f(head, offset), set only if the bias depends on nothing more; its values are
      stored as one vector per head
    - `q_pos`, `k_pos`: the positions of which the bias is a function
    - `compiles`: False if FlexAttention takes too long on CUDA to compile the result of `pair`
    - `scores`: f(rows, keys), the complete scores, for a bias that cannot be separated from q · k

    Facts about `attended`, the form for the CPU:

    - `takes_sinks`: False if it does not support sinks
    - `adds_values`: True if it also computes `by_weight` of the encoding
    - `few_scores`: number of scores per head up to which dense attention is faster than tiles
    - `view`: the sentence in which `explain` describes the form; {} is the name of the encoding
    """

    distance: OfDistance | None = None
    compiles = True
    q_pos: Any
    k_pos: Any
    scores: Any = None
    takes_sinks, adds_values, few_scores = True, False, 0
    view = (
        "the bias of {} depends on distance, positions have equal steps and the mask is a band"
        " along the diagonal."
    )

    @cached_property
    def steps(self) -> tuple[int, int] | None:
        """Return (step, shift) if pᵢ − pⱼ = step · (i − j) + shift for all query-key pairs (i, j).

        Otherwise, or if positions cannot be read, return None.
        """
        return common_step(self.q_pos, self.k_pos)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        """Return the bias between some queries (the slice `rows`) and some keys (`keys`).

        The result broadcasts to (batch, head, query, key).

        `seen` is the bool mask of these pairs and broadcasts to the same shape; None: each of the
        queries sees each of the keys.
        """
        raise NotImplementedError

    def hold(self) -> None:
        """Compute and keep the values that `block` uses for every block of the score matrix."""

    def pair(self) -> PairBias | None:
        """Return the bias as a function (b, h, i, j) of one pair, for fused kernels, or None.

        Tables that the function reads are computed in this call, outside of the traced function.
        """
        return None

    def absorbed(self, q: Tensor, k: Tensor, wholly: bool) -> tuple[Tensor, Tensor, Any]:
        """Fold a part of the bias into q and k, and return q, k and the remaining bias.

        `wholly`: include all of the bias if possible; the remaining bias is then None.
        """
        return q, k, self

    def refuses(self, call: Any, band: Any) -> str:
        """Return the reason why the fast CPU method `attended` cannot compute this call, or ""."""
        if self.distance is None and type(self).attended is ScoreBias.attended:
            return f"the bias of {call.name} is not a function of distance alone"
        steps = self.steps is not None
        return "" if steps else "positions are not whole numbers at equal steps, equal in all texts"

    def attended(self, call: Any, band: Any) -> Tensor:
        """Compute attention with this bias on the CPU, for a mask that is a diagonal band."""
        raise NotImplementedError

    def terms(self) -> dict[str, "ScoreBias"]:
        """Return the bias's terms by their names in the paper; {} for a bias of one term."""
        return {}


class SumBias(ScoreBias):
    """The sum of several biases. A faster form exists only if every bias of the sum has one."""

    def __init__(self, biases: list[ScoreBias]):
        self.biases = biases
        self.compiles = all([bias.compiles for bias in biases])
        curves = [bias.distance for bias in biases if bias.distance is not None]
        first = biases[0]
        if len(curves) == len(biases) and all([_same_positions(first, bias) for bias in biases]):
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
        """Fold as many of the biases as possible into q and k, and return q, k and the others."""
        left = []
        for bias in self.biases:
            q, k, bias_left = bias.absorbed(q, k, True)
            left += [] if bias_left is None else [bias_left]
        return q, k, self if left == self.biases else added(left)


def _same_positions(one: ScoreBias, other: ScoreBias) -> bool:
    """Test whether two biases have the same query and key positions.

    Positions whose values cannot be read count as the same.
    """
    pairs = ((one.q_pos, other.q_pos), (one.k_pos, other.k_pos))
    return all([a is b or not is_eager_cpu(a, b) or a.equal(b) for a, b in pairs])


class FunctionBias(ScoreBias):
    """A bias given as a function of one query-key pair, (b, h, i, j) -> value."""

    def __init__(self, f: PairBias, q: Tensor, k: Tensor):
        self.f, self.device = f, q.device
        self.shape = q.shape[0], q.shape[1], q.shape[2], k.shape[-2]

    def pair(self) -> PairBias:
        return self.f

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.f(*pairs(self.shape, rows, self.device, keys))


class TensorBias(ScoreBias):
    """A bias given as a tensor that broadcasts to (batch, head, query, key)."""

    def __init__(self, bias: Tensor, q: Tensor, k: Tensor):
        self.bias = bias.expand(*q.shape[:3], k.shape[-2])

    def pair(self) -> PairBias:
        return lambda b, h, i, j: self.bias[b, h, i, j]

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.bias[..., rows, keys]


class ForeignBias(ScoreBias):
    """A bias object of user code, which has only the method `block`."""

    def __init__(self, bias: BlockBias):
        self.bias = bias

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.bias.block(rows, keys, seen)


def as_bias(bias: Bias | Tensor | None, q: Tensor, k: Tensor) -> ScoreBias | None:
    """Wrap the result of `on_scores`, a tensor, function or object, in a `ScoreBias`."""
    if bias is None or isinstance(bias, ScoreBias):
        return bias
    if isinstance(bias, Tensor):
        return TensorBias(bias, q, k)
    if hasattr(bias, "block"):
        return ForeignBias(bias)  # type: ignore
    if not callable(bias):
        raise TypeError(
            "`bias` must be a tensor that broadcasts to (batch, head, query, key), a function of"
            " one pair, (b, h, i, j) -> value, or an object with a method `block`, got"
            f" {brief(bias)}."
        )
    return FunctionBias(bias, q, k)


def added(biases: list[ScoreBias]) -> ScoreBias | None:
    if len(biases) < 2:
        return biases[0] if biases else None
    return SumBias(biases)


def _total(functions: list[Any]) -> Any:
    return lambda *index: reduce(add, [f(*index) for f in functions])


def take(values: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return a function from indices (batch, head, token) to an element of `values`.

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
    """Return a function from indices (b, h, i, j) to the offset pᵢ − pⱼ of query i and key j."""
    q, k = take(q_pos), take(k_pos)
    return lambda b, h, i, j: q(b, h, i) - k(b, h, j)


def offsets(q_pos: Positions, k_pos: KeyPositions, rows: slice, keys: slice) -> Tensor:
    """Return the position offsets pᵢ − pⱼ between a slice of queries and a slice of keys.

    The shape is (batch or 1, head or 1, query, key).
    """
    if not q_pos.ndim == k_pos.ndim == 3:
        q_pos, k_pos = per_head(q_pos), per_head(k_pos)
    # Slicing costs as much as a small kernel
    q_pos = q_pos if rows == ALL else q_pos[..., rows]
    k_pos = k_pos if keys == ALL else k_pos[..., keys]
    # One row of keys broadcasts without another axis, which saves a call
    k_pos = k_pos if k_pos.shape[:2] == (1, 1) else k_pos.unsqueeze(-2)
    return q_pos.unsqueeze(-1) - k_pos


def for_query_heads(pos: KeyPositions, heads: int) -> Tensor:
    """Repeat the positions of each key head for all query heads that share the key head."""
    if pos.ndim < 3 or pos.shape[1] == 1 or pos.shape[1] == heads:
        return pos
    if heads % pos.shape[1]:
        raise ValueError(
            f"`pos` must have positions for 1 head or for the {heads} heads of `q`, got"
            f" {pos.shape[1]}. Pass positions for each head."
        )
    return pos.repeat_interleave(heads // pos.shape[1], 1)


def per_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Repeat heads of keys or values, so that each query head has its own copy."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def content(q: Heads, k: Keys) -> tuple[Tensor, Tensor]:
    """Return q and k in float32 or wider, with the keys repeated for each query head."""
    return upcast(q), upcast(per_query_head(k, q))


def pairs(
    shape: tuple[int, int, int, int],
    rows: slice = ALL,
    device: torch.device | None = None,
    keys: slice = ALL,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return index tensors b, h, i, j that broadcast to all pairs of the given queries and keys.

    >>> [tuple(index.shape) for index in pairs((2, 4, 3, 5))]
    [(2, 1, 1, 1), (1, 4, 1, 1), (1, 1, 3, 1), (1, 1, 1, 5)]
    """
    b, h, i, j = (torch.arange(n, device=device) for n in shape)
    b, h, i = b.view(-1, 1, 1, 1), h.view(1, -1, 1, 1), i[rows].view(1, 1, -1, 1)
    return b, h, i, j[keys].view(1, 1, 1, -1)


def dense(
    of_pair: PairBias, shape: tuple[int, int, int, int], device: torch.device | None = None
) -> Tensor:
    """Evaluate a function of one query-key pair, such as a mask, for all pairs."""
    return of_pair(*pairs(shape, device=device))
