"""wav2vec 2.0: a convolution over the frames encodes the order; attention has no positions."""

from posenc.models.config.layers import Config, Layer, no_encoding, stack
from posenc.models.config.spec import Convolution
from posenc.models.config.tables import required

MODELS = "wav2vec2 hubert unispeech unispeech-sat sew data2vec-audio"


def layers(config: Config) -> list[Layer]:
    """Return layers whose attention has no positional encoding."""
    if config.family.name == "sew":
        config.notes.append("the layers attend to every `squeeze_factor`-th frame")
    return stack(config, encode=no_encoding)


def embedding(config: Config) -> Convolution:
    width, groups = (
        required(config, "hidden_size"),
        required(config, "num_conv_pos_embedding_groups"),
    )
    if width % groups:
        config.fail("num_conv_pos_embedding_groups", f"must divide {width} channels", groups)
    if config.family.name == "data2vec-audio":
        count = required(config, "num_conv_pos_embeddings")
        return Convolution(width, required(config, "conv_pos_kernel_size"), groups, count)
    return Convolution(width, required(config, "num_conv_pos_embeddings"), groups)
