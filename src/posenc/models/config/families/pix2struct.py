"""The text model of Pix2Struct: T5's decoder."""

from posenc.models.config.families.t5 import layers as layers

MODELS = "pix2struct_text_model"
