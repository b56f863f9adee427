"""Positional encodings for transformers: every one, plugged into real attention, and measured.

The public names, found when first asked for, so that `posenc --help` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posenc import masks, positions, properties
    from posenc.additive.binary import Binary
    from posenc.additive.integer import Integer
    from posenc.additive.learned import Learned
    from posenc.additive.linear_sinusoidal import LinearSinusoidal
    from posenc.additive.normalized import Normalized
    from posenc.additive.sine import Sine
    from posenc.additive.sine_cosine import SineCosine
    from posenc.additive.sinusoidal import Sinusoidal
    from posenc.attention import attend, explain
    from posenc.bias.alibi import ALiBi
    from posenc.bias.fire import FIRE
    from posenc.bias.kerple import Kerple
    from posenc.bias.t5 import T5Bias
    from posenc.card import Card
    from posenc.catalog import CATALOG, create
    from posenc.encoding import Encoding
    from posenc.layer import SelfAttention
    from posenc.none import NoPE
    from posenc.relative.deberta import DeBERTa
    from posenc.relative.shaw import Shaw
    from posenc.relative.transformer_xl import TransformerXL
    from posenc.rotary.axial import axial
    from posenc.rotary.mixed import Mixed
    from posenc.rotary.mrope import mrope
    from posenc.rotary.p_rope import p_rope
    from posenc.rotary.rope import RoPE
    from posenc.rotary.rotate import rotate
    from posenc.rotary.turn import turn
    from posenc.rotary.xpos import XPos
    from posenc.sum import Sum
    from posenc.theta import frequencies

__version__ = "0.1.0"

_HOME = {  # name -> the module it lives in; "" for a module of that name
    "CATALOG": "catalog",
    "FIRE": "bias.fire",
    "ALiBi": "bias.alibi",
    "Binary": "additive.binary",
    "Card": "card",
    "DeBERTa": "relative.deberta",
    "Encoding": "encoding",
    "Integer": "additive.integer",
    "Kerple": "bias.kerple",
    "Learned": "additive.learned",
    "LinearSinusoidal": "additive.linear_sinusoidal",
    "Mixed": "rotary.mixed",
    "NoPE": "none",
    "Normalized": "additive.normalized",
    "RoPE": "rotary.rope",
    "SelfAttention": "layer",
    "Shaw": "relative.shaw",
    "Sine": "additive.sine",
    "SineCosine": "additive.sine_cosine",
    "Sinusoidal": "additive.sinusoidal",
    "Sum": "sum",
    "T5Bias": "bias.t5",
    "TransformerXL": "relative.transformer_xl",
    "XPos": "rotary.xpos",
    "attend": "attention",
    "axial": "rotary.axial",
    "create": "catalog",
    "explain": "attention",
    "frequencies": "theta",
    "masks": "",
    "mrope": "rotary.mrope",
    "p_rope": "rotary.p_rope",
    "positions": "",
    "properties": "",
    "rotate": "rotary.rotate",
    "turn": "rotary.turn",
}

__all__ = [
    "CATALOG",
    "FIRE",
    "ALiBi",
    "Binary",
    "Card",
    "DeBERTa",
    "Encoding",
    "Integer",
    "Kerple",
    "Learned",
    "LinearSinusoidal",
    "Mixed",
    "NoPE",
    "Normalized",
    "RoPE",
    "SelfAttention",
    "Shaw",
    "Sine",
    "SineCosine",
    "Sinusoidal",
    "Sum",
    "T5Bias",
    "TransformerXL",
    "XPos",
    "attend",
    "axial",
    "create",
    "explain",
    "frequencies",
    "masks",
    "mrope",
    "p_rope",
    "positions",
    "properties",
    "rotate",
    "turn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'posenc' has no attribute {name!r}")
    home = _HOME[name]
    if not home:
        return import_module(f"posenc.{name}")
    globals()[name] = found = getattr(import_module(f"posenc.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
