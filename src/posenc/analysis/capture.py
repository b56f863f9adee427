"""The queries and keys that a transformers model attends with, before and after they are turned.

    one of `capture(model, inputs)` for each attention, in the order in which they ran:
    scores = cap(q · kᵀ · scale) + bias    as they enter the softmax, masked where not `seen`,
                                           beside the score of a sink for each head, if there is one
    q_plain, k_plain                       what q and k would be had the rotation done nothing

The model attends by torch's SDPA, which gives no scores away; here it does so through an entry of
its own in transformers' registry of attention, which writes down what it is handed, and runs the
model's own eager attention: where that gives other weights than the scores say, `capture` refuses.
The plain ones come from the same attention run again on what it was given, with cos = 1 and
sin = 0: no layout has to be known for that. Needs transformers 5; nothing of the model is changed
in the end.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from posenc.attention.call import per_query_head

NAME = "posenc_capture"  # in the registries of transformers, and as an attribute of modules


@dataclass(frozen=True)
class Attended:
    """One attention in one pass. `k` may have fewer heads; masks may be of one head for all."""

    module: str  # its name in the model
    q: Tensor  # (batch, head, query, channel), as it enters the dot product
    k: Tensor  # (batch, key head, key, channel)
    scale: float
    q_plain: Tensor  # before rotation; q where the model hands it no cosines
    k_plain: Tensor
    bias: Tensor | None  # (batch, head, query, key), of T5 and its like, in logits
    seen: Tensor | None  # (batch, head, query, key): True where the mask lets through
    softcap: float | None = None  # c · tanh(score / c), as in Gemma 2
    sinks: Tensor | None = None  # (head,): scores of a key that has no value, as in gpt-oss

    @property
    def turned(self) -> bool:
        return self.q is not self.q_plain

    def scores(self) -> Tensor:
        """(batch, head, query, key), in float32 or better, before the mask."""
        exact = torch.promote_types(self.q.dtype, torch.float32)
        made = self.q.to(exact) @ per_query_head(self.k, self.q).to(exact).mT * self.scale
        if self.softcap is not None:
            made = self.softcap * (made / self.softcap).tanh()
        return made if self.bias is None else made + self.bias

    def weights(self) -> Tensor:
        """After mask and softmax; a query that sees no key has none."""
        made, seen = self.scores(), self.seen
        if seen is not None:
            made = made.masked_fill(~seen, torch.finfo(made.dtype).min)
        if self.sinks is not None:
            sinks = self.sinks.to(made.dtype).view(-1, 1, 1).expand(*made.shape[:-1], 1)
            weights = torch.cat((made, sinks), -1).softmax(-1)[..., :-1]
        else:
            weights = made.softmax(-1)
        return weights if seen is None else weights * seen


@torch.no_grad()
def capture(model: nn.Module, inputs: Mapping[str, Any]) -> list[Attended]:
    """Runs `model(**inputs)` once, as for use, without dropout.

    Raises TypeError for models of which transformers' registry of attention is no part, ValueError
    where a model's own weights are not those of the scores that are written down.
    """
    found: list[Attended] = []
    with _listening(model, found):
        model(**inputs)
    if not found:
        raise TypeError(
            f"{type(model).__name__} does not attend through transformers' registry: pass a model"
            " of transformers 5 that can run with `attn_implementation='sdpa'`."
        )
    return found


class _Listener:
    """What the registered functions report to; `calls` are the arguments of running modules."""

    def __init__(self, model: nn.Module, found: list[Attended]):
        self.names = {module: name for name, module in model.named_modules()}
        self.found = found
        self.calls: dict[nn.Module, dict[str, Any]] = {}
        self.plain: tuple[Tensor, ...] = ()
        self.again = False

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.again:
            names = signature(module.forward).parameters
            self.calls[module] = dict(zip(names, args, strict=False)) | kwargs

    def hears(self, module: nn.Module, heard: "_Heard") -> Tensor:
        """Writes it down, and returns what comes out of the attention."""
        q, k, v = heard.q, heard.k, heard.v
        self.plain = q, k
        if self.again:
            return q.new_zeros(len(q), q.shape[2], q.shape[1], v.shape[-1])
        given = self.calls.get(module, {})
        table = given.get("position_embeddings")
        if table is not None:
            cache = {key: None for key in ("past_key_values", "layer_past") if key in given}
            self.again = True
            try:
                module(**{**given, **cache, "position_embeddings": still(table)})
            finally:
                self.again = False
        seen, bias = heard.seen, heard.more.get("position_bias")
        if seen is not None and seen.is_floating_point():  # what is added: a bias, −∞ or nearly
            through = seen > torch.finfo(seen.dtype).min / 2
            added = seen.masked_fill(~through, 0)
            bias, seen = added if bias is None else bias + added, through
        sinks = heard.more.get("s_aux", heard.more.get("sinks"))
        name, softcap = self.names[module], heard.more.get("softcap")
        one = Attended(name, q, k, heard.scale, *self.plain, bias, seen, softcap, sinks)
        out, weights = heard.eagerly(module)
        _hold(one, weights, module, heard)
        self.found.append(one)
        return out.to(v.dtype)


@dataclass(frozen=True)
class _Heard:
    """What an attention hands to the function that is registered for it."""

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor | None
    scale: float
    more: dict[str, Any]

    def eagerly(self, module: nn.Module) -> tuple[Tensor, Tensor | None]:
        """The model's own eager attention, in float32 or better, where 16 bits round scores."""
        home = sys.modules[type(module).__module__]
        own = getattr(home, "eager_attention_forward", None)
        if own is None:
            raise TypeError(
                f"{type(module).__name__} has no `eager_attention_forward` beside it to hold its"
                " weights against: pass a model of transformers 5."
            )
        exact = torch.promote_types(self.q.dtype, torch.float32)
        q, k, v = (x.to(exact) for x in (self.q, self.k, self.v))
        added = self.seen
        if added is not None and added.dtype == torch.bool:
            added = torch.zeros_like(added, dtype=exact).masked_fill(~added, torch.finfo(exact).min)
        more = {"scaling": self.scale, "dropout": 0.0, **self.more}
        return own(module, q, k, v, added, **more)


def _hold(one: Attended, weights: Tensor | None, module: nn.Module, heard: _Heard) -> None:
    """Refuses what the captured scores do not explain: eager attention is the definition."""
    if weights is None:
        return
    ours = one.weights()
    sees = torch.ones_like(ours[..., :1], dtype=torch.bool)
    if one.seen is not None:  # a query that sees nothing gets arbitrary weights
        sees = one.seen.any(-1, keepdim=True)
    off = float(((ours - weights.to(ours.dtype)) * sees).abs().max()) if ours.numel() else 0.0
    if not off < torch.finfo(ours.dtype).eps ** 0.5:
        more = ", ".join(sorted(key for key, value in heard.more.items() if value is not None))
        raise ValueError(
            f"the weights of {one.module} ({type(module).__name__}) are not those of its queries,"
            f" keys, mask, bias, cap and sinks: its own eager attention differs by {off:.2g}"
            f"{f', and is handed {more}' if more else ''}; pass a model that adds nothing else."
        )


@contextmanager
def _listening(model: nn.Module, found: list[Attended]) -> Iterator[None]:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
    listener = _Listener(model, found)
    training = {module: module.training for module in model.modules()}
    configs: dict[int, Any] = {id(c): c for c in map(_config, model.modules()) if c is not None}
    before = [(config, config._attn_implementation) for config in configs.values()]
    hooks = [
        module.register_forward_pre_hook(listener.before, with_kwargs=True)
        for module in model.modules()
        if "position_embeddings" in signature(module.forward).parameters
    ]
    try:
        model.eval()
        for module in model.modules():
            setattr(module, NAME, listener)
        for config, _ in before:
            config._attn_implementation = NAME
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for config, implementation in before:
            config._attn_implementation = implementation
        for module in model.modules():
            vars(module).pop(NAME, None)
            module.training = training[module]


def _config(module: nn.Module) -> Any:
    config = getattr(module, "config", None)
    return config if hasattr(config, "_attn_implementation") else None


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    listener: _Listener = getattr(module, NAME)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return listener.hears(module, _Heard(query, key, value, attention_mask, scale, kwargs)), None


def _mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """(batch, 1, query, key), also where a kernel has one built in."""
    from transformers.masking_utils import sdpa_mask

    always = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, **kwargs | always)


def still(table: Any) -> Any:
    """What turns nothing: (cos, sin), or the complex numbers of Llama 4."""
    if isinstance(table, Tensor):
        return torch.ones_like(table)
    return torch.ones_like(table[0]), torch.zeros_like(table[1])
