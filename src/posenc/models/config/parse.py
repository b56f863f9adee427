"""Parse a Hugging Face config.json into a `Spec`, which has the positional encoding of each layer.

All spellings are read: `rope_scaling` (transformers 4) and `rope_parameters` (5), `type` and
`rope_type`, flat and by type of layer. A missing key has the default of the model's class, from
`families`. Impossible values raise ModelError. torch is not imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from posenc.models.config import families, tables
from posenc.models.config.families import Family
from posenc.models.config.fields import Config, Fields
from posenc.models.config.layers import stack
from posenc.models.config.rope_settings import PLACES, lengths
from posenc.models.config.spec import (
    IN_IMAGES,
    TEXT,
    Buckets,
    Convolution,
    Layer,
    OfPatches,
    Projected,
    Rotary,
    Spec,
    Table,
)
from posenc.models.files.errors import ModelError, Unread
from posenc.support.text import printable, shown

# Key of a saved config that names the encodings applied by `posenc.models.adapter`
ENTRY = "posenc"
LAYER_KEYS = {  # keys that choose the layers with attention, in various classes
    *("attn_type_list", "attn_layer_indices", "block_types", "layers_block_type"),
    *("hybrid_override_pattern", "linear_attn_config", "full_attn_idxs", "hybrid_layer_pattern"),
    *("attn_layer_period", "full_attention_interval", "layer_group_size", "hybrid_layer_ids"),
}
WINDOWS = ("sliding_window", "attention_chunk_size", "local_attention")  # keys of window sizes
GIVEN = "its positions are computed by another part, and passed to it"


def specify(config: Mapping[str, Any], file: str = "config.json") -> Spec:
    """Return the `Spec` of a config; `file` is the config's name in error messages."""
    return _specify(Fields(config, file))


def _specify(config: Fields, defaults: Mapping[str, Any] | None = None) -> Spec:
    """Return the `Spec` of a config, with `defaults` for missing keys.

    For a nested config, `defaults` come from the class of the outer config.
    """
    model = config.stated("model_type") or ""
    if not isinstance(model, str):
        config.fail("model_type", "must be a name", model)
    family = families.family(model)
    if family is None:
        if any(config.stated(key) for key in (*PLACES, "rope_theta", "rotary_dim")):
            return _stack(config, Family(model, "", "rotary"))
        texts = tuple(name for name in TEXT if isinstance(config.stated(name), dict))
        if not texts:
            config.refuse("model_type", model, "the type is unknown, and no key describes RoPE")
        notes = (f"model_type {printable(model)!r} is unknown, so only its {texts[0]} is read",)
        whole = Spec(model, "parts", notes=notes)
        return _with_parts(whole, config, Family(model, "", "parts", parts=texts))
    family = family.replaced(defaults=defaults) if defaults else family
    if family.refused:
        config.refuse("model_type", model, family.refused)
    spec = Spec(model, family.kind)
    if family.stacks:
        stacks = {
            name: _stack(config, _with_used_names(config, family, name)) for name in family.stacks
        }
        spec = Spec(model, "parts", parts=stacks)
    elif family.kind != "parts":
        spec = _stack(config, family)
    elif (text := _text_family(config, family)) is not None:
        spec = _stack(config, text)
    return _with_parts(replace(spec, applied=_applied(config)), config, family)


def _with_used_names(config: Fields, family: Family, name: str) -> Family:
    """Return a stack's facts, with the family's key names if the config lacks the stack's own."""
    own, one = family.stacks[name], family.stack(name)
    keys = {
        usual: key
        for usual, key in own.get("keys", {}).items()
        if config.values.get(key) is not None or usual in own.get("defaults", {})
    }
    return replace(one, keys={**family.keys, **keys})


def _applied(config: Fields) -> tuple[str, ...]:
    """Return the names of the encodings with which posenc replaced the model's own encoding."""
    entry = config.stated(ENTRY)
    if not isinstance(entry, dict):
        return ()
    encodings = entry.get("encodings")
    if not isinstance(encodings, list) or not encodings:
        return ("an encoding that a config cannot describe",)
    names = (entry.get("class") if isinstance(entry, dict) else None for entry in encodings[:8])
    return tuple(dict.fromkeys(printable(str(name)) for name in names))


def _text_family(config: Fields, family: Family) -> Family | None:
    """Return the family of the text model if its keys are not nested, as in older Qwen-VL."""
    text = families.family(family.flat)
    if text is None or any(config.stated(name) is not None for name in TEXT):
        return None
    deep = text.keys.get("num_hidden_layers", "num_hidden_layers")
    if config.stated(deep) is None:
        return None
    if text.refused:
        config.refuse("model_type", family.name, text.refused)
    return text


def _with_parts(spec: Spec, config: Fields, family: Family) -> Spec:
    """Return `spec` with the `Spec`s of nested configs, such as "text_config", as `parts`.

    A nested config that is not supported becomes a note; if none is supported, its Unread is
    raised. Beside a text model, an error in the config of images or audio becomes a note too.
    """
    parts, notes, unread = dict(spec.parts), list(spec.notes), None
    passed = getattr(families.code(family), "passed", None)
    text = bool(spec.layers or spec.embedding) or any(name in family.parts for name in TEXT)
    for name in family.parts:
        inner = config.object(name)
        if inner is None:
            continue
        known = family.inner.get(name, {})
        kind = inner.stated("model_type")
        # In older files, a nested config may have the `model_type` of the outer config
        if known and (known.get("fixed") or kind in (None, family.name)):
            inner = Fields(
                {**inner.values, "model_type": known["model_type"]}, inner.file, inner.path
            )
        if passed:
            inner = Fields({**inner.values, **passed(config, name)}, inner.file, inner.path)
        try:
            parts[name] = _specify(inner, known.get("defaults", {}))
        except ModelError as error:
            if not isinstance(error, Unread) and (name in TEXT or not text):
                raise
            unread = error if unread is None or name in TEXT else unread
            notes.append(str(error))
    specs = (spec, *(part.text_stack for part in parts.values()))
    if not any(part.layers or part.embedding for part in specs):
        if unread:
            raise unread
        if not parts and family.kind == "parts":
            expected = " and ".join(family.parts)
            config.refuse("model_type", family.name, f"the config has no nested {expected}")
    return Spec(**{**vars(spec), "parts": parts, "notes": tuple(notes)})


def _stack(config: Fields, family: Family) -> Spec:
    """Return the `Spec` of one stack of layers, such as a decoder."""
    if family.kind == "nothing":
        return Spec(family.name, family.kind)
    if family.kind == "given":
        return Spec(family.name, family.kind, notes=(GIVEN,))
    code = families.code(family)
    file = Config(config.values, config.file, config.path, family)
    values = _without_unread_names(
        getattr(code, "standard_keys", lambda file: file.values)(file), file
    )
    file = file.with_values(values, _with_listed_depth(values, family))
    config = file.with_values(_without_ignored_keys(file))
    _check_heads(config)
    embedding = getattr(code, "embedding", tables.embedding)(config)
    layers = getattr(code, "layers", stack)(config)
    layers = tuple(_with_direction(layer, config) for layer in layers)
    spec = Spec(family.name, _kind(layers, embedding, config), layers, embedding)
    reach = lengths(config) if config.rotations else _reach(spec, config)
    _refuse_other_layers(config)
    unsupported = {layer.unsupported for layer in layers if layer.unsupported}
    notes = [f"its attention {words}, which `attend` does not" for words in sorted(unsupported)]
    heads = config.count("num_attention_heads") or 0
    return replace(
        spec,
        heads=heads,
        groups=config.count("num_key_value_heads") or heads,
        notes=tuple(dict.fromkeys((*config.notes, *notes))),
        doubts=config.doubts,
        **reach,
    )


def _kind(layers: Sequence[Layer], embedding: Any, config: Config) -> str:
    """Return the kind of encoding, such as "rotary", in the layers or, if none, the embeddings."""
    encoding = next((layer.encoding for layer in layers if layer.encoding), None)
    if encoding is None and config.rotations:
        return Rotary.kind
    return getattr(encoding or embedding, "kind", "none")


def _with_listed_depth(values: Mapping[str, Any], family: Family) -> Family:
    """Set the default number of layers to the length of `layer_types`, if no key states it."""
    types = values.get(family.keys.get("layer_types", "layer_types"))
    deep = values.get(family.keys.get("num_hidden_layers", "num_hidden_layers"))
    counted = deep is not None and "num_hidden_layers" not in family.ignored
    if not types or not isinstance(types, list) or counted:
        return family
    return family.replaced(defaults={"num_hidden_layers": len(types)})


def _with_direction(layer: Layer, config: Config) -> Layer:
    """Set whether a layer is causal, from its class or from `is_causal` in the config.

    All masks of transformers except the chunked one use this key; null counts as false. A
    bidirectional window includes both ends.
    """
    causal = config.family.causal
    if not layer.attends or not layer.causal:
        return layer
    if causal is not True:
        return replace(layer, causal=bool(causal and config.flag(causal)))
    used = layer.kind != "chunked_attention" and "is_causal" in config.values
    if not used or config.flag("is_causal"):
        return layer
    return replace(layer, causal=False, window=layer.window and layer.window + 1)


def _reach(spec: Spec, config: Config) -> dict[str, int | None]:
    """Return the context length and trained length of a stack without RoPE, as fields of `Spec`.

    Relative positions and patches of an image have no maximum number of tokens, unless a table of
    tokens is added to the embeddings too.
    """
    if isinstance(spec.embedding, Table):
        return {"context": spec.embedding.rows, "trained": spec.embedding.rows}
    relative = any(isinstance(x.encoding, Buckets | Projected | OfPatches) for x in spec.layers)
    relative |= isinstance(spec.embedding, (*IN_IMAGES, Convolution))
    longest = None if relative else config.count("max_position_embeddings")
    return {"context": longest, "trained": longest}


def _without_unread_names(values: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Remove standard keys that the class ignores because it reads another name, and add notes."""
    values, family, notes = dict(values), config.family, config.notes
    for usual in ("rope_theta", "partial_rotary_factor"):
        renamed = family.keys.get(usual, usual)
        if renamed != usual and (value := values.pop(usual, None)) is not None:
            ignored = f"the code of {family.name} ignores; it reads {renamed}"
            notes.append(f"{usual} is {shown(value)}, which {ignored}")
    renamed = family.keys.get("head_dim", "")
    if renamed.startswith("qk_") and values.get("head_dim") not in (None, values.get(renamed)):
        where = Fields({}, config.file, config.path).at("head_dim")
        notes.append(f"{where} is {shown(values.pop('head_dim'))}, but {renamed} is used")
    return values


def _without_ignored_keys(config: Config) -> dict[str, Any]:
    """Remove keys that the code of the model ignores, and add notes."""
    values, family, notes = dict(config.values), config.family, config.notes
    names = {name for key in family.ignored for name in (key, family.keys.get(key, key))}
    # Some scaling methods use this key: see rope_settings.py
    if "rope_parameters.partial_rotary_factor" in names:
        names -= {"partial_rotary_factor"}
    if "rope_scaling" in names:
        names |= {*PLACES}
    elif any(values.get(place) for place in PLACES):
        # The class reads these keys in rope settings, and then also at the top level
        names -= {"rope_theta", "partial_rotary_factor"}
    of_windows = {"use_sliding_window", "max_window_layers"} - {*family.defaults}
    # A class without a default for these keys does not read them
    if family.folder:
        windows = any(values.get(key, family.defaults.get(key)) for key in WINDOWS)
        # Without a window these keys have no effect, so they need no note
        if not windows:
            values = {key: value for key, value in values.items() if key not in of_windows}
        names |= of_windows
    for key in sorted(key for key in values.keys() & names if values[key] is not None):
        if values[key] == family.defaults.get(key):
            # The ignored value is the one that the model uses
            continue
        value = shown(values[key])
        notes.append(f"{config.at(key)} is {value}, which the code of {family.name} ignores")
    return {key: value for key, value in values.items() if key not in names}


def _refuse_other_layers(config: Config) -> None:
    """Raise the exception Unread if a key seems to set layer types in an unknown way."""
    if config.stated("layer_types") is not None:
        return
    family = config.family
    for key in sorted(LAYER_KEYS & {*config.unread()} - {*family.ignored}):
        listed = config.stated(key)
        if isinstance(listed, list) and listed and all(one == listed[0] for one in listed):
            # All layers are alike, as in MiniMax M2's files
            continue
        config.refuse(key, family.name, f"the meaning of {key} for its layers is unknown")


def _check_heads(config: Config) -> None:
    heads, groups = config.count("num_attention_heads"), config.count("num_key_value_heads")
    if heads and groups and heads % groups:
        config.fail(
            "num_key_value_heads",
            "must divide num_attention_heads",
            groups,
            f"divisors of {heads}",
        )
    for key in ("max_position_embeddings", "num_hidden_layers", "hidden_size"):
        config.count(key)
