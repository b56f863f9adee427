"""Models with standard layers but an attention operation that posenc does not support."""

from posenc.models.config.layers import Config, Layer, stack

UNSUPPORTED = {
    "diffllama": "subtracts a second softmax",
    "doge": "masks keys by a learned function of the text",
    "big_bird": "adds random and global tokens to a window in long texts",
    "bigbird_pegasus": "adds random and global tokens to a window in long texts",
    "longformer": "adds global tokens to a window",
    "led": "adds global tokens to a window",
    "mra": "approximates the softmax",
    "nystromformer": "approximates the softmax",
    "yoso": "approximates the softmax",
    "fnet": "replaces attention by a Fourier transform",
    "convbert": "adds convolutions to its heads",
}
MODELS = " ".join(UNSUPPORTED)


def layers(config: Config) -> list[Layer]:
    return stack(config, unsupported=UNSUPPORTED[config.family.name])
