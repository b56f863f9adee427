"""A cache of keys and values, so that decoding computes one query per new token.

Keys and values are stored in buffers with space for as many more tokens, so that a new token is
written without copying the others. Only one cache writes to a buffer, after its own tokens; a
branch or a cropped cache starts with a new buffer. Tensors returned earlier therefore never change.

Keys are stored after `on_keys`, and values after `on_values`, so that rotations are applied once.
If an encoding widens keys, or copies them for each head, keys and values are stored before these
hooks and encoded in every call. This needs less memory, and is faster for Transformer-XL.

Keys, values and the results of `on_hidden` are the only stored values that depend on weights.
`Prepared.precomputed` may add keys that are transformed by the tokens after them.
"""

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from posenc.attention.attend import apply_qkv_hooks
from posenc.attention.dispatch import run
from posenc.attention.inputs import check_tensors, resolve_softmax
from posenc.attention.masked_inputs import zero_fully_masked
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
SMALLEST_BUFFER = 64  # tokens
Buffers = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class CachedTokens:
    """Cached keys, values and positions of one layer; adding tokens creates a new object."""

    k: Keys
    v: Values
    ats: list[Any]  # the `at` of each leaf of the encoding; None if later queries do not need it
    encoded: bool  # True if `k` and `v` are results of `on_keys` and `on_values`
    axes: int  # coordinates of a position
    pos: Tensor | None = None  # positions of all tokens, if any were given; None: 0, 1, 2, …
    called_before: bool = False  # True if the layer has been called more than once
    buffers: Buffers | None = None  # memory that begins with k, and with v

    @property
    def tokens(self) -> int:
        return self.k.shape[-2]

    def mapped(self, of_tensor: Any, of_at: Any) -> "CachedTokens":
        """Return a copy with changed keys, values and positions.

        - `of_tensor`: function of keys, or of values
        - `of_at`: function of positions and of the place of their token axis
        """
        place = where_tokens(self.axes)
        *ats, pos = [of_at(at, place) for at in (*self.ats, self.pos)]
        k, v = of_tensor(self.k), of_tensor(self.v)
        return replace(self, k=k, v=v, ats=ats, pos=pos, buffers=None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the unused memory of buffers."""
        return vars(replace(self, k=self.k.clone(), v=self.v.clone(), buffers=None))


@dataclass(eq=False)
class Cache:
    """Keys and values of earlier tokens: `layer(x, cache=cache)` adds the tokens of x.

    A new `Cache()` is empty. All layers of a stack share one cache, and each layer is called once
    for each piece of the text; a layer that is called twice per piece needs two caches. A call that
    raises an error adds nothing.

    `copy.copy` and `copy.deepcopy` return an independent branch for the same layers. A deep copy
    together with the layers belongs to the copied layers.

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
    # Positions of the call in progress, by layer
    pending_positions: dict[nn.Module, Tensor] = field(default_factory=dict, init=False)

    @property
    def tokens(self) -> int:
        return max([held.tokens for held in self.held.values()], default=0)

    def tokens_of(self, layer: nn.Module) -> int:
        """Return the number of tokens that the cache has for `layer`.

        Between layers of a forward pass, the earlier ones have more.

        - `layer`: the `SelfAttention`
        """
        held = self.held.get(layer)
        return 0 if held is None else held.tokens

    def to(self, device: torch.device | str) -> "Cache":
        """Return a copy of the cache on another device; move the layers there separately.

        - `device`: device of the copy
        """
        of_at = lambda at, _: None if at is None else at.to(device)  # noqa: E731
        return self._mapped(lambda x: x.to(device), of_at)

    def crop(self, tokens: int) -> None:
        """Drop all but the first tokens; the next call continues after the last kept token.

        - `tokens`: number to keep; a negative number drops as many from the end

        Raises ValueError for more tokens than every layer has.
        """
        left = whole_number(tokens, "tokens") + (self.tokens if tokens < 0 else 0)
        least = min([held.tokens for held in self.held.values()], default=0)
        if not 0 <= left <= least:
            raise ValueError(
                f"`tokens` must be from 0 to {least}, the number of tokens that every layer"
                f" has cached, got {tokens}. Pass {least} to keep all of them."
            )
        some = slice(left)
        of_at = lambda at, place: slice_tokens(at, some, place)  # noqa: E731
        self.held = self._mapped(lambda x: x[..., some, :], of_at).held

    def reorder(self, texts: Tensor) -> None:
        """Select texts of the batch in a new order, for beam search.

        - `texts`: indices of texts, (new batch,); a text may occur twice, or not at all

        Raises TypeError for other tensors, and IndexError for indices outside of the batch.
        """
        batch = max([held.k.shape[0] for held in self.held.values()], default=0)
        if not isinstance(texts, Tensor) or texts.ndim != 1 or texts.dtype not in INTEGERS:
            raise TypeError(
                f"`texts` must be a vector of batch indices, integers, got {brief(texts)}."
                " Pass `torch.tensor([0, 0, 2])`, for instance."
            )
        if texts.numel() and not 0 <= int(texts.min()) <= int(texts.max()) < batch:
            raise IndexError(
                f"`texts` must be batch indices from 0 to {batch - 1}, because {batch} texts are"
                f" cached, got {texts.tolist()}."
            )
        of_at = lambda at, place: select_batch(at, texts, place)  # noqa: E731
        self.held = self._mapped(lambda x: x.index_select(0, texts.to(x.device)), of_at).held

    def __copy__(self) -> "Cache":
        return self._mapped(lambda x: x, lambda at, _: at)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cache":
        """Return a deep copy of the cache.

        If the layers are copied in the same call, the new cache belongs to the new layers.
        """
        branch = copy(self)
        branch.held = {memo.get(id(layer), layer): held for layer, held in branch.held.items()}
        return branch

    def _mapped(self, of_tensor: Any, of_at: Any) -> "Cache":
        branch = Cache()
        branch.held = {key: held.mapped(of_tensor, of_at) for key, held in self.held.items()}
        return branch


INTEGERS = (torch.int64, torch.int32)


def refuse_by_length(encoding: Encoding) -> None:
    """Raise ValueError if an encoding depends on the text length, so that keys cannot be cached.

    Each encoding of a `Sum` is checked.
    """
    for leaf in leaves(encoding):
        if leaf.by_length:
            raise ValueError(
                f"`cache` must be None with {type(leaf).__name__}, because each new token changes"
                " the length of the text, and with it the encoding of all earlier tokens. Pass the"
                " whole text in every call."
            )


def positions(cache: Cache | None, layer: nn.Module, x: Tensor, pos: Any, axes: int) -> Any:
    """Return the positions of new tokens: `pos`, or by default the next ones after the cache."""
    held = None if cache is None else cache.held.get(layer)
    known = None if held is None else held.pos
    if cache is not None:
        # Drop the positions of a call that raised an error
        cache.pending_positions.pop(layer, None)
    if pos is None:
        if known is None:
            start = 0 if held is None else held.tokens
            return torch.arange(start, start + x.shape[-2], device=x.device)
        if axes > 1:
            raise ValueError(
                f"`pos` must be points (token, {axes}), got None. Pass the points of the new"
                " tokens, because the next point does not follow from the cached ones."
            )
        pos = known[..., -1:] + torch.arange(1, x.shape[-2] + 1, device=x.device)
    if cache is not None:
        cache.pending_positions[layer] = pos = exact_copy(pos)
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
    """Add new tokens to the cache, and compute their attention to all cached tokens.

    `at` belongs to the new tokens, and `mask` to all queries and keys of the text so far; `how` are
    further arguments of `attend`.
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
        # Sums over tokens continue from the last cached token
        at = slice_tokens(so_far, last, place) if goes_on else part.at
        new.append(part._replace(at=at, k_at=at))
        parts.append(part._replace(at=at, k_at=all_ats[-1]))
    if held.encoded:
        q, k = queries_and_keys(new, q, k)
        v = applied("on_values", new, v, q.shape[1])
    k, v, buffers = _joined(held, k, v)
    mask = of_last(mask, held.tokens, k.shape[-2], k.shape[0])
    call = resolve_softmax(encoding, parts, q, k, v, mask, scale, **how)
    if not held.encoded:
        call = apply_qkv_hooks(call)
    elif call.hides:
        call = zero_fully_masked(call)
    out = applied("on_output", parts, run(call))
    if held.encoded:
        all_ats = [at.precomputed(k) if isinstance(at, Prepared) else at for at in all_ats]
    pos = _all_positions(held, cache.pending_positions.pop(layer, None), place)
    before = layer in cache.held
    cache.held[layer] = CachedTokens(k, v, all_ats, held.encoded, held.axes, pos, before, buffers)
    return out


def _joined(held: CachedTokens, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Buffers | None]:
    """Append new keys and values to the cached ones, in place if the buffers have room.

    Gradients, transforms and compilers do not allow writes, so tensors are concatenated for them.
    """
    before, new = (held.k, held.v), (k, v)
    fit = all([_fits(more, x) for more, x in zip(new, before, strict=True)])
    if torch.is_grad_enabled() or transformed() or not fit:
        k, v = (torch.cat(both, -2) for both in zip(before, new, strict=True))
        return k, v, None
    start, stop, buffers = held.tokens, held.tokens + k.shape[2], held.buffers
    if buffers is None or buffers[0].shape[2] < stop:
        buffers = _grow(held.k, stop), _grow(held.v, stop)
    for memory, more in zip(buffers, new, strict=True):
        # Write through `.data` to skip autograd's version counter; saved tensors end before `start`
        memory.data[:, :, start:stop] = more
    return buffers[0][:, :, :stop], buffers[1][:, :, :stop], buffers


def _fits(more: Tensor, x: Tensor) -> bool:
    """Test whether new keys or values can be appended to the cached ones without conversion."""
    (*heads, _, channels), (*others, _, others_channels) = x.shape, more.shape
    alike = heads == others and channels == others_channels and x.dtype is more.dtype
    return alike and x.device == more.device and unwrapped(more)


def _grow(x: Tensor, tokens: int) -> Tensor:
    """Return a buffer with room for twice `tokens` tokens, with x copied to its start."""
    batch, heads, before, channels = x.shape
    # Inference tensors cannot be written to outside of inference mode
    with torch.inference_mode(False), torch.no_grad():
        memory = x.new_empty(batch, heads, max(SMALLEST_BUFFER, 2 * tokens), channels)
    memory[:, :, :before] = x
    return memory


def _held(
    cache: Cache, layer: nn.Module, encoding: Encoding, k: Keys, v: Values, at: Any
) -> CachedTokens:
    """Return the cached tokens of a layer, or an empty `CachedTokens` in its first call."""
    held = cache.held.get(layer)
    if held is None:
        if any([other.called_before for other in cache.held.values()]):
            raise ValueError(
                f"`cache` must be empty when a layer first uses it, got {cache.tokens} tokens of"
                " earlier passes. Call every layer from the first token on, and copy layers"
                " together with their cache, `copy.deepcopy((layers, cache))`."
            )
        encoded = keeps_keys(encoding, k, at)
        none = [None] * len(leaves(encoding))
        return CachedTokens(k[..., :0, :], v[..., :0, :], none, encoded, encoding.axes)
    if held.k.shape[0] != k.shape[0]:
        raise ValueError(
            f"`x` must have the batch size of `cache`, {held.k.shape[0]}, got {k.shape[0]}. Start"
            " with an empty `Cache()`."
        )
    return held


def _all_positions(
    held: CachedTokens, given: Tensor | None, place: tuple[int, int]
) -> Tensor | None:
    """Return the positions of all tokens so far, cached and new.

    Returns None if no positions were passed, which means 0, 1, 2, …
    """
    if given is None or not held.tokens:
        return given
    known = sequence(held.tokens, 0, given.device) if held.pos is None else held.pos
    return appended(known, given, place)


@torch.no_grad()
def keeps_keys(encoding: Encoding, k: Keys, at: Any) -> bool:
    """Test, with one token, whether `on_keys` preserves the number of heads and of channels."""
    first_key, at = k[..., :1, :], slice_tokens(at, slice(1), where_tokens(encoding.axes))
    return applied("on_keys", placed(encoding, at, at), first_key).shape == first_key.shape


def of_last(mask: Mask | Seen | None, start: int, tokens: int, batch: int) -> Mask | Seen | None:
    """Restrict a mask to the queries of the new tokens.

    `start` is the index of the first new token, and `tokens` the number of all tokens.
    """
    if mask is None or not start or (mask is CAUSAL and tokens - start == 1):
        return None if mask is CAUSAL and start else mask
    refuse_no_function(mask)
    full_mask = mask if isinstance(mask, Mask) else Mask(mask)
    return full_mask.of_last(start, tokens, batch)
