"""A table of what each architecture of transformers does about positions.

A config.json says much less than its reader needs: not whether the channels of a pair sit side by
side or half a head apart, which layers have no encoding, or what a missing key stands for; and the
same flag means "none" in one model and "all" in another. families.json holds that, one line a
`model_type`, written by tools/families.py; neither torch nor transformers is needed to read it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Kind = Literal[
    "rotary",  # queries and keys are turned
    "learned",  # a learned row for each position is added to the embeddings
    "sinusoidal",  # a fixed row
    "alibi",  # a linear bias
    "t5",  # a learned bias for each bucket of distances
    "deberta",  # disentangled attention
    "shaw",  # a learned vector for each distance, added to keys or scored against queries
    "transformer-xl",  # sines of the distance, projected, with two learned biases
    "dinov3",  # queries and keys are turned by where a patch is in its picture
    "none",  # attention without any encoding: order comes from the causal mask or other layers
    "nothing",  # no attention over a sequence: nothing to encode
    "parts",  # only configs inside this one do anything about positions: `parts`
    "refused",  # something posenc does not read: `refused` says what
]


ALIASES = {  # model_type of published files → that of the class which transformers reads them with
    # Kimi_K25Config does so; only its tokenizer is another
    "kimi_k2": "deepseek_v3",
    "dinov3": "dinov3_vit",  # ComfyUI's image_encoders/dino3_large.json
}


LISTS = ("parts", "attention", "sinks", "ignored")  # fields that are tuples


@dataclass(frozen=True)
class Family:
    """One `model_type`. Fields that are left out are as in Llama.

    They stand below by the question that they answer; docs/families.md adds a family.

    `name`       its `model_type`
    `folder`     where it is in transformers/models
    `kind`       of the main stack of *this* config, not of configs inside it
    `layout`     where the two channels of a pair sit, as the weights lie: "half" or "interleaved"
    `layout_key` a flag of the config that says so: true is "interleaved", false is "half"
    `place`      which channels of a head turn where not all do: "leading" or "trailing"
    `sign`       −1: turned the other way round
    `keys`       usual name of a key → its name in this config
    `older`      names of keys in files that are older than the class → usual names
    `fixed`      keys of such files that the class does not read → the only value that it stands for
    `defaults`   usual name of a key → what the class takes where the config is silent; `rope_theta`
                 and `partial_rotary_factor` are what it takes without `rope_parameters`
    `rope`       label under `rope_parameters` → {"theta": old key of its base, "scaled": does an
                 old `rope_scaling` apply to it, "gain": of cos and sin without `attention_factor`},
                 where each type of layer has its own
    `labels`     type of layer → label under `rope_parameters`, where they differ
    `layers`     types of layers where the config has no `layer_types`: see `types`; "key" and
                 "at_key" are keys of `every` and `at`, "listed" a list of those that are "is";
                 with "nope" layers without encoding are, where `use_sliding_window` says so;
                 "renamed" are types of `layer_types` that the class calls otherwise; "letters" is
                 {key of a string: {letter: type}}, "numbers" {"key": of an object, "lists": {key of
                 a list of layers, counted from 1: type}}, "round" the key of types that go round,
                 "unlisted" the type of all layers where nothing is listed, "codes" {key of a list:
                 {number: type}}; with "forced" the last layer is of type "last" whatever is listed,
                 with "trimmed" only as many are read as there are layers; "dense" are a key of how
                 many first layers have a period of their own, and the key of that
    `switch`     {"key": a key that decides what kind it is, its value: fields of Family}: `settled`
    `attention`  types of layers that attend, where others (convolutions, recurrences) do not
    `nope`       layers without encoding: {"key": list of flags, "rotary": the flag of layers that
                 turn, "every": key of an interval, "default": its value}, with "nonzero" a list of
                 bases, where 0 is none, and without it each `default`-th from the last; or
                 {"types": […]}; without the key "if" all layers turn, without the key "needs" none
                 does; "but" {key of a list: its word for layers that do, "pattern": a key, 1 then}
    `windows`    type of layer → key of how many tokens a query sees to one side, itself included;
                 or {"key": …, "over": 2, "plus": 1}, a half of its value and one more; or a list of
                 such, of which the first counts whose key is there
    `temperature`  {"form": "llama4" | "ministral" | …, and its keys}; "nope": true if only there
    `logit_gain` "mscale": the softmax scale is multiplied by g(mscale_all_dim)², as DeepSeek does
    `causal`     does a query see only what stands before it; or the key of the config that says so
    `scale`      of the softmax, where it is not 1/√channels: {"is": a number}, {"key": of a number,
                 "times": a factor, "power": of it; "else": "width", where it is missing, 1/√ of
                 an even share of the width}, or {"flag": of GPT-2's rule}
    `softcap`    the key of c, where scores s become c tanh(s/c)
    `sinks`      types of layers with a learned logit in each head that takes its share of softmax
    `beyond`     what else its attention does that `attend` does not, after "its attention"
    `mrope`      {"sections": default pairs of each axis, "woven": interleaved or in blocks}
    `offset`     of tables: the row of the first token; "pad + 1": the one after `pad_token_id`
    `extra`      rows of the table beyond `max_position_embeddings`
    `waves`      fixed tables: {"halves": all sines before all cosines, "base": …, "step": "d/2" as
                 in the paper, or "d/2 − 1"}
    `form`       what else tells one model of a kind from another: T5 "bidirectional"; ALiBi
                 "divided" by √channels and rounded to bfloat16; tables with as many rows as a
                 "grid" of patches has, "width" the key of their channels; with "alpha" dynamic
                 scaling may raise the base by a factor of that name; "bases" is the key of a base
                 for each layer, "wide" {type of layer: key of its channels of a head}, "times" how
                 many even shares of the width a head has, "share" the key of channels that turn of
                 those of `head_dim`, "by_layer" {key of a list with one for each layer: setting},
                 "scaled" the key of a list of the layers that are scaled, without which all are,
                 with "runs" `num_hidden_layers` counts runs where its own key counts layers;
                 with "table" a T5 bias has learned positions beside it
    `stacks`     those of a model that has two: name → fields of Family in which they differ
    `parts`      keys of configs inside this one
    `inner`      such a key → {"model_type": what its class takes it for where it states none,
                 "fixed": or another one, "defaults": those that the class of the whole gives it}
    `flat`       the `model_type` of the text model that its class makes of keys at the top level
                 where no text model's config is inside
    `ignored`    usual names of keys that other classes heed and this one does not: at the top of a
                 config without `rope_parameters`, or within these, as "rope_parameters.…"; with
                 "rope_scaling" these are ignored altogether
    `switched`   other keys that change what the model does about positions, and their defaults
    `refused`    why posenc does not read it, in a sentence
    """

    # What it is
    name: str
    folder: str
    kind: Kind
    # Rotation
    layout: Literal["half", "interleaved", ""] = ""
    layout_key: str = ""
    place: Literal["leading", "trailing"] = "leading"
    sign: int = 1
    # Keys
    keys: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rope: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    # Layers
    layers: Mapping[str, Any] = field(default_factory=dict)
    attention: tuple[str, ...] = ()
    nope: Mapping[str, Any] = field(default_factory=dict)
    windows: Mapping[str, Any] = field(default_factory=dict)
    # Scores
    temperature: Mapping[str, Any] = field(default_factory=dict)
    logit_gain: Literal["", "mscale"] = ""
    causal: bool | str = True
    scale: Mapping[str, Any] = field(default_factory=dict)
    softcap: str = ""
    sinks: tuple[str, ...] = ()
    beyond: str = ""
    # Tables and axes
    mrope: Mapping[str, Any] = field(default_factory=dict)
    offset: int | str = 0
    extra: int = 0
    waves: Mapping[str, Any] = field(default_factory=dict)
    form: Mapping[str, Any] = field(default_factory=dict)
    # Parts
    switch: Mapping[str, Any] = field(default_factory=dict)
    stacks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    inner: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flat: str = ""
    # Limits
    ignored: tuple[str, ...] = ()
    switched: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""

    def stack(self, name: str) -> "Family":
        """The family of the encoder or of the decoder alone."""
        return self._with({"causal": name != "encoder", **self.stacks[name], "stacks": {}})

    def _with(self, line: Mapping[str, Any]) -> "Family":
        """Replace fields; `keys`, `defaults` and `form` are merged with the old ones."""
        merged = {
            k: {**getattr(self, k), **line[k]} for k in ("keys", "defaults", "form") if k in line
        }
        return replace(self, **{**line, **merged})

    def types(
        self, count: int, every: int | None = None, at: int | None = None
    ) -> tuple[str, ...] | None:
        """The type of each of `count` layers where the config lists none; None: all are alike.

        Layer i is of type `layers["is"]` where i % every = at, −1 the last of each `every`, and of
        type `layers["else"]` otherwise; or types go round as in `layers["cycle"]`.
        `layers["first"]` are those of the first layers, `layers["last"]` is the very last one's.
        With `layers["end"]`, i counts from the last layer down.
        """
        rule = self.layers
        if not rule:
            return None
        cycle = rule.get("cycle")
        if cycle is None:
            step = every or rule["every"]
            cycle = [rule["else"]] * step
            cycle[rule["at"] if at is None else at] = rule["is"]
        kinds = [cycle[i % len(cycle)] for i in range(count)]
        kinds = kinds[::-1] if rule.get("end") else kinds
        first = rule.get("first", [])[:count]
        kinds = [*first, *kinds[len(first) :]]
        return (*kinds[:-1], rule.get("last", kinds[-1])) if kinds else ()

    @property
    def named(self) -> tuple[str, ...]:
        """Every key of a config that its rule of layers reads."""
        rule = self.layers
        keys = [rule[k] for k in ("key", "at_key", "listed", "flags", "round") if k in rule]
        keys += [*rule.get("letters", ()), *rule.get("codes", ()), *rule.get("dense", ())]
        return (*keys, *rule.get("numbers", {}).get("key", "").split())

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every type of layer that one of its rules names."""
        rule = self.layers
        named = [rule[key] for key in ("is", "else", "last") if key in rule]
        named += [*rule.get("cycle", ()), *rule.get("first", ()), *rule.get("renamed", {}).values()]
        for words in (*rule.get("letters", {}).values(), *rule.get("codes", {}).values()):
            named += words.values()
        named += rule.get("numbers", {}).get("lists", {}).values()
        of_types = (self.rope, self.labels, self.windows, self.nope.get("types", ()), self.sinks)
        return tuple(dict.fromkeys((*named, *(kind for types in of_types for kind in types))))

    def settled(
        self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
    ) -> "Family":
        """Resolve what keys of a config decide: `switch`, and the depth of the stacks; and take
        the `defaults` of the class of a config that this one is in.

        A decoder whose depth the config leaves out is as deep as the encoder. Where no key counts
        the layers, `layer_types` does, or another key that has a word or a letter for each.
        """
        self = self._with({"defaults": defaults}) if defaults else self
        names = (self.keys.get("layer_types", "layer_types"), *self.layers.get("letters", ()))
        types = next((config[name] for name in names if config.get(name)), None)
        deep = config.get(self.keys.get("num_hidden_layers", "num_hidden_layers"))
        counted = deep is not None and "num_hidden_layers" not in self.ignored
        if isinstance(types, (list, str)) and not counted:
            self = self._with({"defaults": {"num_hidden_layers": len(types)}})
        if self.stacks:
            present = lambda keys, stack: {  # noqa: E731
                usual: key
                for usual, key in keys.items()
                if config.get(key) is not None or usual in stack.get("defaults", {})
            }
            stacks = {
                name: {**stack, "keys": present(stack.get("keys", {}), stack)}
                for name, stack in self.stacks.items()
            }
            return replace(self, stacks=stacks)
        if not self.switch:
            return self
        # A null in the config is a value too
        key = self.switch["key"]
        value = config[key] if key in config else self.defaults.get(key)
        name = value if isinstance(value, str) else json.dumps(value)
        return self._with(self.switch.get(name, self.switch.get("", {})))


def family(model_type: str) -> Family | None:
    """Look up a `model_type`; None if it is not in the table.

    >>> family("gptj").layout, family("llama").layout
    ('interleaved', 'half')
    """
    line = _lines().get(ALIASES.get(model_type, model_type))
    return None if line is None else _family(model_type, line)


def model_types() -> tuple[str, ...]:
    """Every `model_type` in the table, in order."""
    return tuple(_lines())


@cache
def _lines() -> dict[str, dict[str, Any]]:
    return json.loads((files("posenc.models.config") / "families.json").read_text("utf-8"))


def _family(name: str, line: Mapping[str, Any]) -> Family:
    lists = {f.name for f in fields(Family) if f.name in LISTS}
    values = {key: tuple(value) if key in lists else value for key, value in line.items()}
    return Family(name, **{"folder": name.replace("-", "_"), **values})
