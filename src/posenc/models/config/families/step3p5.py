"""Step 3.5: the config lists a RoPE base and a share of rotated channels for each layer.

As in its class, the first layer of each type determines them; scaling applies to full layers.
"""

from typing import Any

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import FULL, Config, Layer, stack

FACTS = {
    "keys": {"num_key_value_heads": "num_attention_groups"},
    "defaults": {"num_key_value_heads": 8},
}
LISTS = {"rope_theta": "rope_theta", "partial_rotary_factors": "partial_rotary_factor"}


def layers(config: Config) -> list[Layer]:
    scale = config.inverse_root("query_pre_attn_scalar")
    scale = head_dim(config) ** -0.5 if scale is None else scale
    return stack(config, config.repeated([FULL]), trimmed=True, scale=scale)


def standard_keys(config: Config) -> dict[str, Any]:
    """Replace the config's lists, one value per layer, by rope settings for each type of layer."""
    values = config.without_constants(yarn_only_types=[FULL])
    nested, kinds = config.object("rope_parameters"), config.words("layer_types") or (FULL,)
    settings = {} if nested is None else nested.values
    if isinstance(settings.get(FULL), dict):
        return values
    if settings.keys() - {"rope_type", "type"}:
        config.fail("rope_parameters", f"must have settings under {FULL}", dict(settings))
    by_type = {kind: _settings(values, kinds.index(kind), config) for kind in dict.fromkeys(kinds)}
    scaling = values.pop("rope_scaling", None)
    if FULL in by_type and isinstance(scaling, dict):
        by_type[FULL] |= scaling
    left = {key: value for key, value in values.items() if key not in LISTS}
    return {**left, "rope_parameters": by_type}


def _settings(values: dict[str, Any], index: int, config: Config) -> dict[str, Any]:
    """Return the rope settings of layer `index`, from lists with one value per layer."""
    rope: dict[str, Any] = {"rope_type": "default"}
    for key, name in LISTS.items():
        listed = values.get(key)
        if isinstance(listed, list) and index >= len(listed):
            config.fail(key, "must have one entry per layer", len(listed))
        if listed is not None:
            rope[name] = listed[index] if isinstance(listed, list) else listed
    return rope
