"""Kimi Linear: every fourth layer has attention without RoPE; the others are recurrent."""

from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid


def layers(config: Config) -> list[Layer]:
    usual = [LINEAR, *config.every(4, FULL, LINEAR, at=0)[1:]][: config.depth()]
    return hybrid(config, _listed(config) or usual)


def _listed(config: Config) -> list[str] | None:
    """Return the type of each layer from two lists of layer numbers, which count from 1."""
    stated, count = config.object("linear_attn_config"), config.depth()
    if stated is None or config.stated("layer_types") is not None:
        return None
    full, linear = stated.counts("full_attn_layers", 1), stated.counts("kda_layers", 1)
    if full is None or linear is None:
        return None
    if sorted((*full, *linear)) != [*range(1, len(full) + len(linear) + 1)]:
        each = f"{stated.at('full_attn_layers')} and {stated.at('kda_layers')}"
        config.fail("linear_attn_config", f"must list each layer once in {each}", stated.values)
    if len(full) + len(linear) != count:
        problem = f"must have {count} entries, one for each layer"
        config.fail("layer_types", problem, len(full) + len(linear))
    return [FULL if i in full else LINEAR for i in range(1, count + 1)]
