"""HRM: two stacks that are alike. `num_hidden_layers` counts runs if the file states layers too."""

from typing import Any

from posenc.models.config.layers import Config, Layer, stack

FACTS = {
    "keys": {"num_hidden_layers": "num_layers_per_stack"},
    "defaults": {"num_hidden_layers": 16},
    "stacks": {"H_module": {}, "L_module": {}},
}
PREFIX = "looks both ways in a prefix, where `token_type_ids` mark one"


def usual(config: Config) -> dict[str, Any]:
    values = dict(config.values)
    if values.get("num_layers_per_stack") is not None:
        values.pop("num_hidden_layers", None)
    return values


def layers(config: Config) -> list[Layer]:
    return stack(config, beyond=PREFIX)
