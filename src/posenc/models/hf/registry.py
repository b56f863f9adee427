"""One function in transformers' registry of attention, and one in that of masks.

What attends in a module's place is set before it runs, by a hook or by `discovery`: among its
arguments where the model hands these down, else as an attribute of the module.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask
except ImportError as missing:
    raise ImportError(
        "`posenc.models.adapter` plugs into transformers 5, which is not installed:"
        " python -m pip install 'transformers>=5,<6'"
    ) from missing

# The name in the registries, among arguments, and of a part of the model
NAME = "posenc"
CALL = "posenc_call"  # attribute of an attention while it runs


def register() -> None:
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, mask_function)


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, for transformers' registry: returns (batch, token, head, channel) and no weights."""
    attend: Callable[..., Tensor] | None = kwargs.get(NAME) or getattr(module, CALL, None)
    if attend is None:
        raise ValueError(
            f"this {type(module).__name__} shares its config with a model that an encoding is"
            " applied to: make each of its own config."
        )
    causal = kwargs.get("is_causal")
    out = attend(
        query,
        key,
        value,
        attention_mask,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        dropout,
        softcap=kwargs.get("softcap"),
        sinks=kwargs.get("s_aux"),
        causal=getattr(module, "is_causal", True) if causal is None else causal,
    )
    return out.transpose(1, 2).contiguous(), None


def mask_function(*args: Any, **kwargs: Any) -> Tensor | None:
    """Build a mask for transformers' registry: (batch, 1, query, key); None for the causal one.

    It is None where transformers' own kernel would have that mask built in.
    """
    return sdpa_mask(*args, **kwargs | {"allow_is_bidirectional_skip": False})
