"""The hooks that run inside a transformers model while `adapter` has an encoding applied to it.

    ModelHook   before the model: positions of its tokens; what acts on embeddings
    Pass        what the layers of one forward pass share
    LayerHook   before each layer: the table its rotation takes, or an `Attention`
    Encoded     the cache, as a layer sees it: it encodes keys once, on their way in
    Attention   one layer's attention in one pass, reached through both registries

Everything is made in hooks before the layers, outside of what gradient checkpointing makes again,
and handed down as arguments, so that several passes can be under way. What is shared is kept under
keys that do not depend on how many tokens there are: a traced graph would depend on them too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.attention.attend import attend
from posenc.attention.decoding import Decoding
from posenc.core.encoding import Encoding
from posenc.core.frequencies import join, split
from posenc.core.masks import Mask
from posenc.core.private import assert_async
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE
from posenc.models.hf.masks import mask_of
from posenc.models.hf.supported import SupportedModel
from posenc.rotation.table import Turn

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask
except ImportError as missing:
    raise ImportError(
        "`posenc.models.adapter` plugs into transformers 5, which is not installed:"
        " python -m pip install 'transformers>=5,<6'"
    ) from missing

ByLength = Callable[[int], Encoding]  # the encoding of a text of so many tokens
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
NAME = "posenc"  # in the registries of transformers, among arguments, and as a part of the model


class NoRotation(nn.Module):
    """A stand-in for the model's rotary module: each layer gets a table of its own."""

    def __init__(self, instead_of: nn.Module):
        super().__init__()
        self.instead_of = instead_of  # moves with the model until it is put back

    def forward(self, *args: Any, **kwargs: Any) -> None:
        return None


@dataclass(frozen=True)
class Pass:
    """The positions of one forward pass, and values that its layers share."""

    pos: Tensor  # of the new tokens, (batch or 1, token)
    start: int | Tensor  # tokens in the cache; a tensor where a static cache is traced
    all_pos: Tensor  # positions of cached and new tokens; where traced, of all its room
    shared: dict[Any, Any] = field(default_factory=dict)

    @property
    def end(self) -> int | None:
        """Number of tokens cached and new; None where it is traced."""
        return None if isinstance(self.start, Tensor) else self.start + self.pos.shape[1]


@dataclass(frozen=True)
class ModelHook:
    """A hook before the model: it computes positions, and applies what acts on embeddings."""

    names: tuple[str, ...]  # of the arguments of the model's forward pass
    bottom: Encoding | None  # acts on embeddings
    by_length: bool
    rotation: bool
    record: str  # attribute of a cache: the positions of all it has seen

    def __call__(self, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if not self.rotation and base.config._attn_implementation != NAME:
            raise ValueError(
                "the encoding that is applied has lost its attention: call `remove(model)` before"
                f" `set_attn_implementation({base.config._attn_implementation!r})`."
            )
        arguments = dict(zip(self.names, args, strict=False)) | kwargs
        x = next(x for x in map(arguments.get, ("input_ids", "inputs_embeds")) if x is not None)
        cache = arguments.get("past_key_values")
        start = _tokens(cache)
        pos = arguments["position_ids"] = self.positions(base, arguments, x, start)
        if self.bottom is not None:
            ids, x = arguments.pop("input_ids", None), arguments.get("inputs_embeds")
            x = base.get_input_embeddings()(ids) if x is None else x
            arguments["inputs_embeds"] = self.bottom.on_embeddings(x, self.bottom.prepare(pos))
        all_pos = pos if cache is None else recorded(cache, self.record, pos, start, len(x))
        return (), {**arguments, NAME: Pass(pos, start, all_pos)}

    def positions(
        self, base: Any, arguments: dict[str, Any], x: Tensor, start: int | Tensor
    ) -> Tensor:
        """Return the caller's positions, or count from the first token after padding, at 0."""
        pos, mask = arguments.get("position_ids"), arguments.get("attention_mask")
        counted = (torch.arange(x.shape[1], device=x.device) + start).unsqueeze(0)
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            if pos is not None:
                self._refuse_packed(base, pos, arguments)
            return counted if pos is None else pos
        if not isinstance(start, Tensor) and mask.shape[1] < start + x.shape[1]:
            raise ValueError(
                f"`attention_mask` has {mask.shape[1]} tokens, the cache and the new ones are"
                f" {start + x.shape[1]}: pass one for all of them."
            )
        real = mask.to(x.device) != 0
        pos = counted - real.int().argmax(-1, keepdim=True) if pos is None else pos
        new = real[:, counted[0]] if isinstance(start, Tensor) else real[:, start:][:, : x.shape[1]]
        return pos.masked_fill(~new, 0)

    def _refuse_packed(self, base: Any, pos: Tensor, arguments: dict[str, Any]) -> None:
        if pos.shape[1] < 2 or (self.rotation and not self.by_length):
            return
        asked = arguments.get("use_cache")
        caches = base.config.use_cache if asked is None else asked
        if not self.by_length and not (caches and arguments.get("attention_mask") is None):
            return
        counted = (pos.diff() >= 0).all()
        if torch.compiler.is_compiling():
            assert_async(counted, "texts packed into one row need `use_cache=False`")
        elif self.by_length and not counted:
            raise ValueError(
                "texts packed into one row have no length in common for the encoding to go by:"
                " give each a row."
            )
        elif not counted:
            raise ValueError(
                "transformers lets texts packed into one row see each other when it fills a cache:"
                " pass `use_cache=False`."
            )


def _tokens(cache: Any) -> int | Tensor:
    """Number of tokens in the cache; a tensor where a static cache is traced."""
    if cache is None:
        return 0
    sliding = getattr(cache, "is_sliding", [])  # layers that count in Python, whom a trace follows
    tokens = cache.get_seq_length(sliding.index(False) if False in sliding else 0)
    return int(tokens) if isinstance(tokens, Tensor) and not _traced() else tokens


def recorded(cache: Any, record: str, pos: Tensor, start: int | Tensor, batch: int) -> Tensor:
    """Join the positions of cached and new tokens, (batch or 1, token); the cache keeps them."""
    known = getattr(cache, record, None)
    if getattr(cache, "is_compileable", False):
        return _recorded_in_place(cache, record, known, pos, start, batch)
    known = pos[:, :0] if known is None else known[:, :start]  # it may have been cut back
    rows = max(len(known), len(pos))
    if known.shape[1] < start or len(known) not in (1, rows) or len(pos) not in (1, rows):
        _refuse_foreign(start, known, pos)
    all_pos = torch.cat((known.expand(rows, -1), pos.expand(rows, -1)), -1)
    setattr(cache, record, all_pos)
    return all_pos


def _recorded_in_place(
    cache: Any, record: str, room: Tensor | None, pos: Tensor, start: int | Tensor, batch: int
) -> Tensor:
    """Write positions to a tensor of fixed size, as a static cache does: nothing recompiles."""
    tokens = pos.shape[1]
    if room is None and (isinstance(start, Tensor) or start):
        _refuse_foreign(start, pos[:, :0], pos)
    if room is not None and len(room) != batch:
        _refuse_foreign(start, room, pos)
    if room is None:
        room = pos.new_zeros(batch, max(cache.get_max_length(), tokens))
    elif isinstance(start, int) and start + tokens > room.shape[1]:  # every layer keeps a window
        room = F.pad(room, (0, start + tokens))
    room.index_copy_(1, torch.arange(tokens, device=pos.device) + start, pos.expand(batch, -1))
    setattr(cache, record, room)
    return room if isinstance(start, Tensor) else room[:, : start + tokens]


def _refuse_foreign(start: int | Tensor, known: Tensor, pos: Tensor) -> None:
    tokens = "" if isinstance(start, Tensor) else f"{start} "
    raise ValueError(
        f"of the {tokens}tokens in the cache, this encoding has seen {known.shape[1]} in"
        f" {len(known)} rows, and is given {len(pos)} rows: start from an empty cache."
    )


def _traced() -> bool:
    return torch.compiler.is_compiling()


@dataclass(frozen=True)
class LayerHook:
    """A hook before one layer: it passes the layer its rotation table, or its attention."""

    layer: int
    kind: int  # which of the encodings: layers that have the same share what it prepares
    encoding: Encoding | ByLength  # all of it, as it was passed to `apply`
    turning: Encoding  # what of it acts on queries and keys alone
    rest: Encoding
    supported: SupportedModel
    turned: int  # channels of a head that the model turns
    rotation: bool  # the model's own attention does it all; else it turns by nothing
    record: str  # attribute of a cache: the positions of all it has seen

    def __call__(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        x = args[0] if args else kwargs["hidden_states"]
        name = "layer_past" if "layer_past" in kwargs else "past_key_values"
        cache = kwargs.get(name)
        run = kwargs.pop(NAME, None) or self.alone(cache, kwargs["position_ids"])
        if cache is not None and not hasattr(cache, self.record):
            setattr(cache, self.record, run.all_pos)  # the model has just made it
        key = "table", self.kind if self.rotation else None
        if key not in run.shared:
            run.shared[key] = self.table(self.turn(run), x)
        kwargs["position_embeddings"] = run.shared[key]
        if self.rotation:
            return args, kwargs
        if layer.training and getattr(layer, "gradient_checkpointing", False):
            cache = None  # as the layer will do
        attention = kwargs[NAME] = self.attention(cache, run)
        if cache is not None and self.supported.caches_keys:
            kwargs[name] = Encoded(cache, attention)
        return args, kwargs

    def alone(self, cache: Any, pos: Tensor) -> Pass:
        """Make the pass of a layer that gets positions only, as GPT-J's do."""
        start = 0 if cache is None else cache.get_seq_length(self.layer)
        start = int(start) if isinstance(start, Tensor) and not _traced() else start
        run = Pass(pos, start, getattr(cache, self.record, pos))
        return run if run.end is None else replace(run, all_pos=run.all_pos[:, : run.end])

    def turn(self, run: Pass) -> Turn | None:
        """The rotation that the model applies itself; None: none."""
        if isinstance(self.encoding, Encoding):
            turns = self.rotation and isinstance(self.encoding, RoPE)
            return self.encoding.prepare(run.pos) if turns else None
        old, new = _lengths(run.all_pos[:, : run.start]), _lengths(run.all_pos)
        by_length: dict[int, Any] = {tokens: self.encoding(tokens) for tokens in {*old, *new}}
        for before, now in zip(old, new, strict=False):
            cached, current = by_length[before], by_length[now]
            if not torch.equal(cached.freqs, current.freqs) or cached.gain != current.gain:
                raise ValueError(
                    f"a text of {now} tokens has other frequencies than the {before} in the cache,"
                    " and deeper layers have cached what they saw through those: pass all of it"
                    " anew, without a cache (`use_cache=False`)."
                )
        rows = zip(new, run.all_pos[:, -run.pos.shape[1] :], strict=True)
        turns = [by_length[tokens].prepare(row) for tokens, row in rows]
        return Turn(*map(torch.stack, zip(*turns, strict=True)))

    def table(self, by: Turn | None, x: Tensor) -> Any:
        pairs = self.turned // 2
        if by is None:
            cos = torch.ones(1, x.shape[1], pairs, device=x.device)
            return self.supported.table(cos, torch.zeros_like(cos), x.dtype)
        cos, sin = (part.squeeze(-3) for part in by)
        if not self.supported.fewer:
            rest = (0, pairs - cos.shape[-1])
            cos, sin = F.pad(cos, rest, value=1.0), F.pad(sin, rest)
        return self.supported.table(cos, sin, x.dtype)

    def attention(self, cache: Any, run: Pass) -> "Attention":
        """The attention of this layer, for all keys, a window of them, or spare room."""
        window = None if cache is None else _window(cache, self.layer)
        key = "attention", self.kind, cache is None, window
        if key not in run.shared:
            run.shared[key] = self.prepared(cache, run)
        return run.shared[key]

    def prepared(self, cache: Any, run: Pass) -> "Attention":
        pos, k_pos, tokens = run.pos, run.pos, run.pos.shape[1]
        if cache is not None:
            keys, first = cache.get_mask_sizes(tokens, self.layer)
            stop = first + keys if run.end is None else min(first + keys, run.end)
            k_pos = run.all_pos[:, first:stop]
            if isinstance(run.start, Tensor):
                k_pos = F.pad(k_pos, (0, max(0, stop - run.all_pos.shape[1])))
        at, supported = self.turning.prepare(pos), self.supported
        k_turn = at if cache is None else None
        if cache is not None and not supported.caches_keys:
            k_turn = self.turning.prepare(k_pos)
        apart = self.turned if supported.trailing and supported.layout == "interleaved" else 0
        ats = self.rest.prepare(pos), self.rest.prepare(k_pos)
        return Attention(self.turning, at, k_turn, self.rest, *ats, k_pos.shape[1], apart)


def _window(cache: Any, layer: int) -> int | None:
    """The number of keys that a layer of the cache keeps, where it does not keep all."""
    layers = getattr(cache, "layers", ())
    cache_layer: Any = layers[layer] if layer < len(layers) else None
    if not getattr(cache_layer, "is_sliding", False):
        return None
    return getattr(cache_layer, "sliding_window", None) or cache_layer.max_cache_len


class GPTJHook(LayerHook):
    """GPT-J reads a table of its own by position, and its attention is in no registry."""

    def __call__(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        args, kwargs = super().__call__(layer, args, kwargs)
        table, attention = kwargs.pop("position_embeddings"), kwargs.pop(NAME, None)
        tokens = torch.arange(table.shape[1], device=table.device)
        kwargs["position_ids"] = tokens.expand(len(table), -1)
        layer._get_embed_positions = lambda ids: table
        if attention is not None:
            dropout = layer.attn_dropout.p * layer.training
            scale = 1 / layer.scale_attn
            layer._attn = lambda q, k, v, mask: (attention(q, k, v, mask, scale, dropout), None)
        return args, kwargs


def clear_gptj(attention: Any, args: Any, out: Any) -> None:
    """Remove after each pass what the hook has set on a GPT-J attention."""
    for name in ("_get_embed_positions", "_attn"):
        vars(attention).pop(name, None)


class Encoded:
    """The cache, as one layer sees it: keys are encoded once, on their way in."""

    def __init__(self, cache: Any, attention: "Attention"):
        self.cache, self.attention = cache, attention

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.cache.update(self.attention.on_new_keys(keys), values, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)


@dataclass(frozen=True)
class Attention:
    """The encoding in one layer during one pass."""

    turning: Encoding
    at: Any  # of the new tokens, for `turning`
    k_turn: Any  # of the keys, for `turning`; None: the cache holds them turned
    rest: Encoding
    q_at: Any
    k_at: Any
    keys: int  # a static cache hands out more: the room for tokens to come
    apart: int  # trailing channels whose pairs DeepSeek has taken apart
    masks: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def on_new_keys(self, k: Tensor) -> Tensor:
        return self.turning.on_keys(k, self.at)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float, dropout: float,
        softcap: float | None = None, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if seen is not None and not (isinstance(seen, Tensor) and seen.dtype == torch.bool):
            kind = seen.dtype if isinstance(seen, Tensor) else type(seen).__name__
            name = type(self.rest if isinstance(self.turning, NoPE) else self.turning).__name__
            raise TypeError(
                f"attention with {name} takes a boolean mask, True for what is seen, got {kind}:"
                " pass a 2-D `attention_mask`, or a boolean one in 4-D."
            )
        if k.shape[2] > self.keys:
            k, v = k[:, :, : self.keys], v[:, :, : self.keys]
        q, k = self.joined(q), self.joined(k)
        q = self.turning.on_queries(q, self.at)
        if self.k_turn is not None:
            k = self.turning.on_keys(k, self.k_turn)
        mask = self.mask(seen, len(q), q.shape[2], k.shape[2])
        plain = not dropout and softcap is None and sinks is None
        if plain and mask is None and q.shape[2] == 1:
            return self.decoding.attend(q, k, v, scale)
        more: dict[str, Any] = dict(dropout=dropout, softcap=softcap, sinks=sinks)
        return attend(q, k, v, self.rest, self.q_at, self.k_at, mask, scale, **more)

    @cached_property
    def decoding(self) -> Decoding:
        return Decoding(self.rest, self.q_at, self.k_at)

    def mask(self, seen: Tensor | None, *shape: int) -> Mask | None:
        """The model's own mask, read back once a pass."""
        if _traced():
            return mask_of(seen, *shape)
        if id(seen) not in self.masks:
            self.masks[id(seen)] = seen, mask_of(seen, *shape)
        return self.masks[id(seen)][1]

    def joined(self, x: Tensor) -> Tensor:
        if not self.apart:
            return x
        rest, turned = x.split((x.shape[-1] - self.apart, self.apart), -1)
        return torch.cat((rest, join(*split(turned, "half"), "interleaved")), -1)


def register() -> None:
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, mask_function)


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, for transformers' registry: returns (batch, token, head, channel) and no weights."""
    if NAME not in kwargs:
        raise ValueError(
            f"this {type(module).__name__} shares its config with a model that an encoding is"
            " applied to: make each of its own config."
        )
    softcap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
    out = kwargs[NAME](query, key, value, attention_mask, scaling, dropout, softcap, sinks)
    return out.transpose(1, 2).contiguous(), None


def mask_function(*args: Any, **kwargs: Any) -> Tensor | None:
    """Build a mask for transformers' registry: (batch, 1, query, key); None for the causal one.

    It is None where transformers' own kernel would have that mask built in.
    """
    return sdpa_mask(*args, **kwargs | {"allow_is_bidirectional_skip": False})


def _lengths(pos: Tensor) -> list[int]:
    return (pos.amax(-1) + 1).tolist() if pos.shape[1] else []
