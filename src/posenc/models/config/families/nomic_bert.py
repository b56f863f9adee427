"""Nomic BERT: files have the keys of its makers' own code."""

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


def usual(config: Config) -> dict[str, Any]:
    values = dict(config.values)
    for older, key in OLDER.items():
        value = values.pop(older, None)
        if value is None:
            continue
        if values.get(key) is not None:
            if value != values[key]:
                config.notes.append(f"{config.at(older)} is {shown(value)}: {key} counts")
            continue
        values[key] = value
        taken = config.defaults["rope_parameters"].get(key, value)
        if key == "rope_theta" and value != taken:
            ignored = f"the class of {config.family.name} in transformers 5 ignores: it takes"
            config.notes.append(
                f"{config.at(older)} is {shown(value)}, which {ignored} {shown(taken)}; the"
                " file's value counts here, as in its makers' code"
            )
    return values
