"""Keys and values of the tokens so far, so that each new token costs one query.

They lie in memory with room for as many more, so that a token is written and none is copied. Only
one cache writes there, behind the tokens it has: a branch, or a cache that was cropped, begins
with memory of its own. So what came before never changes, whoever still reads it.

Keys are kept as they enter the dot product, values as they are weighed: nothing is turned twice.
Where an encoding widens keys, or copies them for each head, they are kept as they were projected,
and encoded again in every call: that is less memory, and Transformer-XL has a faster form of it.

Nothing that is kept follows from weights but what a text is made of: its keys and values, and what
`on_hidden` returned for its tokens. `Prepared.precomputed` may add keys, already transformed by the
tokens read since.
"""

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from posenc.attention.attend import encoded
from posenc.attention.dispatch import run
from posenc.attention.inputs import check_tensors, weighing
from posenc.attention.unseen import visible
from posenc.compat.tracing import transformed, unwrapped
from posenc.core.check_positions import checked_at
from posenc.core.encoding import Encoding, leaves, placed
from posenc.core.hooks import applied, queries_and_keys
from posenc.core.masks import CAUSAL, Mask, refuse_no_function
from posenc.core.positions import exact_copy, sequence
from posenc.core.prepared import Prepared, appended, select_batch, slice_tokens, where_tokens
from posenc.core.shapes import Heads, Keys, Seen, Values
from posenc.support.arguments import brief, whole_number

SCORES = {"on_scores", "by_weight"}
LEAST_ROOM = 64  # tokens
Room = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class CachedTokens:
    """The keys, values and positions of the tokens so far, in one layer; never written to."""

    k: Keys
    v: Values
    ats: list[Any]  # the `at` of each leaf of the encoding; None where no later query needs it
    encoded: bool  # whether `k` and `v` are as `on_keys` and `on_values` return them
    axes: int  # numbers that make a position
    pos: Tensor | None = None  # positions of all, if any were given; None: 0, 1, 2, …
    again: bool = False  # whether the layer has been called more than once
    room: Room | None = None  # memory that begins with k, with v; the rest is not written yet

    @property
    def tokens(self) -> int:
        return self.k.shape[-2]

    def mapped(self, of_tensor: Any, of_at: Any) -> "CachedTokens":
        """The same of other tensors, which have no room yet."""
        ats = [None if at is None else of_at(at) for at in self.ats]
        pos = None if self.pos is None else of_at(self.pos)
        k, v = of_tensor(self.k), of_tensor(self.v)
        return replace(self, k=k, v=v, ats=ats, pos=pos, room=None)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: of memory that has more in it, the tokens alone."""
        return vars(replace(self, k=self.k.clone(), v=self.v.clone(), room=None))


@dataclass(eq=False)
class Cache:
    """Keys and values of the tokens so far: `layer(x, cache=cache)` adds those of x.

    A new `Cache()` is empty. One cache serves all layers of a stack, each of which is called once
    for each piece of the text; a layer that a stack passes through twice needs two. A call that is
    refused adds nothing.

    `copy.copy` and `copy.deepcopy` make a branch, which goes on by itself, with the same layers or,
    copied together with them, with the copies.

    >>> import torch
    >>> from posenc import SelfAttention, masks
    >>> layer, cache, x = SelfAttention(16, 2, "rope"), Cache(), torch.randn(1, 5, 16)
    >>> pieces = [layer(some, mask=masks.causal(), cache=cache) for some in x.split(3, 1)]
    >>> torch.allclose(torch.cat(pieces, 1), layer(x, mask=masks.causal()), atol=1e-6)
    True
    >>> cache.tokens
    5
    """

    held: dict[nn.Module, CachedTokens] = field(default_factory=dict, init=False)
    given: dict[nn.Module, Tensor] = field(default_factory=dict, init=False)  # while layers work

    @property
    def tokens(self) -> int:
        return max([held.tokens for held in self.held.values()], default=0)

    def tokens_of(self, layer: nn.Module) -> int:
        """Return the number of tokens that a layer has seen; during a pass through a stack, layers
        differ.

        - `layer`: the `SelfAttention`
        """
        held = self.held.get(layer)
        return 0 if held is None else held.tokens

    def to(self, device: torch.device | str) -> "Cache":
        """Return a copy of the cache on another device; the layers are moved separately.

        - `device`: device of the copy
        """
        to = lambda x: x.to(device)  # noqa: E731
        return self._mapped(lambda held: held.mapped(to, to))

    def crop(self, tokens: int) -> None:
        """Keep the first tokens. The next tokens stand after the last that is left.

        - `tokens`: number to keep; a negative number drops as many from the end

        Raises ValueError for more tokens than every layer has seen.
        """
        left = whole_number(tokens, "tokens") + (self.tokens if tokens < 0 else 0)
        least = min([held.tokens for held in self.held.values()], default=0)
        if not 0 <= left <= least:
            raise ValueError(
                f"`tokens` must leave at most the {least} that every layer has seen, got {tokens}."
            )
        some = slice(left)
        self.held = self._mapped(
            lambda held: held.mapped(
                lambda x: x[..., some, :],
                lambda at: slice_tokens(at, some, where_tokens(held.axes)),
            )
        ).held

    def reorder(self, texts: Tensor) -> None:
        """Select texts of the batch in a new order, as beam search does.

        - `texts`: indices of texts, (new batch,); a text may occur twice, or not at all

        Raises TypeError for other tensors, and IndexError for indices outside of the batch.
        """
        batch = max([held.k.shape[0] for held in self.held.values()], default=0)
        if not isinstance(texts, Tensor) or texts.ndim != 1 or texts.dtype not in INTEGERS:
            raise TypeError(
                f"`texts` must be a tensor of indices of texts, (new batch,), got {brief(texts)}:"
                " `torch.tensor([0, 0, 2])`."
            )
        if texts.numel() and not 0 <= int(texts.min()) <= int(texts.max()) < batch:
            raise IndexError(f"`texts` must be 0 … {batch - 1}, got {texts.tolist()}.")
        take = lambda x: x.index_select(0, texts.to(x.device))  # noqa: E731
        self.held = self._mapped(
            lambda held: held.mapped(
                take, lambda at: select_batch(at, texts, where_tokens(held.axes))
            )
        ).held

    def __copy__(self) -> "Cache":
        return self._mapped(lambda held: replace(held, room=None))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cache":
        """A branch for the copies of layers that were copied before it, together with it."""
        branch = copy(self)
        branch.held = {memo.get(id(layer), layer): held for layer, held in branch.held.items()}
        return branch

    def _mapped(self, change: Any) -> "Cache":
        branch = Cache()
        branch.held = {layer: change(held) for layer, held in self.held.items()}
        return branch


INTEGERS = (torch.int64, torch.int32)


def refuse_by_length(encoding: Encoding) -> None:
    """Raise ValueError for an encoding, or a part of a sum, that depends on the text's length."""
    for leaf in leaves(encoding):
        if leaf.by_length:
            raise ValueError(
                f"`cache` must be None with {type(leaf).__name__}, which depends on the length of"
                " the text, so that each new token changes all before it. Pass the whole text in"
                " every call."
            )


def positions(cache: Cache | None, layer: nn.Module, x: Tensor, pos: Any, axes: int) -> Any:
    """Positions of the tokens of x, (batch, token, channel); None: those after the cache's last."""
    held = None if cache is None else cache.held.get(layer)
    known = None if held is None else held.pos
    if cache is not None:
        # What a refused call gave is dropped.
        cache.given.pop(layer, None)
    if pos is None:
        if known is None:
            start = 0 if held is None else held.tokens
            return torch.arange(start, start + x.shape[-2], device=x.device)
        if axes > 1:
            raise ValueError(
                f"`pos` must say where these tokens stand, points of {axes} axes as before: none of"
                " them is the next."
            )
        pos = known[..., -1:] + torch.arange(1, x.shape[-2] + 1, device=x.device)
    if cache is not None:
        cache.given[layer] = pos = exact_copy(pos)
    return pos


def attend_cached(
    layer: nn.Module,
    cache: Cache,
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any,
    mask: Mask | Seen | None = None,
    scale: float | None = None,
    **how: Any,
) -> Tensor:
    """Add new tokens to the cache, and attend from them to all that it holds then.

    `at` is of the new tokens; `mask` is of the whole text so far, its queries and its keys;
    `how` goes to `attend`.
    """
    refuse_by_length(encoding)
    check_tensors(encoding, q, k, v)
    at = checked_at(encoding, at, q, "`at`")
    held, place = _held(cache, layer, encoding, k, v, at), where_tokens(encoding.axes)
    new, parts, all_ats, tokens = [], [], [], q.shape[-2]
    last = slice(-tokens, None) if tokens else slice(0)
    for part, before in zip(placed(encoding, at, at), held.ats, strict=True):
        goes_on = "on_hidden" in part.acts_on
        so_far = part.at if before is None else appended(before, part.at, place)
        needed = goes_on or not held.encoded or SCORES & {*part.acts_on}
        all_ats.append(so_far if needed else None)
        # Sums over tokens go on from the last token in the cache
        at = slice_tokens(so_far, last, place) if goes_on else part.at
        new.append(part._replace(at=at, k_at=at))
        parts.append(part._replace(at=at, k_at=all_ats[-1]))
    if held.encoded:
        q, k = queries_and_keys(new, q, k)
        v = applied("on_values", new, v, q.shape[1])
    k, v, room = _joined(held, k, v)
    mask = of_last(mask, held.tokens, k.shape[-2], k.shape[0])
    call = weighing(encoding, parts, q, k, v, mask, scale, **how)
    if not held.encoded:
        call = encoded(call)
    elif call.hides:
        call = visible(call)
    out = applied("on_output", parts, run(call))
    if held.encoded:
        all_ats = [at.precomputed(k) if isinstance(at, Prepared) else at for at in all_ats]
    pos = _all_positions(held, cache.given.pop(layer, None), place)
    again = layer in cache.held
    cache.held[layer] = CachedTokens(k, v, all_ats, held.encoded, held.axes, pos, again, room)
    return out


def _joined(held: CachedTokens, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Room | None]:
    """Write new keys and values behind those before, into more room where there is too little.

    Gradients, transforms and compilers want tensors that nobody writes to: these get a copy.
    """
    before, new = (held.k, held.v), (k, v)
    fit = all([_fits(more, x) for more, x in zip(new, before, strict=True)])
    if torch.is_grad_enabled() or transformed() or not fit:
        k, v = (torch.cat(both, -2) for both in zip(before, new, strict=True))
        return k, v, None
    start, stop, room = held.tokens, held.tokens + k.shape[2], held.room
    if room is None or room[0].shape[2] < stop:
        room = _roomier(held.k, stop), _roomier(held.v, stop)
    for memory, more in zip(room, new, strict=True):
        # Through `data`, which counts no versions: graphs may have saved what came before
        memory.data[:, :, start:stop] = more
    return room[0][:, :, :stop], room[1][:, :, :stop], room


def _fits(more: Tensor, x: Tensor) -> bool:
    """Whether keys can be written behind x as they are: none is rounded, moved or broadcast."""
    (*heads, _, channels), (*others, _, others_channels) = x.shape, more.shape
    alike = heads == others and channels == others_channels and x.dtype is more.dtype
    return alike and x.device == more.device and unwrapped(more)


def _roomier(x: Tensor, tokens: int) -> Tensor:
    """Memory that begins with x, for twice so many tokens."""
    batch, heads, before, channels = x.shape
    # An inference tensor could not be written to outside of inference mode
    with torch.inference_mode(False), torch.no_grad():
        memory = x.new_empty(batch, heads, max(LEAST_ROOM, 2 * tokens), channels)
    memory[:, :, :before] = x
    return memory


def _held(
    cache: Cache, layer: nn.Module, encoding: Encoding, k: Keys, v: Values, at: Any
) -> CachedTokens:
    """What the cache holds of this layer; nothing, in its first call."""
    held = cache.held.get(layer)
    if held is None:
        if any([other.again for other in cache.held.values()]):
            raise ValueError(
                f"`cache` holds {cache.tokens} tokens, which this layer has not seen: each layer of"
                " a stack is called from the first token on; a copied layer needs the cache that"
                " was copied with it, `copy.deepcopy((layers, cache))`."
            )
        encoded = keeps_keys(encoding, k, at)
        none = [None] * len(leaves(encoding))
        return CachedTokens(k[..., :0, :], v[..., :0, :], none, encoded, encoding.axes)
    if held.k.shape[0] != k.shape[0]:
        raise ValueError(
            f"`cache` holds a batch of {held.k.shape[0]}, `x` is a batch of {k.shape[0]}: start"
            " with an empty `Cache()`."
        )
    return held


def _all_positions(
    held: CachedTokens, given: Tensor | None, place: tuple[int, int]
) -> Tensor | None:
    """The positions of all tokens, where those of some were given."""
    if given is None or not held.tokens:
        return given
    known = sequence(held.tokens, 0, given.device) if held.pos is None else held.pos
    return appended(known, given, place)


@torch.no_grad()
def keeps_keys(encoding: Encoding, k: Keys, at: Any) -> bool:
    """Test on one token whether keys that the encoding acts on keep their heads and channels."""
    first_key, at = k[..., :1, :], slice_tokens(at, slice(1), where_tokens(encoding.axes))
    return applied("on_keys", placed(encoding, at, at), first_key).shape == first_key.shape


def of_last(mask: Mask | Seen | None, start: int, tokens: int, batch: int) -> Mask | Seen | None:
    """Cut the mask of all `tokens` down to the queries from `start` on."""
    if mask is None or not start or (mask is CAUSAL and tokens - start == 1):
        return None if mask is CAUSAL and start else mask
    refuse_no_function(mask)
    full_mask = mask if isinstance(mask, Mask) else Mask(mask)
    return full_mask.of_last(start, tokens, batch)
