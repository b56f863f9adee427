"""Nomic BERT: published configs use the keys of Nomic's own code."""

from typing import Any

from posenc.models.config.layers import Config
from posenc.support.text import shown

OLDER = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "rotary_emb_base": "rope_theta",
    "rotary_emb_fraction": "partial_rotary_factor",
}


def standard_keys(config: Config) -> dict[str, Any]:
    """Rename the keys of Nomic's code, and note values that transformers ignores."""
    values = dict(config.values)
    for older, key in OLDER.items():
        value = values.pop(older, None)
        if value is None:
            continue
        if values.get(key) is not None:
            if value != values[key]:
                config.notes.append(f"{config.at(older)} is {shown(value)}, but {key} is used")
            continue
        values[key] = value
        fixed = config.defaults["rope_parameters"].get(key, value)
        if key == "rope_theta" and value != fixed:
            config.notes.append(
                f"{config.at(older)} is {shown(value)}, as in Nomic's own code; the class of"
                f" {config.family.name} in transformers 5 ignores it and uses {shown(fixed)}"
            )
    return values
