"""Names that arguments have in other libraries, each answered with what posenc calls it."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MASK = "pass `mask`, as `posenc.masks` makes them"
_PADDING = "pass `mask=masks.padding(lengths)`"
_CAUSAL = "pass `mask=masks.causal()`"
_CACHE = "pass `cache=Cache()`"

ATTENTION = {  # arguments of attention
    "query": "pass `q`",
    "key": "pass `k`",
    "value": "pass `v`",
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "block_mask": _MASK,
    "mask_mod": "pass it as `mask`",
    "key_padding_mask": _PADDING,
    "is_causal": _CAUSAL,
    "causal": _CAUSAL,
    "window_size": "pass `mask=masks.window(size)`",
    "attn_bias": "an encoding returns the bias from `on_scores`",
    "score_mod": "an encoding returns the bias from `on_scores`",
    "alibi_slopes": "pass `ALiBi(heads)` as `encoding`",
    "pos": "pass `at`, positions or what `encoding.prepare` makes of them",
    "position_ids": "pass `at`, positions or what `encoding.prepare` makes of them",
    "dropout_p": "pass `dropout`",
    "softmax_scale": "pass `scale`",
    "sm_scale": "pass `scale`",
    "scaling": "pass `scale`",
    "logits_soft_cap": "pass `softcap`",
    "s_aux": "pass `sinks`",
    "enable_gqa": "leave it out, for keys and values may have fewer heads than queries",
}
LAYER = {  # arguments of a layer
    "embed_dim": "pass `width`",
    "d_model": "pass `width`",
    "hidden_size": "pass `width`",
    "dim": "pass `width`",
    "num_heads": "pass `heads`",
    "nhead": "pass `heads`",
    "n_heads": "pass `heads`",
    "num_attention_heads": "pass `heads`",
    "num_kv_heads": "pass `groups`",
    "num_key_value_heads": "pass `groups`",
    "n_kv_heads": "pass `groups`",
    "dropout_p": "pass `dropout`",
    "attention_dropout": "pass `dropout`",
    "batch_first": "leave it out, for x is always (batch, token, width)",
    "bias": "leave it out, for its projections always have one",
    "attn_mask": "pass `mask` when the layer is called, as `posenc.masks` makes them",
    "is_causal": "pass `mask=masks.causal()` when the layer is called",
    "causal": "pass `mask=masks.causal()` when the layer is called",
}
LAYER_CALL = {  # arguments of the call of a layer
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "src_mask": _MASK,
    "key_padding_mask": _PADDING,
    "src_key_padding_mask": _PADDING,
    "is_causal": _CAUSAL,
    "causal": _CAUSAL,
    "position_ids": "pass `pos`",
    "positions": "pass `pos`",
    "past_key_value": _CACHE,
    "past_key_values": _CACHE,
    "use_cache": _CACHE,
    "need_weights": "leave it out, for attention that is fast makes no weights",
}


def reject_foreign_names(names: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function to refuse these arguments of other libraries, with the remedy of each.

    >>> @reject_foreign_names({"attn_mask": "pass `mask`"})
    ... def attend(q, mask=None): ...
    >>> attend(1, attn_mask=2)
    Traceback (most recent call last):
    TypeError: `attend` has no argument `attn_mask`: pass `mask`.
    """

    def decorate(f: Callable[P, T]) -> Callable[P, T]:
        strange = names.keys() - signature(f).parameters.keys()
        called = f.__qualname__.removesuffix(".__init__").removesuffix(".forward")

        @wraps(f)
        def answered(*args: P.args, **named: P.kwargs) -> T:
            for name in named:
                if name in strange:
                    raise TypeError(f"`{called}` has no argument `{name}`: {names[name]}.")
            return f(*args, **named)

        return answered

    return decorate
