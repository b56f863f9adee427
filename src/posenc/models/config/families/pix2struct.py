"""Text model of Pix2Struct, which is built like the decoder of T5."""

from posenc.models.config.families.t5 import layers as layers

MODELS = "pix2struct_text_model"
