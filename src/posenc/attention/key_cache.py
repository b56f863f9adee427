"""Keys and values of the tokens so far, so that each new token costs one query.

Keys are kept as they enter the dot product, values as they are weighed: nothing is turned twice.
Where an encoding widens keys, or copies them for each head, they are kept as they were projected,
and encoded again in every call: that is less memory, and Transformer-XL has a faster form of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from posenc.attention.attend import attend
from posenc.core.cache import carry
from posenc.core.encoding import Encoding
from posenc.core.masks import CAUSAL, Mask
from posenc.core.prepared import Parts, appended, cut, where_tokens
from posenc.core.shapes import Bias, Heads, Keys, Seen, Values
from posenc.core.sum import Sum, leaves

SCORES = {"on_scores", "by_weight"}


@dataclass
class Held:
    """The keys, values and positions of the tokens so far, in one layer."""

    k: Keys
    v: Values
    ats: list[Any]  # of each leaf of the encoding: its `at`; None where no later query needs it
    scoring: Sum  # the hooks that still act on encoded keys
    encoded: bool  # whether `k` and `v` are as `on_keys` and `on_values` return them


@dataclass
class Cache:
    """Empty at first; `layer(x, cache=cache)` adds the tokens of x, layer by layer.

    One serves all layers of a stack; a layer that a stack passes through twice needs two.
    """

    held: WeakKeyDictionary[nn.Module, Held] = field(default_factory=WeakKeyDictionary, init=False)

    @property
    def tokens(self) -> int:
        return max((held.k.shape[-2] for held in self.held.values()), default=0)

    def tokens_of(self, layer: nn.Module) -> int:
        """The number that this layer has seen: while a stack is at work, layers differ."""
        held = self.held.get(layer)
        return 0 if held is None else held.k.shape[-2]

    def to(self, device: torch.device | str) -> "Cache":
        """A cache on this device; the layers are moved by themselves."""
        moved = Cache()
        for layer, held in self.held.items():
            ats = [at if at is None else at.to(device) for at in held.ats]
            moved.held[layer] = replace(held, k=held.k.to(device), v=held.v.to(device), ats=ats)
        return moved


def attend_cached(
    layer: nn.Module,
    cache: Cache,
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any,
    mask: Mask | Seen | None = None,
    **how: Any,
) -> Tensor:
    """Add new tokens to the cache, and attend from them to all that it holds then.

    `at` is of the new tokens; `mask` is of the whole text so far, its queries and its keys;
    `how` goes to `attend`.
    """
    held, start, encodings = cache.held.get(layer), cache.tokens_of(layer), leaves(encoding)
    scale, ats = encoding.scale(q.shape[-1]), list(_flat(at))
    if held is not None and held.k.shape[0] != k.shape[0]:
        raise ValueError(
            f"`cache` holds a batch of {held.k.shape[0]}, `x` is a batch of {k.shape[0]}: start"
            " with an empty `Cache()`."
        )
    encoded = keeps_keys(encoding, k, at) if held is None else held.encoded
    if held is None:
        scoring = Sum(*[Scoring(leaf) for leaf in encodings if SCORES & {*leaf.acts_on}])
        scoring.axes = encoding.axes
        held = Held(k[..., :0, :], v[..., :0, :], [None] * len(encodings), scoring, encoded)
    place, all_ats = where_tokens(encoding.axes), []
    for index, leaf in enumerate(encodings):
        goes_on = type(leaf).on_hidden is not Encoding.on_hidden
        needed = goes_on or not encoded or SCORES & {*leaf.acts_on}
        before = held.ats[index]
        so_far = ats[index] if before is None else appended(before, ats[index], place)
        carry(before, so_far)
        all_ats.append(so_far if needed else None)
        if goes_on:  # sums over tokens go on from the last in the cache
            ats[index] = cut(so_far, slice(start, None), place)
    if encoded:
        for leaf, leaf_at in zip(encodings, ats, strict=True):
            q, k = leaf.on_queries(q, leaf_at), leaf.on_keys(k, leaf_at)
            v = leaf.on_values(v, leaf_at)
    k, v = (torch.cat(both, -2) for both in ((held.k, k), (held.v, v)))
    cache.held[layer] = replace(held, k=k, v=v, ats=all_ats)
    mask = of_last(mask, start, k.shape[-2], k.shape[0])
    if not encoded:
        at, k_at = (_nested(encoding, iter(parts)) for parts in (ats, all_ats))
        return attend(q, k, v, encoding, at, k_at, mask, scale, **how)
    scored = [index for index, leaf in enumerate(encodings) if SCORES & {*leaf.acts_on}]
    at, k_at = (held.scoring.of_parts(parts[index] for index in scored) for parts in (ats, all_ats))
    out = attend(q, k, v, held.scoring, at, k_at, mask, scale, **how)
    for leaf, leaf_at in zip(reversed(encodings), reversed(ats), strict=True):
        out = leaf.on_output(out, leaf_at)
    return out


@torch.no_grad()
def keeps_keys(encoding: Encoding, k: Keys, at: Any) -> bool:
    """Test on one token whether keys that the encoding acts on keep their heads and channels."""
    first_key, at = k[..., :1, :], cut(at, slice(1), where_tokens(encoding.axes))
    return encoding.on_keys(first_key, at).shape == first_key.shape


class Scoring(Encoding):
    """The rest of an encoding once keys are encoded: its bias, and what it adds by weight."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.encoding, self.axes, self.prepared = encoding, encoding.axes, encoding.prepared

    def prepare(self, pos: Tensor) -> Any:
        return self.encoding.prepare(pos)

    def on_scores(self, q: Heads, k: Keys, q_at: Any, k_at: Any, scale: float) -> Bias | None:
        return self.encoding.on_scores(q, k, q_at, k_at, scale)

    def by_weight(self, weights: Tensor, q_at: Any, k_at: Any, rows: slice) -> Tensor | None:
        return self.encoding.by_weight(weights, q_at, k_at, rows)

    @property
    def acts_on(self) -> tuple[str, ...]:
        return tuple(hook for hook in self.encoding.acts_on if hook in SCORES)


def of_last(mask: Mask | Seen | None, start: int, tokens: int, batch: int) -> Mask | Seen | None:
    """Cut the mask of all `tokens` down to the queries from `start` on."""
    if mask is None or not start or (mask is CAUSAL and tokens - start == 1):
        return None if mask is CAUSAL and start else mask
    full_mask = mask if isinstance(mask, Mask) else Mask(mask)
    return full_mask.of_last(start, tokens, batch)


def _flat(at: Any) -> Iterator[Any]:
    """The `Prepared` or positions of each of the `leaves` of a sum, in their order."""
    if isinstance(at, Parts):
        for part in at.parts:
            yield from _flat(part)
    else:
        yield at


def _nested(encoding: Encoding, ats: Iterator[Any]) -> Any:
    """The inverse of `_flat`."""
    if isinstance(encoding, Sum):
        return encoding.of_parts([_nested(part, ats) for part in encoding])
    return next(ats)
