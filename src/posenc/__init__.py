"""Positional encodings for transformers: every one, plugged into real attention, and measured."""

from posenc import masks, positions, properties
from posenc.additive.binary import Binary
from posenc.additive.integer import Integer
from posenc.additive.learned import Learned
from posenc.additive.linear_sinusoidal import LinearSinusoidal
from posenc.additive.normalized import Normalized
from posenc.additive.sine import Sine
from posenc.additive.sine_cosine import SineCosine
from posenc.additive.sinusoidal import Sinusoidal
from posenc.attention import attend
from posenc.bias.alibi import ALiBi
from posenc.bias.t5 import T5Bias
from posenc.card import Card
from posenc.catalog import CATALOG, create
from posenc.encoding import Encoding
from posenc.frequencies import frequencies
from posenc.layer import SelfAttention
from posenc.none import NoPE
from posenc.relative.deberta import DeBERTa
from posenc.relative.shaw import Shaw
from posenc.relative.transformer_xl import TransformerXL
from posenc.rotary.axial import axial
from posenc.rotary.p_rope import p_rope
from posenc.rotary.rope import RoPE, rotate, turn
from posenc.sum import Sum

__version__ = "0.1.0"

__all__ = [
    "CATALOG",
    "ALiBi",
    "Binary",
    "Card",
    "DeBERTa",
    "Encoding",
    "Integer",
    "Learned",
    "LinearSinusoidal",
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
    "attend",
    "axial",
    "create",
    "frequencies",
    "masks",
    "p_rope",
    "positions",
    "properties",
    "rotate",
    "turn",
]
