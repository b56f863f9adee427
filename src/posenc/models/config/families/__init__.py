"""Facts about each `model_type`, and functions that build its layers from a config.

A config.json does not state whether the channels of a pair are adjacent or half a head apart, which
layers have no encoding, or the default of a missing key. This package adds them in three places.
families.json has names of keys, defaults and the like, which tools/families.py measures in
transformers; reading it does not need transformers. by_hand.toml has facts from reading its source
that need no code. The modules have the rest; each is for the `model_type` of its name, or for those
in its `MODELS`, and may define:

    layers(config)         the layers of a stack, bottom first; default: `layers.stack`
    embedding(config)      the position table that is added to embeddings; default:
                           `tables.embedding`
    standard_keys(config)  the values of a config under the standard names of keys
    passed(config, part)   values of a nested config that the class of the whole sets
    FACTS                  fields of `Family` that cannot be measured in transformers
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

ALIASES = {  # model_type in published configs → model_type of the class in transformers
    # Kimi_K25Config does the same; only its tokenizer differs
    "kimi_k2": "deepseek_v3",
    "dinov3": "dinov3_vit",  # ComfyUI's image_encoders/dino3_large.json
}
BY_VALUE = "kind", "causal", "refused", "unsupported"  # of by_hand.toml: value → models
Kind = Literal[
    "rotary",  # queries and keys are rotated
    "learned",  # a learned row for each position is added to the embeddings
    "sinusoidal",  # a fixed row for each position is added
    "none",  # none of these; the family's module may add a bias
    "nothing",  # no attention over a sequence, so no positions
    "given",  # attention with positions that another part computes and passes to it
    "parts",  # only nested configs have positions
    "refused",  # not supported, for the reason in `Family.refused`
]


@dataclass(frozen=True)
class Family:
    """Facts about one `model_type`. Each field defaults to the value for Llama.

    `name`       its `model_type`
    `folder`     its folder in transformers/models
    `kind`       kind of the main stack of this config, not of nested configs
    `layout`     position of the two channels of a pair in the weights: "half" or "interleaved"
    `layout_key` config flag that sets the layout: true is "interleaved", false is "half"
    `place`      position of the rotated channels in a head: "leading" or "trailing"
    `sign`       −1 for rotation by −θ
    `keys`       standard name of a key → its name in this config
    `defaults`   standard name of a key → the default of the class; `rope_theta` and
                 `partial_rotary_factor` are those of a config without `rope_parameters`
    `ignored`    standard names of keys that other classes read and this one ignores: at the top of
                 a config without `rope_parameters`, or within it, as "rope_parameters.…"; with
                 "rope_scaling" all rope settings are ignored
    `rope`       label under `rope_parameters` → {"theta": old key of its base, "scaled": whether an
                 old `rope_scaling` applies to it, "gain": factor of cos and sin without
                 `attention_factor`}, if each type of layer has its own settings
    `labels`     type of layer → label under `rope_parameters`, where they differ
    `causal`     whether a query sees only earlier keys; or the config flag that states it
    `offset`     table row of the first token; "pad + 1" is the row after `pad_token_id`
    `extra`      rows of the table beyond `max_position_embeddings`
    `grid`       keys of the sizes of an image and of its patches, if rows count patches
    `width`      key of the channels of the table
    `waves`      form of a sinusoidal table: {"halves": all sines before all cosines,
                 "cosines_first": sines and cosines exchanged, "base": …, "step": "d/2" as in the
                 paper, or "d/2 − 1"}
    `stacks`     name → differing fields, for a model with two stacks
    `parts`      keys of nested configs
    `inner`      key of a nested config → {"model_type": the type its class assumes if it states
                 none, "fixed": whether the class assumes it in any case, "defaults": values that
                 the class of the whole passes to it}
    `flat`       `model_type` of the text model that the class builds from top-level keys if no
                 text config is nested
    `unsupported` an operation that `attend` lacks, as a verb phrase
    `refused`    the reason why posenc does not support it
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
    unsupported: str = ""
    refused: str = ""

    def stack(self, name: str) -> "Family":
        """Return the facts about one stack of a two-stack model, such as "encoder" or "decoder"."""
        return self.replaced(causal=name != "encoder", stacks={}, **self.stacks[name])

    def replaced(self, **changed: Any) -> "Family":
        """Return a copy with changed fields; `keys` and `defaults` are updated, not replaced."""
        return replace(self, **merged({k: getattr(self, k) for k in changed}, changed))

    @property
    def latent(self) -> bool:
        """True for multi-head latent attention (MLA), in which keys come from a latent vector."""
        return self.keys.get("head_dim") == "qk_rope_head_dim"


def merged(facts: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a family's fields, updated with the fields in `other`.

    The mappings `keys`, `defaults` and `stacks` are merged, and `ignored` is concatenated.

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
    """Return the facts about a `model_type`, or None if it is unknown.

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
    """Return every known `model_type`."""
    return tuple(dict.fromkeys((*_asked(), *_files())))


def code(family: Family) -> ModuleType | None:
    """Return the module in this package with a family's functions, such as `layers`, or None."""
    return _files().get(ALIASES.get(family.name, family.name))


@cache
def by_hand(model_type: str) -> dict[str, Any]:
    """Return the facts about a model from by_hand.toml and from the module of its family."""
    facts: dict[str, Any] = {}
    for key in BY_VALUE:
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
    """Return every `model_type` listed in by_hand.toml."""
    listed = [n for key in BY_VALUE for n in _read()[key].values()]
    return frozenset((*" ".join(listed).split(), *_read()["facts"]))


@cache
def _asked() -> dict[str, dict[str, Any]]:
    return json.loads((files(__name__) / "families.json").read_text("utf-8"))


@cache
def _read() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files(__name__) / "by_hand.toml").read_text("utf-8"))


@cache
def _files() -> dict[str, ModuleType]:
    """Map each `model_type` that has a module in this package to the module."""
    found = {}
    for one in iter_modules(__path__):
        module = import_module(f"{__name__}.{one.name}")
        found |= dict.fromkeys(getattr(module, "MODELS", one.name).split(), module)
    return found
