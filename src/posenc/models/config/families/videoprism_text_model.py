"""VideoPrism's text encoder: sinusoids; the class token after the text has no position."""

from posenc.models.config.layers import Config, Layer, stack

NOTE = (
    "a class token without a position follows the text; attention is causal only in calls with"
    " `attention_mask`"
)


def layers(config: Config) -> list[Layer]:
    config.notes.append(NOTE)
    return stack(config, softcap=config.number("attn_logit_softcapping"))
