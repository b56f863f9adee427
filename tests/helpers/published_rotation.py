"""The RoPE of published models, as `posenc.models` reads it from their configs."""

from published import published

from posenc.models.config import specify
from posenc.models.config.spec import Rotary


def turning(name):
    """Return the RoPE of a published model's layers with full attention, or of any layer."""
    layers = specify(published(name)).text_stack.layers
    turns = [layer.encoding for layer in layers if isinstance(layer.encoding, Rotary)]
    wide = [x.encoding for x in layers if x.window is None and isinstance(x.encoding, Rotary)]
    return (wide or turns)[0]
