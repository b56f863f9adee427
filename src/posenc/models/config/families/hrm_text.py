"""HRM: two stacks of the same depth, which the config may state as `num_layers_per_stack`."""

from typing import Any

from posenc.models.config.layers import Config

FACTS = {
    "keys": {"num_hidden_layers": "num_layers_per_stack"},
    "defaults": {"num_hidden_layers": 16},
    "stacks": {"H_module": {}, "L_module": {}},
}


def standard_keys(config: Config) -> dict[str, Any]:
    """Remove `num_hidden_layers` if it counts recurrent passes instead of layers."""
    values = dict(config.values)
    if values.get("num_layers_per_stack") is not None:
        values.pop("num_hidden_layers", None)
    return values
