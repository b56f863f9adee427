"""Capture the queries and keys of a transformers model, before and after their rotation.

    `capture(model, inputs)` returns all attention calls in the order in which they ran:
    scores = cap(q · kᵀ · scale) + bias    the input of the softmax, masked where not `seen`, with
                                           one more score per head if there are sinks
    q_plain, k_plain                       q and k without the rotation

Torch's SDPA does not return scores. This module therefore registers an attention function with
transformers, which records its arguments and runs the model's own eager attention. `capture` raises
an error if the eager weights differ from the captured scores. The plain q and k are computed by a
second run of the same attention with cos = 1 and sin = 0, so that the layout need not be known.
transformers 5 is required; the model is restored at the end.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from posenc.core.biases import per_query_head

# Name in the registries of transformers, and of an attribute of modules
NAME = "posenc_capture"


@dataclass(frozen=True)
class Attended:
    """The queries, keys, mask, bias and softmax scale of one attention call.

    The head axis of a mask or bias may have size 1.
    """

    module: str  # name of the module in the model
    q: Tensor  # (batch, head, query, channel), as in the dot product
    k: Tensor  # (batch, key head, key, channel)
    scale: float
    q_plain: Tensor  # before rotation; q itself without a rotation
    k_plain: Tensor
    bias: Tensor | None  # (batch, head, query, key), in logits, for instance of T5
    seen: Tensor | None  # (batch, head, query, key): True for visible pairs
    softcap: float | None = None  # c · tanh(score / c), as in Gemma 2
    sinks: Tensor | None = None  # (head,): scores of a key without a value, as in gpt-oss

    @property
    def turned(self) -> bool:
        return self.q is not self.q_plain

    def scores(self) -> Tensor:
        """Return scores before the mask, (batch, head, query, key), in float32 or wider."""
        exact = torch.promote_types(self.q.dtype, torch.float32)
        scores = self.q.to(exact) @ per_query_head(self.k, self.q).to(exact).mT * self.scale
        if self.softcap is not None:
            scores = self.softcap * (scores / self.softcap).tanh()
        return scores if self.bias is None else scores + self.bias

    def weights(self) -> Tensor:
        """Return the attention weights after mask and softmax; 0 for a query that sees no key."""
        scores, seen = self.scores(), self.seen
        if seen is not None:
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        if self.sinks is not None:
            sinks = self.sinks.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:-1], 1)
            weights = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        return weights if seen is None else weights * seen


@torch.no_grad()
def capture(model: nn.Module, inputs: Mapping[str, Any]) -> list[Attended]:
    """Run `model(**inputs)` once, in evaluation mode, and return its attention calls.

    Raises TypeError for models that do not use transformers' registry of attention, and ValueError
    if the model's own weights differ from the captured scores.
    """
    attended: list[Attended] = []
    with _recording(model, attended):
        model(**inputs)
    if not attended:
        raise TypeError(
            f"`model` must use the attention registry of transformers 5, got"
            f" {type(model).__name__}. Pass a model that supports `attn_implementation='sdpa'`."
        )
    return attended


class _Recorder:
    """Hooks that record the arguments and tensors of a model's attention calls.

    `calls` maps each module that is running to the arguments of its `forward`.
    """

    def __init__(self, model: nn.Module, attended: list[Attended]):
        self.names = {module: name for name, module in model.named_modules()}
        self.attended = attended
        self.calls: dict[nn.Module, dict[str, Any]] = {}
        self.plain: tuple[Tensor, ...] = ()
        self.rerunning = False

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.rerunning:
            names = signature(module.forward).parameters
            self.calls[module] = dict(zip(names, args, strict=False)) | kwargs

    def record(self, module: nn.Module, call: "_Call") -> Tensor:
        """Record one attention call, and return its output.

        If rotary tables are among the arguments, the module runs a second time, `rerunning`, with
        the identity instead. The second call only stores its q and k in `plain`.
        """
        q, k, v = call.q, call.k, call.v
        self.plain = q, k
        if self.rerunning:
            return q.new_zeros(len(q), q.shape[2], q.shape[1], v.shape[-1])
        arguments = self.calls.get(module, {})
        table = arguments.get("position_embeddings")
        if table is not None:
            cache = {key: None for key in ("past_key_values", "layer_past") if key in arguments}
            self.rerunning = True
            try:
                module(**{**arguments, **cache, "position_embeddings": identity_rotation(table)})
            finally:
                self.rerunning = False
        seen, bias = call.seen, call.more.get("position_bias")
        # A float mask is about −∞ for hidden keys, and a bias for the others
        if seen is not None and seen.is_floating_point():
            through = seen > torch.finfo(seen.dtype).min / 2
            added = seen.masked_fill(~through, 0)
            bias, seen = added if bias is None else bias + added, through
        sinks = call.more.get("s_aux", call.more.get("sinks"))
        name, softcap = self.names[module], call.more.get("softcap")
        attended = Attended(name, q, k, call.scale, *self.plain, bias, seen, softcap, sinks)
        out, weights = call.eagerly(module)
        _check_weights(attended, weights, module, call)
        self.attended.append(attended)
        return out.to(v.dtype)


@dataclass(frozen=True)
class _Call:
    """The arguments with which transformers called the registered attention function."""

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor | None
    scale: float
    more: dict[str, Any]

    def eagerly(self, module: nn.Module) -> tuple[Tensor, Tensor | None]:
        """Return output and weights of the model's eager attention, in float32 or wider.

        16 bits would round the scores.
        """
        home = sys.modules[type(module).__module__]
        own = getattr(home, "eager_attention_forward", None)
        if own is None:
            raise TypeError(
                f"`model` must have a function `eager_attention_forward` in the file that defines"
                f" {type(module).__name__}. posenc compares its attention weights with the result"
                " of this function. Pass a model of transformers 5."
            )
        exact = torch.promote_types(self.q.dtype, torch.float32)
        q, k, v = (x.to(exact) for x in (self.q, self.k, self.v))
        added = self.seen
        if added is not None and added.dtype == torch.bool:
            added = torch.zeros_like(added, dtype=exact).masked_fill(~added, torch.finfo(exact).min)
        more = {"scaling": self.scale, "dropout": 0.0, **self.more}
        return own(module, q, k, v, added, **more)


def _check_weights(
    attended: Attended, weights: Tensor | None, module: nn.Module, call: _Call
) -> None:
    """Raise ValueError if captured weights differ from those of eager attention."""
    if weights is None:
        return
    computed = attended.weights()
    sees = torch.ones_like(computed[..., :1], dtype=torch.bool)
    # Eager attention gives arbitrary weights to a query that sees no key
    if attended.seen is not None:
        sees = attended.seen.any(-1, keepdim=True)
    off = (
        float(((computed - weights.to(computed.dtype)) * sees).abs().max())
        if computed.numel()
        else 0.0
    )
    if not off < torch.finfo(computed.dtype).eps ** 0.5:
        extra = ", ".join(sorted(key for key, value in call.more.items() if value is not None))
        raise ValueError(
            f"the attention weights of {attended.module} ({type(module).__name__}) must depend on"
            " queries, keys, mask, bias, softcap and sinks only, got weights that differ by"
            f" {off:.2g} from those of the model's eager attention"
            f"{f', which also receives {extra}' if extra else ''}. Pass a model whose scores have"
            " no other terms."
        )


@contextmanager
def _recording(model: nn.Module, attended: list[Attended]) -> Iterator[None]:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
    recorder = _Recorder(model, attended)
    training = {module: module.training for module in model.modules()}
    configs: dict[int, Any] = {id(c): c for c in map(_config, model.modules()) if c is not None}
    before = [(config, config._attn_implementation) for config in configs.values()]
    hooks = [
        module.register_forward_pre_hook(recorder.before, with_kwargs=True)
        for module in model.modules()
        if "position_embeddings" in signature(module.forward).parameters
    ]
    try:
        model.eval()
        for module in model.modules():
            setattr(module, NAME, recorder)
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
    recorder: _Recorder = getattr(module, NAME)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return recorder.record(module, _Call(query, key, value, attention_mask, scale, kwargs)), None


def _mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return the attention mask as a tensor (batch, 1, query, key).

    Otherwise, transformers could leave out the mask and set a flag such as `is_causal`.
    """
    from transformers.masking_utils import sdpa_mask

    always = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*args, **kwargs | always)


def identity_rotation(table: Any) -> Any:
    """Return a rotary table that rotates nothing, of the same type as `table`.

    The type is a pair (cos, sin), or a tensor of complex numbers for Llama 4.
    """
    if isinstance(table, Tensor):
        return torch.ones_like(table)
    return torch.ones_like(table[0]), torch.zeros_like(table[1])
