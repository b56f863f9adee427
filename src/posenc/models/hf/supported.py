"""The transformers models that an encoding can be plugged into, and their attribute names.

Nothing here imports transformers: a model is recognised by the name and the module of its class.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE

Table = Callable[[Tensor, Tensor, torch.dtype], Any]  # of cos and sin, (batch, token, pair)


def _doubled(cos: Tensor, sin: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((sin, sin), -1).to(dtype)


def _sine_first(cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.cat((sin, cos), -1)


def _complex(cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.complex(cos, sin)


@dataclass(frozen=True)
class SupportedModel:
    """The rotation and the attribute names of one supported class of models."""

    layers: str = "layers"  # of the model
    attention: str = "self_attn"  # of a layer
    dim: str = "head_dim"  # of the attention: channels of a head
    turned: str = "head_dim"  # of the attention: how many of them turn
    fewer: bool = False  # only as many turn as there are cosines
    trailing: bool = False  # it is the last that turn
    layout: Layout = "half"
    table: Table = _doubled  # what the rotation takes
    caches_keys: bool = True  # as they are attended to; DeepSeek caches what they are made of

    def channels(self, attention: Any) -> int:
        return getattr(attention, self.dim)

    def turning(self, attention: Any) -> int:
        return getattr(attention, self.turned) or self.channels(attention)

    def key_heads(self, attention: Any) -> int:
        config = attention.config
        return getattr(config, "num_key_value_heads", None) or config.num_attention_heads

    def can_turn(self, encoding: Encoding, attention: Any) -> bool:
        """Test whether the model's own rotation can do what the encoding does to q and k."""
        if isinstance(encoding, NoPE) or encoding.acts_on == ("on_embeddings",):
            return True
        if type(encoding) is not RoPE:
            return False
        turning = self.turning(attention)
        # Pairs of neighbours can be left unturned one by one; halves only where fewer may turn.
        some = not self.trailing and (self.fewer or self.layout == "interleaved")
        return (
            encoding.layout == self.layout
            and bool(getattr(attention, "use_rope", True))
            and (encoding.turned == encoding.dim or encoding.trailing == self.trailing)
            and (encoding.turned == turning or (some and encoding.turned < turning))
        )


SUPPORTED = {
    "LlamaModel": SupportedModel(),
    "Qwen2Model": SupportedModel(),
    "Gemma3TextModel": SupportedModel(),
    "Phi3Model": SupportedModel(fewer=True),
    "GPTNeoXModel": SupportedModel(
        attention="attention", dim="head_size", turned="head_size", fewer=True
    ),
    "GPTJModel": SupportedModel(
        "h", "attn", turned="rotary_dim", layout="interleaved", table=_sine_first
    ),
    "Llama4TextModel": SupportedModel(layout="interleaved", table=_complex),
    "DeepseekV3Model": SupportedModel(
        dim="qk_head_dim",
        turned="qk_rope_head_dim",
        trailing=True,
        layout="interleaved",
        caches_keys=False,
    ),
}


def find_supported(model: nn.Module) -> tuple[Any, SupportedModel]:
    """The model without its head, and its entry here. Raises TypeError for an unknown model."""
    for base in (model, *model.children()):
        name, home = type(base).__name__, type(base).__module__
        if name in SUPPORTED and home.startswith("transformers.models."):
            if getattr(base.config, "rope_interleave", True):
                return base, SUPPORTED[name]
            return base, replace(SUPPORTED[name], layout="half")
    raise TypeError(
        f"{type(model).__name__} is not a model that an encoding can be plugged into: pass one of"
        f" {', '.join(SUPPORTED)} of transformers 5, or one of these with a head on top."
    )
