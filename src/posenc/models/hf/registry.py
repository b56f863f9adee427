"""Registration of posenc's attention and mask functions in transformers.

The attention entry calls a function that a hook or `discovery` sets before a module runs: as a
keyword argument if the model forwards these, otherwise as an attribute of the module.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask
except ImportError as missing:
    raise ImportError(
        "`posenc.models.adapter` needs transformers 5, which is not installed. Install it:"
        " python -m pip install 'transformers>=5,<6'"
    ) from missing

# Name in the registries, of a keyword argument, and of a submodule of the model
NAME = "posenc"
CALL = "posenc_call"  # attribute that is set on an attention while it runs


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
    """Return the output, (batch, token, head, channel), and None in place of attention weights."""
    attend: Callable[..., Tensor] | None = kwargs.get(NAME) or getattr(module, CALL, None)
    if attend is None:
        raise ValueError(
            f"The config of this {type(module).__name__} must not be shared with another model that"
            " has an encoding applied. Build each model from its own config."
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
    """Return a model's mask, (batch, 1, query, key); None for a plain causal mask."""
    return sdpa_mask(*args, **kwargs | {"allow_is_bidirectional_skip": False})
