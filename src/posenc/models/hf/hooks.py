"""Forward hooks that apply another positional encoding inside a transformers model.

    ModelHook   runs before the model: computes positions, and adds to embeddings
    Pass        values that the layers of one forward pass share
    SiteHook    runs before each attention: passes it a rotation table or an `Attention`
    Encoded     wraps the cache of a layer, and encodes new keys before they are stored
    Attention   attention of one layer in one pass, called through transformers' registry

A `Pass` travels as a keyword argument of the model, so that several can run at once and gradient
checkpointing finds the one whose layers it repeats. If a model does not forward keyword arguments,
`RunningPass` holds the pass while the model runs. Keys of `Pass.shared` must not contain the number
of tokens: a compiled graph would depend on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.attend import attend
from posenc.attention.decoding import Decoding
from posenc.compat.private_torch import assert_async
from posenc.core.encoding import Encoding
from posenc.core.frequencies import join, split
from posenc.core.masks import Mask
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE
from posenc.models.hf.discovery import AttentionSite, is_gptj
from posenc.models.hf.masks import mask_of
from posenc.models.hf.registry import CALL, NAME
from posenc.rotation.table import Turn

ByLength = Callable[[int], Encoding]  # number of tokens of a text → its encoding
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Pass:
    """Token positions in one forward pass, and values that its layers share."""

    pos: Tensor  # positions of the new tokens, (batch or 1, token)
    start: int | Tensor  # tokens in the cache; a tensor if a static cache is traced
    all_pos: Tensor  # positions of cached and new tokens; if traced, of the whole static cache
    shared: dict[Any, Any] = field(default_factory=dict)

    @property
    def end(self) -> int | None:
        """Number of cached plus new tokens; None when compiling with a static cache."""
        return None if isinstance(self.start, Tensor) else self.start + self.pos.shape[1]


@dataclass
class RunningPass:
    """Holder of the current `Pass`, for models that do not forward keyword arguments to layers."""

    run: Pass | None = None

    def ends(self, *_: Any) -> None:
        self.run = None


@dataclass(frozen=True)
class ModelHook:
    """Pre-hook of the model's forward pass, which computes positions.

    It also adds the encoding's position table, if there is one, to the embeddings.
    """

    names: tuple[str, ...]  # names of the arguments of the model's forward pass
    running: RunningPass | None  # None: the model forwards keyword arguments
    bottom: Encoding | None  # encoding that acts on embeddings
    by_length: bool
    rotation: bool
    record: str  # attribute that is set on a cache, with the positions of all its tokens

    def __call__(self, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if not self.rotation and base.config._attn_implementation != NAME:
            raise ValueError(
                f"The attention implementation of the model must be {NAME!r} while an encoding is"
                f" applied, got {base.config._attn_implementation!r}. Call `remove(model)` before"
                " `set_attn_implementation`."
            )
        arguments = dict(zip(self.names, args, strict=False)) | kwargs
        x = next(x for x in map(arguments.get, ("input_ids", "inputs_embeds")) if x is not None)
        cache = arguments.get("past_key_values")
        start = _tokens(cache)
        pos = self.positions(base, arguments, x, start)
        if "position_ids" in self.names:
            arguments["position_ids"] = pos
        if self.bottom is not None:
            if self.bottom.by_length and (isinstance(start, Tensor) or start):
                raise ValueError(
                    f"`use_cache` must be False with {type(self.bottom).__name__}, which depends on"
                    " the length of the text, got a cache with tokens. Pass `use_cache=False`."
                )
            ids, x = arguments.pop("input_ids", None), arguments.get("inputs_embeds")
            x = base.get_input_embeddings()(ids) if x is None else x
            arguments["inputs_embeds"] = self.bottom.on_embeddings(x, self.bottom.prepare(pos))
        all_pos = pos if cache is None else recorded(cache, self.record, pos, start, len(x))
        run = Pass(pos, start, all_pos)
        if self.running is None:
            return (), {**arguments, NAME: run}
        self.running.run = run
        return (), arguments

    def positions(
        self, base: Any, arguments: dict[str, Any], x: Tensor, start: int | Tensor
    ) -> Tensor:
        """Return `position_ids` if passed, otherwise count from 0 at the first real token."""
        pos, mask = arguments.get("position_ids"), arguments.get("attention_mask")
        # M-RoPE has positions on three axes, which are equal for text
        if pos is not None and pos.ndim == 3:
            if not _traced() and (pos != pos[:1]).any():
                raise ValueError(
                    "`position_ids` must be the same on all axes, as for a text without images,"
                    " got different ids on the axes. Pass `position_ids` of shape (batch, token),"
                    " and only texts without images."
                )
            pos = pos[0]
        counted = (torch.arange(x.shape[1], device=x.device) + start).unsqueeze(0)
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            if pos is not None:
                self._refuse_packed(base, pos, arguments)
            return counted if pos is None else pos
        if not isinstance(start, Tensor) and mask.shape[1] < start + x.shape[1]:
            raise ValueError(
                f"`attention_mask` must have {start + x.shape[1]} tokens, for the cached and the"
                f" new tokens, got {mask.shape[1]}."
            )
        real = mask.to(x.device) != 0
        pos = counted - real.int().argmax(-1, keepdim=True) if pos is None else pos
        new = real[:, counted[0]] if isinstance(start, Tensor) else real[:, start:][:, : x.shape[1]]
        return pos.masked_fill(~new, 0)

    def _refuse_packed(self, base: Any, pos: Tensor, arguments: dict[str, Any]) -> None:
        if pos.shape[1] < 2 or (self.rotation and not self.by_length):
            return
        chosen = arguments.get("use_cache")
        caches = base.config.use_cache if chosen is None else chosen
        if not self.by_length and not (caches and arguments.get("attention_mask") is None):
            return
        counted = (pos.diff() >= 0).all()
        if torch.compiler.is_compiling():
            assert_async(counted, "several texts in one sequence need `use_cache=False`")
        elif self.by_length and not counted:
            raise ValueError(
                "`position_ids` must be ascending in each sequence, got several texts in one"
                " sequence. The encoding depends on the length of each text. Pass one text per"
                " sequence."
            )
        elif not counted:
            raise ValueError(
                "`use_cache` must be False for several texts in one sequence, got True. With"
                " a cache, transformers does not separate the texts. Pass `use_cache=False`."
            )


def _tokens(cache: Any) -> int | Tensor:
    """Return the number of cached tokens: an int, or a tensor if compiled with a static cache."""
    if cache is None:
        return 0
    # Sliding layers have a Python number, which a trace would fix, so another layer is used
    sliding = getattr(cache, "is_sliding", [])
    tokens = cache.get_seq_length(sliding.index(False) if False in sliding else 0)
    return int(tokens) if isinstance(tokens, Tensor) and not _traced() else tokens


def recorded(cache: Any, record: str, pos: Tensor, start: int | Tensor, batch: int) -> Tensor:
    """Append positions to those stored on a cache, and return all of them, (batch or 1, token)."""
    known = getattr(cache, record, None)
    if getattr(cache, "is_compileable", False):
        return _recorded_in_place(cache, record, known, pos, start, batch)
    # The cache may have been cropped
    known = pos[:, :0] if known is None else known[:, :start]
    rows = max(len(known), len(pos))
    if known.shape[1] < start or len(known) not in (1, rows) or len(pos) not in (1, rows):
        _refuse_foreign(start, known, pos)
    all_pos = torch.cat((known.expand(rows, -1), pos.expand(rows, -1)), -1)
    setattr(cache, record, all_pos)
    return all_pos


def _recorded_in_place(
    cache: Any, record: str, room: Tensor | None, pos: Tensor, start: int | Tensor, batch: int
) -> Tensor:
    """Write positions into a fixed-size tensor on a static cache, to avoid recompilation."""
    tokens = pos.shape[1]
    if room is None and (isinstance(start, Tensor) or start):
        _refuse_foreign(start, pos[:, :0], pos)
    if room is not None and len(room) != batch:
        _refuse_foreign(start, room, pos.expand(batch, -1))
    if room is None:
        room = pos.new_zeros(batch, max(cache.get_max_length(), tokens))
    elif isinstance(start, int) and start + tokens > room.shape[1]:
        # If every layer slides, the maximum length of the cache is below that of the text
        room = F.pad(room, (0, start + tokens))
    room.index_copy_(1, torch.arange(tokens, device=pos.device) + start, pos.expand(batch, -1))
    setattr(cache, record, room)
    return room if isinstance(start, Tensor) else room[:, : start + tokens]


def _refuse_foreign(start: int | Tensor, known: Tensor, pos: Tensor) -> None:
    tokens = "" if isinstance(start, Tensor) else f"{start} "
    raise ValueError(
        f"`past_key_values` must contain {tokens}tokens that were computed with this encoding, for"
        f" a batch of {len(pos)}, got {known.shape[1]} such tokens for a batch of {len(known)}."
        " Start from an empty cache."
    )


def _traced() -> bool:
    return torch.compiler.is_compiling()


CACHES = ("past_key_values", "past_key_value", "layer_past")  # names of the cache argument


@dataclass(frozen=True)
class SiteHook:
    """Pre-hook that gives an attention module cosines and sines, or an `Attention`."""

    site: AttentionSite
    kind: int  # number of its encoding; layers with the same encoding share prepared values
    encoding: Encoding | ByLength  # as passed to `apply`
    turning: Encoding  # the part that acts on queries and keys only
    rest: Encoding  # the other parts
    scale: float | None  # softmax scale; None: the model's own
    caches_keys: bool  # True: the cache contains the keys that are attended to
    running: RunningPass | None
    # True: the model's own attention runs, with our table; False: its rotation is the identity
    rotation: bool
    record: str  # attribute that is set on a cache, with the positions of all its tokens

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        arguments = dict(zip(self.site.names, args, strict=False)) | kwargs
        x = next(x for x in arguments.values() if isinstance(x, Tensor))
        name = next((name for name in CACHES if name in arguments), "")
        cache = arguments.get(name)
        run = arguments.pop(NAME, None) or self.current_pass(module, cache, arguments)
        if cache is not None and not hasattr(cache, self.record):
            # The model has just created this cache
            setattr(cache, self.record, run.all_pos)
        if self.rotation or is_gptj(module):
            key = "table", self.kind if self.rotation else None, self.site.rotated
            if key not in run.shared:
                run.shared[key] = self.table(self.angles(run), x)
            self.set_table(module, run.shared[key], arguments)
        if not self.rotation:
            attention = self.attention(cache, run)
            self.set_attention(module, attention)
            if cache is not None and self.caches_keys:
                arguments[name] = Encoded(cache, attention)
        return (), arguments

    def set_table(self, module: Any, table: Any, arguments: dict[str, Any]) -> None:
        arguments[self.site.argument] = table

    def set_attention(self, module: Any, attention: "Attention") -> None:
        setattr(module, CALL, attention)

    def current_pass(self, module: Any, cache: Any, arguments: dict[str, Any]) -> Pass:
        """Return the `Pass` that the model stored, or build one from its arguments."""
        if self.running is not None and self.running.run is not None:
            return self.running.run
        if "position_ids" in arguments:
            return self.pass_of_positions(cache, arguments["position_ids"])
        raise ValueError(
            f"{type(module).__name__} must run within its model, which computes its positions. Call"
            " the model, without gradient checkpointing."
        )

    def pass_of_positions(self, cache: Any, pos: Tensor) -> Pass:
        """Build a `Pass` from `position_ids`, because GPT-J passes no `Pass` to its attention."""
        start = 0 if cache is None else cache.get_seq_length(self.site.index)
        start = int(start) if isinstance(start, Tensor) and not _traced() else start
        run = Pass(pos, start, getattr(cache, self.record, pos))
        return run if run.end is None else replace(run, all_pos=run.all_pos[:, : run.end])

    def angles(self, run: Pass) -> Turn | None:
        """Return (cos, sin) for the model's own rotation code; None if it must not rotate."""
        if isinstance(self.encoding, Encoding):
            turns = self.rotation and isinstance(self.encoding, RoPE)
            return self.encoding.prepare(run.pos) if turns else None
        old, new = _lengths(run.all_pos[:, : run.start]), _lengths(run.all_pos)
        by_length: dict[int, Any] = {tokens: self.encoding(tokens) for tokens in {*old, *new}}
        for before, now in zip(old, new, strict=False):
            cached, current = by_length[before], by_length[now]
            if not torch.equal(cached.freqs, current.freqs) or cached.gain != current.gain:
                raise ValueError(
                    f"`use_cache` must be False if RoPE's frequencies change with the length, got"
                    f" {before} cached tokens in a text of {now}. Cached keys and values of deeper"
                    " layers would be wrong. Pass the whole text again with `use_cache=False`."
                )
        rows = zip(new, run.all_pos[:, -run.pos.shape[1] :], strict=True)
        turns = [by_length[tokens].prepare(row) for tokens, row in rows]
        return Turn(*map(torch.stack, zip(*turns, strict=True)))

    def table(self, by: Turn | None, x: Tensor) -> Any:
        """Return cosines and sines in the model's format; pairs without rotation have 1 and 0."""
        pairs = self.site.rotated // 2
        if by is None:
            cos = torch.ones(1, x.shape[1], pairs, device=x.device)
            return self.site.table(cos, torch.zeros_like(cos), x.dtype)
        cos, sin = (part.squeeze(-3) for part in by)
        if not self.site.fewer:
            rest = (0, pairs - cos.shape[-1])
            cos, sin = F.pad(cos, rest, value=1.0), F.pad(sin, rest)
        return self.site.table(cos, sin, x.dtype)

    def attention(self, cache: Any, run: Pass) -> "Attention":
        """Return this layer's `Attention`, shared with layers of equal encoding and window."""
        window = None if cache is None else _window(cache, self.site.index)
        key = "attention", self.kind, cache is None, window, self.scale, self.site.apart
        if key not in run.shared:
            run.shared[key] = self.prepared(cache, run)
        return run.shared[key]

    def prepared(self, cache: Any, run: Pass) -> "Attention":
        """Prepare the encoding for the new tokens and for the keys that the cache will return."""
        pos, k_pos, tokens = run.pos, run.pos, run.pos.shape[1]
        if cache is not None:
            keys, first = cache.get_mask_sizes(tokens, self.site.index)
            stop = first + keys if run.end is None else min(first + keys, run.end)
            k_pos = run.all_pos[:, first:stop]
            if isinstance(run.start, Tensor):
                k_pos = F.pad(k_pos, (0, max(0, stop - run.all_pos.shape[1])))
        at = self.turning.prepare(pos)
        k_turn = at if cache is None else None
        if cache is not None and not self.caches_keys:
            k_turn = self.turning.prepare(k_pos)
        ats = self.rest.prepare(pos), self.rest.prepare(k_pos)
        more = k_pos.shape[1], self.site.apart, self.scale
        return Attention(self.turning, at, k_turn, self.rest, *ats, *more)


def _window(cache: Any, layer: int) -> int | None:
    """Return the number of keys that a sliding-window cache layer keeps; None if it keeps all."""
    layers = getattr(cache, "layers", ())
    cache_layer: Any = layers[layer] if layer < len(layers) else None
    if not getattr(cache_layer, "is_sliding", False):
        return None
    return getattr(cache_layer, "sliding_window", None) or cache_layer.max_cache_len


class GPTJHook(SiteHook):
    """Forward pre-hook for GPT-J, which bypasses the registry and has its own sine table."""

    def set_table(self, module: Any, table: Any, arguments: dict[str, Any]) -> None:
        tokens = torch.arange(table.shape[1], device=table.device)
        arguments["position_ids"] = tokens.expand(len(table), -1)
        module._get_embed_positions = lambda ids: table

    def set_attention(self, module: Any, attention: "Attention") -> None:
        dropout = module.attn_dropout.p * module.training
        scale = 1 / module.scale_attn
        module._attn = lambda q, k, v, mask: (attention(q, k, v, mask, scale, dropout), None)


def clear(module: Any, args: Any, out: Any) -> None:
    """Delete the attributes that `SiteHook` has set on an attention module; a forward hook."""
    for name in (CALL, "_get_embed_positions", "_attn"):
        vars(module).pop(name, None)


class Encoded:
    """Wrapper of the cache for one layer, which encodes new keys before they are stored."""

    def __init__(self, cache: Any, attention: "Attention"):
        self.cache, self.attention = cache, attention

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.cache.update(self.attention.on_new_keys(keys), values, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)


@dataclass(frozen=True)
class Attention:
    """Attention function of one layer for one forward pass, with the applied encoding."""

    turning: Encoding
    at: Any  # prepared positions of the new tokens, for `turning`
    k_turn: Any  # prepared positions of the keys, for `turning`; None: keys are encoded already
    rest: Encoding
    q_at: Any
    k_at: Any
    keys: int  # number of keys; a static cache also returns unused entries after them
    apart: int  # last channels, which DeepSeek reorders from "interleaved" to "half"
    scale: float | None = None  # softmax scale in place of the model's
    masks: dict[tuple[int, bool], tuple[Any, Any]] = field(default_factory=dict)

    def on_new_keys(self, k: Tensor) -> Tensor:
        return self.turning.on_keys(k, self.at)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float, dropout: float,
        softcap: float | None = None, sinks: Tensor | None = None, causal: bool = True,
    ) -> Tensor:  # fmt: skip
        scale = scale if self.scale is None else self.scale
        if seen is not None and not (isinstance(seen, Tensor) and seen.dtype == torch.bool):
            kind = seen.dtype if isinstance(seen, Tensor) else type(seen).__name__
            name = type(self.rest if isinstance(self.turning, NoPE) else self.turning).__name__
            raise TypeError(
                "`attention_mask` must be 2-D, or 4-D and boolean with True for visible keys, while"
                f" {name} is applied, got {kind}. Pass the 2-D mask of the tokenizer."
            )
        if k.shape[2] > self.keys:
            k, v = k[:, :, : self.keys], v[:, :, : self.keys]
        q, k = self.joined(q), self.joined(k)
        q = self.turning.on_queries(q, self.at)
        if self.k_turn is not None:
            k = self.turning.on_keys(k, self.k_turn)
        mask = self.mask(seen, len(q), q.shape[2], k.shape[2], causal=causal)
        plain = not dropout and softcap is None and sinks is None
        if plain and mask is None and q.shape[2] == 1:
            return self.decoding.attend(q, k, v, scale)
        more: dict[str, Any] = dict(dropout=dropout, softcap=softcap, sinks=sinks)
        return attend(q, k, v, self.rest, self.q_at, self.k_at, mask, scale, **more)

    @cached_property
    def decoding(self) -> Decoding:
        return Decoding(self.rest, self.q_at, self.k_at)

    def mask(self, seen: Tensor | None, *shape: int, causal: bool) -> Mask | None:
        """Return the model's mask as a posenc `Mask`, converted once in each forward pass."""
        if _traced():
            return mask_of(seen, *shape, causal=causal)
        key = id(seen), causal
        if key not in self.masks:
            self.masks[key] = seen, mask_of(seen, *shape, causal=causal)
        return self.masks[key][1]

    def joined(self, x: Tensor) -> Tensor:
        """Convert the last channels, which DeepSeek reorders to layout "half", to "interleaved"."""
        if not self.apart:
            return x
        rest, turned = x.split((x.shape[-1] - self.apart, self.apart), -1)
        return torch.cat((rest, join(*split(turned, "half"), "interleaved")), -1)


def _lengths(pos: Tensor) -> list[int]:
    return (pos.amax(-1) + 1).tolist() if pos.shape[1] else []
