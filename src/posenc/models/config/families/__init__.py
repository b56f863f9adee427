"""Families of models: facts about each `model_type`, and the functions that read its layers.

A config.json says much less than its reader needs: not whether the channels of a pair sit side by
side or half a head apart, which layers have no encoding, or what a missing key stands for. Names of
keys, defaults and the like are asked of transformers, which is not needed to read them
(families.json, written by tools/families.py). by_hand.toml lists what needs no code. The rest is
plain Python: a file of this folder reads the `model_type` of its name, or those of its `MODELS`:

    layers(config)     the layers of a stack, bottom first; `layers.stack` without a file
    embedding(config)  what is added to the embeddings; `tables.embedding` without this function
    usual(config)      the keys of a file under their usual names, if its makers have others
    FACTS              fields of `Family` that transformers cannot be asked
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Literal

ALIASES = {  # model_type of published files → that of the class which transformers reads them with
    # Kimi_K25Config does so; only its tokenizer is another
    "kimi_k2": "deepseek_v3",
    "dinov3": "dinov3_vit",  # ComfyUI's image_encoders/dino3_large.json
}
Kind = Literal[
    "rotary",  # queries and keys are rotated
    "learned",  # a learned row for each position is added to the embeddings
    "sinusoidal",  # a fixed row
    "none",  # neither; a bias is the business of the family's own function
    "nothing",  # no attention over a sequence: nothing to encode
    "parts",  # only configs inside this one do anything about positions
    "refused",  # something posenc does not read: `refused` is the reason
]


@dataclass(frozen=True)
class Family:
    """Facts about one `model_type`. Missing fields are as in Llama.

    `name`       its `model_type`
    `folder`     its folder in transformers/models
    `kind`       of the main stack of this config, not of configs inside it
    `layout`     where the two channels of a pair sit, as the weights lie: "half" or "interleaved"
    `layout_key` a flag of the config that decides it: true is "interleaved", false is "half"
    `place`      the rotated channels of a head, if not all are: "leading" or "trailing"
    `sign`       −1: rotated backwards
    `keys`       usual name of a key → its name in this config
    `defaults`   usual name of a key → the default of the class; `rope_theta` and
                 `partial_rotary_factor` are those of a config without `rope_parameters`
    `ignored`    usual names of keys that other classes heed and this one does not: at the top of a
                 config without `rope_parameters`, or within these, as "rope_parameters.…"; with
                 "rope_scaling" these are ignored altogether
    `rope`       label under `rope_parameters` → {"theta": old key of its base, "scaled": whether an
                 old `rope_scaling` applies to it, "gain": of cos and sin without
                 `attention_factor`}, if each type of layer has its own
    `labels`     type of layer → label under `rope_parameters`, where they differ
    `causal`     a query sees only earlier keys; or the flag of the config that decides it
    `offset`     of tables: the row of the first token; "pad + 1": the one after `pad_token_id`
    `extra`      rows of the table beyond `max_position_embeddings`
    `grid`       keys of the sides of a picture and of its patches, if rows count patches
    `width`      key of the channels of the table, if not `hidden_size`
    `waves`      fixed tables: {"halves": all sines before all cosines, "base": …, "step": "d/2" as
                 in the paper, or "d/2 − 1"}
    `stacks`     those of a model that has two: name → fields in which they differ
    `parts`      keys of configs inside this one
    `inner`      such a key → {"model_type": what its class takes it for where it states none,
                 "fixed": or another one, "defaults": those that the class of the whole gives it}
    `flat`       the `model_type` of the text model that its class makes of keys at the top level
                 if no text model's config is inside
    `refused`    the reason why posenc does not read it
    """

    name: str
    folder: str
    kind: Kind
    layout: Literal["half", "interleaved", ""] = ""
    layout_key: str = ""
    place: Literal["leading", "trailing"] = "leading"
    sign: int = 1
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    rope: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    causal: bool | str = True
    offset: int | str = 0
    extra: int = 0
    grid: tuple[str, ...] = ()
    width: str = "hidden_size"
    waves: Mapping[str, Any] = field(default_factory=dict)
    stacks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    inner: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flat: str = ""
    refused: str = ""

    def stack(self, name: str) -> "Family":
        """Return the family of the encoder or of the decoder alone."""
        return self.but(causal=name != "encoder", stacks={}, **self.stacks[name])

    def but(self, **changed: Any) -> "Family":
        """Replace fields; `keys` and `defaults` are merged with the old ones."""
        return replace(self, **merged({k: getattr(self, k) for k in changed}, changed))

    @property
    def latent(self) -> bool:
        """True if keys and values are made from latents, apart from the rotated channels (MLA)."""
        return self.keys.get("head_dim") == "qk_rope_head_dim"


def merged(facts: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Replace fields of a family; `keys`, `defaults` and `stacks` are merged, `ignored` is added.

    >>> merged({"kind": "none", "keys": {"a": "b"}}, {"kind": "rotary", "keys": {"c": "d"}})
    {'kind': 'rotary', 'keys': {'a': 'b', 'c': 'd'}}
    """
    both: dict[str, Any] = {
        k: {**facts.get(k, {}), **other[k]} for k in ("keys", "defaults") if k in other
    }
    if "ignored" in other:
        both["ignored"] = (*other["ignored"], *facts.get("ignored", ()))
    if other.get("stacks"):
        old = facts.get("stacks", {})
        both["stacks"] = {k: merged(old.get(k, {}), v) for k, v in other["stacks"].items()}
    return {**facts, **other, **both}


def family(model_type: str) -> Family | None:
    """Look up a `model_type`; None if it is not in the table.

    >>> family("gptj").layout, family("llama").layout
    ('interleaved', 'half')
    """
    usual_name = ALIASES.get(model_type, model_type)
    if usual_name not in _asked() and usual_name not in _files():
        return None
    values = merged(_asked().get(usual_name, {}), by_hand(usual_name))
    lists = {key: tuple(values[key]) for key in ("parts", "ignored", "grid") if key in values}
    return Family(model_type, **{"folder": usual_name.replace("-", "_"), **values, **lists})


def model_types() -> tuple[str, ...]:
    """Every `model_type` that is known."""
    return tuple(dict.fromkeys((*_asked(), *_files())))


def code(family: Family) -> ModuleType | None:
    """Return the file of a family; None if all its models are read as most are."""
    return _files().get(ALIASES.get(family.name, family.name))


@cache
def by_hand(model_type: str) -> dict[str, Any]:
    """Return the facts about a model that a person has read in its source."""
    facts: dict[str, Any] = {}
    for key in ("kind", "causal", "refused"):
        for value, names in _read()[key].items():
            if model_type in names.split():
                facts[key] = value
    if "refused" in facts:
        facts["kind"] = "refused"
    if facts.get("causal") == "false":
        facts["causal"] = False
    facts |= _read()["facts"].get(model_type, {})
    return merged(facts, getattr(_files().get(model_type), "FACTS", {}))


def named_by_hand() -> frozenset[str]:
    """Return every `model_type` that by_hand.toml names."""
    listed = [n for key in ("kind", "causal", "refused") for n in _read()[key].values()]
    return frozenset((*" ".join(listed).split(), *_read()["facts"]))


@cache
def _asked() -> dict[str, dict[str, Any]]:
    return json.loads((files(__name__) / "families.json").read_text("utf-8"))


@cache
def _read() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files(__name__) / "by_hand.toml").read_text("utf-8"))


@cache
def _files() -> dict[str, ModuleType]:
    """Every `model_type` that has a file in this folder, and the file."""
    found = {}
    for one in iter_modules(__path__):
        module = import_module(f"{__name__}.{one.name}")
        found |= dict.fromkeys(getattr(module, "MODELS", one.name).split(), module)
    return found
