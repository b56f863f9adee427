"""Attention of one new token that sees all keys: torch's kernel, with one row of a bias at most.

A step of decoding costs what is called from Python, layer by layer. The row of the bias goes by
positions alone, so it is computed in the first layer, and serves all that share its positions. So
do the checks of what fits, for a few tokens with a bias and for any number without.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from operator import is_
from typing import Any

import torch
from torch import Tensor, is_grad_enabled, is_inference_mode_enabled, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

from posenc.attention.call import Call, with_same_heads
from posenc.attention.dispatch import carries_values
from posenc.attention.one_query import fastest
from posenc.core.biases import ALL, OneQuery, ScoreBias, as_bias, held_by
from posenc.core.cache import (
    MOST_ENTRIES,
    CachedValues,
    Version,
    is_autocast_cpu,
    unchanged,
    version_of,
)
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.prepared import Prepared
from posenc.core.shapes import Heads, Keys, Seen, Values
from posenc.core.sum import Sum, leaves
from posenc.core.tracing import beyond_gradients, readable, transformed

TURNS = {"on_queries", "on_keys"}
MOST_QUERIES = 256  # with a bias: of more, computing it in strips is as fast
MOST_HELD = 1 << 21  # numbers of a bias of several queries, 8 MB
Row = tuple[bool, Tensor | None]  # whether the kernel can serve; the row, (batch, head, 1, key)


@dataclass(frozen=True)
class Decoding:
    """One token, at `at`, and the keys, at `k_at`, in all layers that have this encoding."""

    encoding: Encoding
    at: Any
    k_at: Any
    rows: dict[float, Row] = field(default_factory=dict)  # by softmax scale

    def attend(self, q: Heads, k: Keys, v: Values, scale: float) -> Tensor | None:
        """Return what `attend` does, of encoded queries and keys; None where it must be called."""
        if torch.is_grad_enabled() or not readable(q, k, v) or beyond_gradients():
            return None
        row = self.rows.get(scale)
        if row is None:
            row = self.rows[scale] = self.row(q, k, v, scale)
        able, bias = row
        if not able:
            return None
        return sdpa(q, k, v, attn_mask=bias, scale=scale, enable_gqa=q.shape[1] != k.shape[1])

    def row(self, q: Heads, k: Keys, v: Values, scale: float) -> Row:
        """The kernel cannot serve a bias that goes by content, nor a `scale` below 0."""
        acts_on = {*self.encoding.acts_on}
        if scale <= 0 or v.shape[-1] != q.shape[-1] or acts_on - {"on_scores", "on_embeddings"}:
            return False, None
        bias = as_bias(self.encoding.on_scores(q, k, self.at, self.k_at, scale), q, k)
        if bias is None:
            return True, None
        if bias.distance is None:
            return False, None
        row = bias.block(ALL, ALL, None).to(torch.promote_types(q.dtype, torch.float32))
        return True, row.expand(*q.shape[:2], 1, -1)


@dataclass
class Step:
    """A step of decoding, tokens and all keys that they see, in layers that share positions.

    From the third call on it runs `one_query`, whose checks have been passed, as long as the
    weights that it was prepared from are what they were.
    """

    scale: float
    made_of: tuple[Any, ...]  # whose ids stay taken while the step is kept
    positions: list[Version]
    calls: int = 0
    one_query: OneQuery | None = None
    turns: bool = False  # whether queries and keys are turned before, in every call
    held: "Contents | None" = None
    weights: list[Version] = field(default_factory=list)

    def attend(
        self, q: Heads, k: Keys, v: Values, encoding: Encoding, at: Any, k_at: Any
    ) -> Tensor | None:
        if self.one_query is None or (self.held is not None and self.held.changed):
            return None
        if not unchanged(self.weights):
            return None
        if self.turns:
            q, k = encoding.on_queries(q, at), encoding.on_keys(k, at if k_at is None else k_at)
            k, v = with_same_heads(q, k, v)
        return self.one_query(q, k, v)

    def learn(self, call: Call, at: Any, k_at: Any) -> None:
        """Prepare `one_query` from a call that has passed all checks, if it can serve the next."""
        self.calls, self.one_query = self.calls + 1, None
        if self.calls < 2:  # in a cache of keys, the positions are each layer's own
            return
        seen = call.seen
        if not (call.mask is None or (seen is not None and (seen.is_all or seen.is_causal))):
            return
        if call.scale != self.scale or not min(call.shape) or not call.looks:
            return
        bias, acts_on = call.bias, {*call.encoding.acts_on}
        turns = bool(acts_on & TURNS)
        if bias is not None and call.shape[2] > 1 and prod(call.shape[1:]) > MOST_HELD:
            return
        modules, one_query = () if bias is None else bias.made_by, None
        one_query_only = call.shape[2] == 1 and acts_on <= {"on_scores", "by_weight"}
        if bias is not None and one_query_only and carries_values(call):
            prepared = bias.one_query(call)
            if prepared is not None:
                one_query, modules = prepared[0], prepared[1:]
        if one_query is None:
            if not (acts_on <= TURNS if bias is None else acts_on == {"on_scores"}):
                return
            if turns and (call.at is not at or call.k_at is not (at if k_at is None else k_at)):
                return  # they were prepared for this call alone
            if call.q.shape[-1] != call.v.shape[-1] or (bias is not None and not modules):
                return
        sources = [held_by(module) for module in modules]
        if None in sources:
            return
        tensors = [x for held in sources for x in held or () if isinstance(x, Tensor)]
        versions = [version_of(x) for x in tensors]
        if None not in versions:
            self.held = Contents(modules) if modules else None
            self.weights = versions  # type: ignore[assignment]
            self.one_query, self.turns = one_query or _with_rows(call), turns


class Contents:
    """What modules hold, and those within: their attributes, parameters, buffers and modules."""

    def __init__(self, modules: Iterable[nn.Module]):
        parts = [part for module in modules for part in module.modules()]
        of_each = [(x.__dict__, x._parameters, x._buffers, x._modules) for x in parts]
        holders: list[dict[str, Any]] = list(chain.from_iterable(of_each))
        self.empty = [x for x in holders if not x]
        self.full = [(x, len(x), tuple(x.values())) for x in holders if x]

    @property
    def changed(self) -> bool:
        """True if one of these holds another object than before."""
        if any(self.empty):
            return True
        for holder, size, values in self.full:
            if len(holder) != size or not all(map(is_, holder.values(), values)):
                return True
        return False


def _with_rows(call: Call) -> OneQuery:
    """A kernel, with the rows of a bias that goes by positions alone, or with none."""
    scale, grouped, queries = call.scale, call.grouped, call.shape[2]
    causal = call.seen is not None and not call.seen.is_all  # as many queries as keys
    rows = None if call.bias is None else _rows(call, call.bias, causal)
    causal = causal and rows is None
    attend = lambda q, k, v: sdpa(q, k, v, rows, 0.0, causal, scale=scale, enable_gqa=grouped)  # noqa: E731
    return fastest(attend, call.q, call.k, call.v, scale, rows) if queries == 1 else attend


def _rows(call: Call, bias: ScoreBias, causal: bool) -> Tensor:
    """The bias of all pairs, −∞ where a causal mask hides one; batches of any size share it."""
    queries, exact = call.shape[2], call.exact

    def make() -> Tensor:
        rows = bias.block(ALL, ALL, None).to(exact)
        if not causal:
            return rows
        unseen = rows.new_ones(queries, queries, dtype=torch.bool).triu_(1)
        return rows.masked_fill(unseen, float("-inf"))

    rows = bias.cached(("rows", exact, causal), make)
    return rows.expand(*call.q.shape[:2], queries, -1)


def step_of(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any,
    k_at: Any,
    mask: Mask | Seen | None,
    scale: float | None,
) -> Step | None:
    """Look up the `Step` of these inputs, kept with the positions of the keys; None: no step.

    A token that is decoded asks this in every layer, so that each look-up here counts: the kernel
    has just swept the processor's caches, and what is touched comes from further off.
    """
    if is_grad_enabled() or transformed():
        return None
    if not (type(q) is type(k) is type(v) is Tensor and q.is_cpu and k.is_cpu and v.is_cpu):
        return None
    if not (scale is None or type(scale) is float):
        return None
    k_at, shape = at if k_at is None else k_at, q.shape
    # Objects are told apart by their ids, which the step keeps taken by holding the objects. Parts
    # of a sum may be exchanged, so they are in the key too.
    key = id(encoding), id(at), id(mask), scale, shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype
    key += is_inference_mode_enabled(), is_autocast_cpu()
    if isinstance(encoding, Sum):
        key += tuple(map(id, leaves(encoding)))
    steps = getattr(k_at, "__dict__", _NOTHING).get("_steps")
    step = None if steps is None else steps.get(key)
    if step is not None and unchanged(step.positions):
        if scale is not None or encoding.scale(shape[3]) == step.scale:
            return step
    return _new_step(q, encoding, at, k_at, mask, scale, key)


_NOTHING: dict[str, Any] = {}


def _new_step(
    q: Heads,
    encoding: Encoding,
    at: Any,
    k_at: Any,
    mask: Mask | Seen | None,
    scale: float | None,
    key: tuple[Any, ...],
) -> Step | None:
    if q.ndim != 4 or not isinstance(encoding, Encoding):
        return None
    if q.shape[2] > MOST_QUERIES and not {*encoding.acts_on} <= TURNS:
        return None
    if not (mask is None or isinstance(mask, Mask)):
        return None
    made_of: tuple[Any, ...] = encoding, at, k_at, mask
    if not isinstance(k_at, Tensor):
        if not (isinstance(k_at, Prepared) and isinstance(k_at, tuple) and isinstance(at, tuple)):
            return None
        made_of += (*at, *k_at)  # its tensors
    if isinstance(encoding, Sum):
        made_of += leaves(encoding)
    if isinstance(mask, Mask) and mask.made_of:
        made_of += mask.made_of
    tensors = {id(x): x for x in made_of if isinstance(x, Tensor)}.values()
    versions = [version_of(x) for x in tensors]
    if None in versions or not readable(*tensors):
        return None
    scale = encoding.scale(q.shape[3]) if scale is None else scale
    steps = vars(k_at).setdefault("_steps", CachedValues())
    if len(steps) >= MOST_ENTRIES:
        steps.pop(next(iter(steps)), None)
    others = tuple([x for x in made_of if x is not k_at])
    steps[key] = step = Step(scale, others, versions)  # type: ignore[arg-type]
    return step
