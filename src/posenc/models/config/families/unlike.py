"""Models of the usual layers whose attention does what `attend` does not."""

from posenc.models.config.layers import Config, Layer, stack

BEYOND = {
    "diffllama": "subtracts a second softmax",
    "doge": "hides keys by a learned mask that moves with the text",
    "big_bird": "sees random and global tokens beside a window, in long texts",
    "bigbird_pegasus": "sees random and global tokens beside a window, in long texts",
    "longformer": "sees a window, and global tokens everything",
    "led": "sees a window, and global tokens everything",
    "mra": "is an approximation of the softmax",
    "nystromformer": "is an approximation of the softmax",
    "yoso": "is an approximation of the softmax",
    "fnet": "is a Fourier transform",
    "convbert": "has convolutions beside its heads",
}
MODELS = " ".join(BEYOND)


def layers(config: Config) -> list[Layer]:
    return stack(config, beyond=BEYOND[config.family.name])
