"""What runs inside a transformers model while an encoding is applied; `adapter.py` puts it there.

    Entrance    before the model: positions of its tokens; what acts on embeddings
    Plug        before each layer: the table its rotation takes, or an `Attention`
    Attention   one layer's attention in one pass, reached through both registries

Everything is made in hooks before the layers, outside of what gradient checkpointing makes again,
and handed down as arguments, so that several passes can be under way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.attention import attend
from posenc.encoding import Encoding
from posenc.models.sockets import Socket
from posenc.rotary.rope import RoPE
from posenc.rotary.turn import Turn
from posenc.theta import join, split

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


class Silent(nn.Module):
    """In place of the model's rotary module: each layer is handed a table of its own."""

    def forward(self, *args: Any, **kwargs: Any) -> None:
        return None


@dataclass(frozen=True)
class Entrance:
    bottom: Encoding | None  # acts on embeddings
    by_length: bool
    rotation: bool

    def __call__(self, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if not self.rotation and base.config._attn_implementation != NAME:
            raise ValueError(
                "the encoding that is applied has lost its attention: call `remove(model)` before"
                f" `set_attn_implementation({base.config._attn_implementation!r})`."
            )
        given = dict(signature(base.forward).bind(*args, **kwargs).arguments)
        given |= given.pop("kwargs", {})
        pos = given["position_ids"] = self.positions(base, given)
        if self.bottom is not None:
            ids, x = given.pop("input_ids", None), given.get("inputs_embeds")
            x = base.get_input_embeddings()(ids) if x is None else x
            given["inputs_embeds"] = self.bottom.on_embeddings(x, self.bottom.prepare(pos))
        return (), {**given, NAME: {}}  # what the layers of this pass share

    def positions(self, base: Any, given: dict[str, Any]) -> Tensor:
        """The caller's, or 0, 1, 2, … from the first token that is no filling; filling is at 0."""
        x = next(x for x in map(given.get, ("input_ids", "inputs_embeds")) if x is not None)
        pos, mask = given.get("position_ids"), given.get("attention_mask")
        cache = given.get("past_key_values")
        start = 0 if cache is None else int(cache.get_seq_length())
        end = start + x.shape[1]
        own = torch.arange(start, end, device=x.device).unsqueeze(0)
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            if pos is not None:
                self._refuse_packed(base, pos, given)
            return own if pos is None else pos
        if mask.shape[1] < end:
            raise ValueError(
                f"`attention_mask` has {mask.shape[1]} tokens, the cache and the new ones are"
                f" {end}: pass one for all of them."
            )
        real = mask.to(x.device) != 0
        pos = own - real.int().argmax(-1, keepdim=True) if pos is None else pos
        return pos.masked_fill(~real[:, start:end], 0)

    def _refuse_packed(self, base: Any, pos: Tensor, given: dict[str, Any]) -> None:
        if (self.rotation and not self.by_length) or not (pos.diff() < 0).any():
            return
        if self.by_length:
            raise ValueError(
                "texts packed into one row have no length in common for the encoding to go by:"
                " give each a row."
            )
        asked = given.get("use_cache")
        caches = base.config.use_cache if asked is None else asked
        if caches and given.get("attention_mask") is None:
            raise ValueError(
                "transformers lets texts packed into one row see each other when it fills a cache:"
                " pass `use_cache=False`."
            )


@dataclass(frozen=True)
class Plug:
    """What is plugged into one layer."""

    layer: int
    given: Encoding | ByLength
    socket: Socket
    turning: int  # channels of a head that the model turns
    rotation: bool  # the model's own attention does it all; else it turns by nothing
    record: str  # attribute of a cache: the positions of all it has seen

    def __call__(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        shared = kwargs.pop(NAME, {})
        x, pos = args[0] if args else kwargs["hidden_states"], kwargs["position_ids"]
        cache = kwargs.get("past_key_values", kwargs.get("layer_past"))
        past = self.past(cache, pos)
        every = torch.cat((past, pos.expand(len(past), -1)), -1)
        if cache is not None:
            setattr(cache, self.record, every)
        key = "table", id(self.given) if self.rotation else None
        if key not in shared:
            shared[key] = self.table(self.turn(pos, past, every), x)
        kwargs["position_embeddings"] = shared[key]
        if not self.rotation:
            kwargs[NAME] = self.attention(cache, pos, every, shared)
        return args, kwargs

    def in_gptj(self, attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """GPT-J reads a table of its own by position, and its attention is in no registry."""
        args, kwargs = self(attention, args, kwargs)
        table, plugged = kwargs.pop("position_embeddings"), kwargs.pop(NAME, None)
        tokens = torch.arange(table.shape[1], device=table.device)
        kwargs["position_ids"] = tokens.expand(len(table), -1)
        attention._get_embed_positions = lambda ids: table
        if plugged is not None:
            dropout = attention.attn_dropout.p * attention.training
            scale = 1 / attention.scale_attn
            attention._attn = lambda q, k, v, mask: (plugged(q, k, v, mask, scale, dropout), None)
        return args, kwargs

    def past(self, cache: Any, pos: Tensor) -> Tensor:
        """The positions of the cached tokens, (batch or 1, token)."""
        tokens = 0 if cache is None else int(cache.get_seq_length(self.layer))
        known = getattr(cache, self.record, pos[:, :0])[:, :tokens]  # it may have been cut back
        rows = max(len(known), len(pos))
        if known.shape[1] < tokens or len(known) not in (1, rows) or len(pos) not in (1, rows):
            raise ValueError(
                f"of the {tokens} tokens in the cache, this encoding has seen {known.shape[1]} in"
                f" {len(known)} rows, and is given {len(pos)} rows: start from an empty cache."
            )
        return known.expand(rows, -1)

    def turn(self, pos: Tensor, past: Tensor, every: Tensor) -> Turn | None:
        """By what the model is to turn; None: by nothing."""
        if isinstance(self.given, Encoding):
            turns = self.rotation and isinstance(self.given, RoPE)
            return self.given.prepare(pos) if turns else None
        old, new = _lengths(past), _lengths(every)
        made: dict[int, Any] = {tokens: self.given(tokens) for tokens in {*old, *new}}
        for before, now in zip(old, new, strict=False):
            one, other = made[before], made[now]
            if not torch.equal(one.freqs, other.freqs) or one.gain != other.gain:
                raise ValueError(
                    f"a text of {now} tokens has other frequencies than the {before} in the cache,"
                    " and deeper layers have cached what they saw through those: pass all of it"
                    " anew, without a cache (`use_cache=False`)."
                )
        rows = zip(new, every[:, -pos.shape[1] :], strict=True)
        turns = [made[tokens].prepare(row) for tokens, row in rows]
        return Turn(*map(torch.stack, zip(*turns, strict=True)))

    def table(self, by: Turn | None, x: Tensor) -> Any:
        pairs = self.turning // 2
        if by is None:
            cos = torch.ones(1, x.shape[1], pairs, device=x.device)
            return self.socket.table(cos, torch.zeros_like(cos), x.dtype)
        cos, sin = (part.squeeze(-3) for part in by)
        if not self.socket.fewer:
            rest = (0, pairs - cos.shape[-1])
            cos, sin = F.pad(cos, rest, value=1.0), F.pad(sin, rest)
        return self.socket.table(cos, sin, x.dtype)

    def attention(self, cache: Any, pos: Tensor, every: Tensor, shared: dict) -> "Attention":
        """With the positions of the keys in this layer: all, a window of them, or room for more."""
        start, tokens = 0, pos.shape[1]
        if cache is not None:
            tokens, start = map(int, cache.get_mask_sizes(tokens, self.layer))
        key = id(self.given), tokens, start
        if key not in shared:
            room = max(0, start + tokens - every.shape[1])
            k_pos = F.pad(every, (0, room))[:, start : start + tokens]
            encoding: Any = self.given
            apart = self.socket.trailing and self.socket.layout == "interleaved"
            ats = encoding.prepare(pos), encoding.prepare(k_pos)
            shared[key] = Attention(encoding, *ats, self.turning if apart else 0)
        return shared[key]


@dataclass(frozen=True)
class Attention:
    """The encoding in one layer during one pass. Keys and values come from the cache, unencoded."""

    encoding: Encoding
    at: Any
    k_at: Any
    apart: int  # trailing channels whose pairs DeepSeek has taken apart

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seen: Any, scale: float, dropout: float
    ) -> Tensor:
        if dropout:
            raise ValueError(
                f"attention dropout is {dropout} and there is none in `posenc.attend`: set it to 0"
                " in the model, or call `model.eval()`."
            )
        if not isinstance(seen, Tensor) or seen.dtype != torch.bool:
            given = seen.dtype if isinstance(seen, Tensor) else type(seen).__name__
            raise TypeError(
                f"attention with {type(self.encoding).__name__} takes a boolean mask, True for what"
                f" is seen, got {given}: pass a 2-D `attention_mask`, or a boolean one in 4-D."
            )
        seen = seen.expand(len(q), -1, -1, -1)
        mask = lambda b, h, i, j: seen[b, h if seen.shape[1] > 1 else 0, i, j]  # noqa: E731
        if self.apart:
            q, k = self.joined(q), self.joined(k)
        return attend(q, k, v, self.encoding, self.at, self.k_at, mask, scale)

    def joined(self, x: Tensor) -> Tensor:
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
    """In transformers' registry of attention: (batch, token, head, channel), and no weights."""
    if NAME not in kwargs:
        raise ValueError(
            f"this {type(module).__name__} shares its config with a model that an encoding is"
            " applied to: make each of its own config."
        )
    out = kwargs[NAME](query, key, value, attention_mask, scaling, dropout)
    return out.transpose(1, 2).contiguous(), None


def mask_function(*args: Any, **kwargs: Any) -> Tensor | None:
    """In the registry of masks: (batch, 1, query, key), also where a kernel has one built in."""
    always = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, **kwargs | always)


def _lengths(pos: Tensor) -> list[int]:
    return (pos.amax(-1) + 1).tolist() if pos.shape[1] else []
