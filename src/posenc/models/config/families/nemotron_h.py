"""Nemotron-H: the config spells layer types as letters; no layer has positional encoding."""

from typing import Any

from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid

LETTERS = {"M": LINEAR, "*": FULL, "E": "moe", "-": "mlp"}
FACTS = {"defaults": {"num_hidden_layers": 4}, "ignored": ["num_hidden_layers"]}


def standard_keys(config: Config) -> dict[str, Any]:
    """Convert letters, such as "M*-", to a list of layer types, unless the config lists them."""
    values = dict(config.values)
    spelled = values.pop("hybrid_override_pattern", None)
    if spelled is None or config.stated("layer_types") is not None:
        return values
    if not isinstance(spelled, str) or not {*spelled} <= {*LETTERS}:
        allowed = f"a string of {' '.join(LETTERS)}"
        config.fail(
            "hybrid_override_pattern", "must have a letter for each layer", spelled, allowed
        )
    return {**values, "layers_block_type": [LETTERS[letter] for letter in spelled]}


def layers(config: Config) -> list[Layer]:
    return hybrid(config, config.repeated((LINEAR, "moe", FULL, "mlp")))
