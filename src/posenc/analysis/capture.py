"""The queries and keys that a transformers model attends with, before and after they are turned.

    one of `capture(model, inputs)` for each attention, in the order in which they ran:
    scores = q · kᵀ · scale + bias         as they enter the softmax, masked where not `seen`
    q_plain, k_plain                       what q and k would be had the rotation done nothing

The model attends by torch's SDPA, which gives no scores away; here it does so through an entry of
its own in transformers' registry of attention, which writes down what it is handed. The plain ones
come from the same attention run again on what it was given, with cos = 1 and sin = 0: no layout has
to be known for that. Needs transformers 5; nothing of the model is changed in the end.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from posenc.call import per_query_head

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

    @property
    def turned(self) -> bool:
        return self.q is not self.q_plain

    def scores(self) -> Tensor:
        """(batch, head, query, key), in float32 or better, before the mask."""
        exact = torch.promote_types(self.q.dtype, torch.float32)
        made = self.q.to(exact) @ per_query_head(self.k, self.q).to(exact).mT * self.scale
        return made if self.bias is None else made + self.bias

    def weights(self) -> Tensor:
        """After mask and softmax; a query that sees no key has none."""
        made, seen = self.scores(), self.seen
        if seen is None:
            return made.softmax(-1)
        return made.masked_fill(~seen, torch.finfo(made.dtype).min).softmax(-1) * seen


@torch.no_grad()
def capture(model: nn.Module, inputs: Mapping[str, Any]) -> list[Attended]:
    """Runs `model(**inputs)` once, as for use, without dropout.

    Raises TypeError for models of which transformers' registry of attention is no part.
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

    def hears(
        self, module: nn.Module, q: Tensor, k: Tensor, seen: Any, scale: float, bias: Any
    ) -> None:
        self.plain = q, k
        if self.again:
            return
        given = self.calls.get(module, {})
        table = given.get("position_embeddings")
        if table is not None:
            cache = {key: None for key in ("past_key_values", "layer_past") if key in given}
            self.again = True
            try:
                module(**{**given, **cache, "position_embeddings": still(table)})
            finally:
                self.again = False
        if seen is not None and seen.is_floating_point():  # what is added: a bias, −∞ or nearly
            through = seen > torch.finfo(seen.dtype).min / 2
            added = seen.masked_fill(~through, 0)
            bias, seen = added if bias is None else bias + added, through
        self.found.append(Attended(self.names[module], q, k, scale, *self.plain, bias, seen))


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
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    listener: _Listener = getattr(module, NAME)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    bias = kwargs.get("position_bias")
    listener.hears(module, query, key, attention_mask, scale, bias)
    kwargs |= {"scaling": scale, "dropout": dropout}
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


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
