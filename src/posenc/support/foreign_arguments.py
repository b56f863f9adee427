"""Map argument names of other libraries to ours, for error messages."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MASK = "Pass `mask` from `posenc.masks`"
_PADDING = "Pass `mask=masks.padding(lengths)`"
_CAUSAL = "Pass `mask=masks.causal()`"
_CACHE = "Pass `cache=Cache()`"

ATTENTION = {  # arguments of attention
    "query": "Pass `q`",
    "key": "Pass `k`",
    "value": "Pass `v`",
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "block_mask": _MASK,
    "mask_mod": "Pass it as `mask`",
    "key_padding_mask": _PADDING,
    "is_causal": _CAUSAL,
    "causal": _CAUSAL,
    "window_size": "Pass `mask=masks.window(size)`",
    "attn_bias": "Return the bias from `on_scores` of an encoding",
    "score_mod": "Return the bias from `on_scores` of an encoding",
    "alibi_slopes": "Pass `ALiBi(heads)` as `encoding`",
    "pos": "Pass `at`, positions or the result of `encoding.prepare`",
    "position_ids": "Pass `at`, positions or the result of `encoding.prepare`",
    "dropout_p": "Pass `dropout`",
    "softmax_scale": "Pass `scale`",
    "sm_scale": "Pass `scale`",
    "scaling": "Pass `scale`",
    "logits_soft_cap": "Pass `softcap`",
    "s_aux": "Pass `sinks`",
    "enable_gqa": "Leave it out. Keys and values may always have fewer heads than queries",
}
LAYER = {  # arguments of a layer
    "embed_dim": "Pass `width`",
    "d_model": "Pass `width`",
    "hidden_size": "Pass `width`",
    "dim": "Pass `width`",
    "num_heads": "Pass `heads`",
    "nhead": "Pass `heads`",
    "n_heads": "Pass `heads`",
    "num_attention_heads": "Pass `heads`",
    "num_kv_heads": "Pass `groups`",
    "num_key_value_heads": "Pass `groups`",
    "n_kv_heads": "Pass `groups`",
    "dropout_p": "Pass `dropout`",
    "attention_dropout": "Pass `dropout`",
    "batch_first": "Leave it out. x is always (batch, token, width)",
    "bias": "Leave it out. Projections always have a bias",
    "attn_mask": "Pass `mask` from `posenc.masks` when you call the layer",
    "is_causal": "Pass `mask=masks.causal()` when you call the layer",
    "causal": "Pass `mask=masks.causal()` when you call the layer",
}
LAYER_CALL = {  # arguments of `forward` of a layer
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "src_mask": _MASK,
    "key_padding_mask": _PADDING,
    "src_key_padding_mask": _PADDING,
    "is_causal": _CAUSAL,
    "causal": _CAUSAL,
    "position_ids": "Pass `pos`",
    "positions": "Pass `pos`",
    "past_key_value": _CACHE,
    "past_key_values": _CACHE,
    "use_cache": _CACHE,
    "need_weights": "Leave it out. Fused attention does not return weights",
}


def reject_foreign_names(names: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function to reject argument names of other libraries, with a remedy for each.

    >>> @reject_foreign_names({"attn_mask": "Pass `mask`"})
    ... def attend(q, mask=None): ...
    >>> attend(1, attn_mask=2)
    Traceback (most recent call last):
    TypeError: `attend` has no argument `attn_mask`. Pass `mask`.
    """

    def decorate(f: Callable[P, T]) -> Callable[P, T]:
        strange = names.keys() - signature(f).parameters.keys()
        called = f.__qualname__.removesuffix(".__init__").removesuffix(".forward")

        @wraps(f)
        def checked(*args: P.args, **named: P.kwargs) -> T:
            for name in named:
                if name in strange:
                    raise TypeError(f"`{called}` has no argument `{name}`. {names[name]}.")
            return f(*args, **named)

        return checked

    return decorate
