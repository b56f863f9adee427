"""DeepSeek V2 and V3: latent attention (MLA), with RoPE on the last channels of each head.

YaRN also multiplies the softmax scale by g(mscale_all_dim)², with g(m) = 0.1 m ln(factor) + 1.
"""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "axk1 deepseek_v2 deepseek_v3 glm4_moe_lite longcat_flash minicpm3 youtu"
FACTS = {"keys": {"head_dim": "qk_rope_head_dim"}, "place": "trailing"}


def layers(config: Config) -> list[Layer]:
    if config.family.name != "longcat_flash":
        one_latent(config)
    return stack(config)


def one_latent(config: Config) -> None:
    """Raise ModelError if the numbers of query and key heads differ, which MLA does not allow."""
    heads, groups = config.count("num_attention_heads"), config.count("num_key_value_heads")
    if heads and groups and heads != groups:
        problem = "must equal num_attention_heads, since all heads share one latent vector"
        config.fail("num_key_value_heads", problem, groups, f"{heads}")
