"""Read any Hugging Face config.json into a `Spec`: what each layer does about positions.

Both spellings are read, `rope_scaling` (transformers 4) and `rope_parameters` (5), `type` and
`rope_type`, flat and by type of layer. A missing key takes the default of the model's class
(`families`). Impossible values are refused in one line. torch is not imported here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from posenc.core.text import printable, shown
from posenc.models.config import families
from posenc.models.config.families import Family
from posenc.models.config.fields import Fields, head_dim
from posenc.models.config.layers import layers
from posenc.models.config.rope_settings import PLACES, rotary
from posenc.models.config.spec import (
    TEXT,
    Buckets,
    Disentangled,
    Layer,
    Pictured,
    Projected,
    Slopes,
    Spec,
    Table,
    Waves,
)
from posenc.models.files.errors import ModelError, Unread

# Key of a saved config that names the encodings applied by `posenc.models.adapter`
ENTRY = "posenc"
LARGEST = 2**30  # bytes of a table that is made without being asked twice
OF_LAYERS = {  # keys that say of each layer whether it attends, in one class or another
    *("attn_type_list", "attn_layer_indices", "block_types", "layers_block_type"),
    *("hybrid_override_pattern", "linear_attn_config", "full_attn_idxs", "hybrid_layer_pattern"),
    *("attn_layer_period", "full_attention_interval", "layer_group_size", "hybrid_layer_ids"),
}
LATENT = {  # models that make the keys of all heads from shared latents
    *("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"),
    *("glm_moe_dsa", "kimi_k2", "minicpm3", "youtu"),
}
LONGEST = 2**24  # tokens up to which distances are told apart


def specify(config: Mapping[str, Any], file: str = "config.json") -> Spec:
    """Return the specification of a config; `file` is named in messages."""
    return _specify(Fields(config, file))


def _specify(config: Fields, defaults: Mapping[str, Any] | None = None) -> Spec:
    """Specify a config; `defaults` are those that the class of the whole gives a part."""
    model = config.stated("model_type") or ""
    if not isinstance(model, str):
        config.fail("model_type", "must be a name", model)
    family = families.family(model)
    if family is None:
        if any(config.stated(key) for key in (*PLACES, "rope_theta", "rotary_dim")):
            return _stack(config, Family(model, "", "rotary"))
        texts = tuple(name for name in TEXT if isinstance(config.stated(name), dict))
        if not texts:
            config.refuse("model_type", model, "it is not known, and no key says what it does")
        notes = (f"model_type {printable(model)!r} is not known: only its {texts[0]} is read",)
        whole = Spec(model, "parts", notes=notes)
        return _with_parts(whole, config, Family(model, "", "parts", parts=texts))
    family = family.settled(config.values, defaults)
    if family.refused:
        config.refuse("model_type", model, family.refused)
    spec = Spec(model, family.kind)
    if family.stacks:
        stacks = {name: _stack(config, family.stack(name)) for name in family.stacks}
        spec = Spec(model, "parts", parts=stacks)
    elif family.kind != "parts":
        spec = _stack(config, family)
    elif (text := _text_family(config, family)) is not None:
        spec = _stack(config, text)
    return _with_parts(replace(spec, applied=_applied(config)), config, family)


def _applied(config: Fields) -> tuple[str, ...]:
    """Class names of the encodings of posenc that stand in place of the model's own."""
    entry = config.stated(ENTRY)
    if not isinstance(entry, dict):
        return ()
    encodings = entry.get("encodings")
    if not isinstance(encodings, list) or not encodings:
        return ("an encoding that its config cannot describe",)
    names = (entry.get("class") if isinstance(entry, dict) else None for entry in encodings[:8])
    return tuple(dict.fromkeys(printable(str(name)) for name in names))


def _text_family(config: Fields, family: Family) -> Family | None:
    """The family of a text model whose keys stand at the top level, as in older Qwen-VL files."""
    text = families.family(family.flat)
    if text is None or any(config.stated(name) is not None for name in TEXT):
        return None
    deep = text.keys.get("num_hidden_layers", "num_hidden_layers")
    if config.stated(deep) is None:
        return None
    if text.refused:
        config.refuse("model_type", family.name, text.refused)
    return text.settled(config.values)


def _with_parts(spec: Spec, config: Fields, family: Family) -> Spec:
    """Add the specs of nested configs. One that cannot be read becomes a note; if none can, the
    error is raised.

    An error in the config of pictures or sound becomes a note too, beside a text model.
    """
    parts, notes, unread = dict(spec.parts), list(spec.notes), None
    text = bool(spec.layers or spec.embedding) or any(name in family.parts for name in TEXT)
    for name in family.parts:
        inner = config.object(name)
        if inner is None:
            continue
        known = family.inner.get(name, {})
        kind = inner.stated("model_type")
        # In older files a part may have the `model_type` of the whole
        if known and (known.get("fixed") or kind in (None, family.name)):
            inner = Fields(
                {**inner.values, "model_type": known["model_type"]}, inner.file, inner.path
            )
        try:
            parts[name] = _specify(inner, known.get("defaults", {}))
        except ModelError as error:
            if not isinstance(error, Unread) and (name in TEXT or not text):
                raise
            unread = error if unread is None or name in TEXT else unread
            notes.append(str(error))
    specs = (spec, *(part.main for part in parts.values()))
    if not any(part.layers or part.embedding for part in specs):
        if unread:
            raise unread
        if not parts and family.kind == "parts":
            expected = " and ".join(family.parts)
            config.refuse("model_type", family.name, f"the file holds nothing under {expected}")
    return Spec(**{**vars(spec), "parts": parts, "notes": tuple(notes)})


def _stack(config: Fields, family: Family) -> Spec:
    """Specify one stack of layers."""
    if family.kind == "nothing":
        return Spec(family.name, family.kind)
    notes: list[str] = []
    values = _keys_heeded(_as_the_class_reads(config, family, notes), config, family, notes)
    config = Fields(values, config.file, config.path, family.keys, family.defaults)
    _check_heads(config, family)
    fields = KINDS[family.kind](config, family, notes)
    _refuse_switched(config, family)
    _refuse_other_layers(config, family)
    unlike = {word for layer in fields["layers"] for word in layer.unlike}
    notes += [f"its attention {word}, which `attend` does not" for word in sorted(unlike)]
    heads = config.count("num_attention_heads") or 0
    return Spec(
        family.name,
        family.kind,
        heads=heads,
        groups=config.count("num_key_value_heads") or heads,
        notes=tuple(dict.fromkeys(notes)),
        **fields,
    )


def _as_the_class_reads(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    """The keys of a file: older names replaced by usual ones, keys that the class sets left out."""
    values = dict(config.values)
    for key, value in family.fixed.items():
        if values.pop(key, None) not in (None, value):
            why = f"its class takes {key} for {shown(value)}, and its makers' code as it stands"
            config.refuse(key, family.name, why)
    if (times := family.form.get("times")) and not values.get(family.keys["head_dim"]):
        width, heads = (config.count(key) for key in ("hidden_size", "num_attention_heads"))
        width = width or family.defaults["hidden_size"]
        heads = heads or family.defaults["num_attention_heads"]
        values[family.keys["head_dim"]] = times * width // heads
    if key := family.form.get("share"):
        turned, dim = config.count(key), values.get("head_dim") or family.defaults["head_dim"]
        if turned and isinstance(dim, int) and values.get("partial_rotary_factor") is None:
            values["partial_rotary_factor"] = turned / dim
        values.pop(key, None)
    depth = family.keys.get("num_hidden_layers", "")
    if family.form.get("runs") and values.get(depth) is not None:
        values.pop("num_hidden_layers", None)
    if family.form.get("by_layer"):
        _by_type(values, config, family)
    for older, usual in family.older.items():
        if (value := values.pop(older, None)) is None:
            continue
        if values.get(usual) is None:
            values[usual] = value
            taken = (family.defaults.get("rope_parameters") or {}).get(usual, value)
            if usual == "rope_theta" and value != taken:
                ignored = f"the class of {family.name} in transformers 5 ignores: it takes"
                notes.append(
                    f"{config.at(older)} is {shown(value)}, which {ignored} {shown(taken)}; the"
                    " file's value counts here, as in its makers' code"
                )
        elif value != values[usual]:
            notes.append(f"{config.at(older)} is {shown(value)}: {usual} counts")
    # A class that renames such a key does not read it under its usual name
    for usual in ("rope_theta", "partial_rotary_factor"):
        renamed = family.keys.get(usual, usual)
        if renamed != usual and (value := values.pop(usual, None)) is not None:
            ignored = f"the code of {family.name} ignores: it reads {renamed}"
            notes.append(f"{usual} is {shown(value)}, which {ignored}")
    renamed = family.keys.get("head_dim", "")
    if renamed.startswith("qk_") and values.get("head_dim") not in (None, values.get(renamed)):
        notes.append(
            f"{config.at('head_dim')} is {shown(values.pop('head_dim'))}: {renamed} counts"
        )
    return values


def _by_type(values: dict[str, Any], config: Fields, family: Family) -> None:
    """Make nested settings of lists with a base, or a share, for each layer, as Step 3.5 has them.

    Its class takes the first of each type; a scaling is that of full layers.
    """
    lists = {name: values.get(key) for key, name in family.form["by_layer"].items()}
    types, scaling = config.words("layer_types"), values.get("rope_scaling")
    nested = config.object("rope_parameters")
    settings = {} if nested is None else nested.values
    if isinstance(settings.get("full_attention"), dict):
        return
    if settings.keys() - {"rope_type", "type"}:
        config.fail("rope_parameters", "must hold settings for full_attention", dict(settings))
    by_type: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(types or ("full_attention",)):
        at = types.index(kind) if types else 0
        rope = {"rope_type": "default"}
        for key, name in family.form["by_layer"].items():
            one = lists[name]
            if isinstance(one, list) and at >= len(one):
                config.fail(key, f"must have a number for each layer, has {len(one)}")
            if one is not None:
                rope[name] = one[at] if isinstance(one, list) else one
        if kind == "full_attention" and isinstance(scaling, dict):
            rope |= scaling
        by_type[kind] = rope
    for key in (*family.form["by_layer"], "rope_scaling"):
        values.pop(key, None)
    values["rope_parameters"] = by_type


def _keys_heeded(
    values: dict[str, Any], config: Fields, family: Family, notes: list[str]
) -> dict[str, Any]:
    """The keys of a config that the code of such a model heeds; the others become notes."""
    names = {name for key in family.ignored for name in (key, family.keys.get(key, key))}
    # Some methods heed this key: see rope_settings.py
    if "rope_parameters.partial_rotary_factor" in names:
        names -= {"partial_rotary_factor"}
    if "rope_scaling" in names:
        names |= {*PLACES}
    elif any(values.get(place) for place in PLACES):
        names -= {"rope_theta", "partial_rotary_factor"}  # these count then, as keys at the top do
    of_windows = {"use_sliding_window", "max_window_layers"} - {*family.defaults}
    # A class does not read what it does not state
    if family.folder:
        windows = family.windows or values.get(
            "sliding_window", family.defaults.get("sliding_window")
        )
        # Without a window these keys change nothing, so no note is made
        if not windows:
            values = {key: value for key, value in values.items() if key not in of_windows}
        names |= of_windows
    for key in sorted(key for key in values.keys() & names if values[key] is not None):
        if values[key] == family.defaults.get(key):
            # The model does it anyway
            continue
        value = shown(values[key])
        notes.append(f"{config.at(key)} is {value}, which the code of {family.name} ignores")
    return {key: value for key, value in values.items() if key not in names}


def _refuse_switched(config: Fields, family: Family) -> None:
    """Refuse a key that changes what the model does about positions, and that no rule covers."""
    for key, usual in family.switched.items():
        value = config.values.get(key)
        if value is not None and value != usual:
            expected = "where it is not there" if usual is None else f"where it is {shown(usual)}"
            config.refuse(key, family.name, f"with {key} {shown(value)}, but only {expected}")


def _refuse_other_layers(config: Fields, family: Family) -> None:
    """Refuse a key that says which layers attend, and that neither the class nor posenc reads."""
    if config.stated("layer_types") is not None:
        return
    for key in sorted(OF_LAYERS & {*config.unread()} - {*family.ignored, *family.named}):
        said = config.stated(key)
        if isinstance(said, list) and said and all(one == said[0] for one in said):
            # All layers are alike, as in MiniMax M2's files
            continue
        config.refuse(key, family.name, f"{key} says of each layer what it does, in an unknown way")


def _check_heads(config: Fields, family: Family) -> None:
    heads, groups = config.count("num_attention_heads"), config.count("num_key_value_heads")
    if heads and groups and heads % groups:
        config.fail(
            "num_key_value_heads",
            "must divide the heads of queries",
            groups,
            f"divisors of {heads}",
        )
    if family.name in LATENT and heads and groups and heads != groups:
        more = "must equal num_attention_heads: all heads make their keys from shared latents"
        config.fail("num_key_value_heads", more, groups, f"{heads}")
    for key in ("max_position_embeddings", "num_hidden_layers", "hidden_size"):
        config.count(key)


def _learned(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    kind = config.stated("position_embedding_type")
    if kind not in (None, "absolute"):
        config.fail("position_embedding_type", "is not read by posenc", kind, "'absolute'")
    table = _learned_table(config, family)
    return {"embedding": table, "context": table.rows, "trained": table.rows} | _without_encoding(
        config, family
    )


def _learned_table(config: Fields, family: Family) -> Table:
    rows, width = (
        _table_length(config, family),
        config.count(family.form.get("width", "hidden_size")),
    )
    if rows is None or width is None:
        config.fail("max_position_embeddings" if rows is None else "hidden_size", "is missing")
    bytes_ = 4 * rows * width
    if bytes_ > LARGEST:
        size = f"{bytes_ / 2**40:.1f} TiB" if bytes_ > 2**40 else f"{bytes_ / 2**30:.1f} GiB"
        config.fail("max_position_embeddings", f"a table of so many rows needs {size}", rows)
    offset = family.offset
    if offset == "pad + 1":
        offset = (config.count("pad_token_id", least=0) or 0) + 1
    usable = rows + family.extra - int(offset)
    if usable < 1:
        config.fail("max_position_embeddings", f"leaves no row after the first {offset}", rows)
    return Table(usable, width, int(offset))


def _table_length(config: Fields, family: Family) -> int | None:
    """Number of rows of a table: one a token, or one a patch of a picture."""
    if "grid" not in family.form:
        return config.count("max_position_embeddings")
    image, patch = (_sides(config, key) for key in family.form["grid"])
    return (image[0] // patch[0]) * (image[1] // patch[1])


def _sides(config: Fields, key: str) -> tuple[int, ...]:
    """Read height and width, or one number for both."""
    sides = (
        config.counts(key, least=1) if isinstance(config.value(key), list) else config.count(key)
    )
    if sides is None or (isinstance(sides, tuple) and len(sides) != 2):
        config.fail(key, "must be a number of pixels, or two", config.value(key))
    return sides if isinstance(sides, tuple) else (sides, sides)


def _without_encoding(config: Fields, family: Family) -> dict[str, Any]:
    """Layers without an encoding, as they are above embeddings that have one."""
    return {"layers": layers(config, family)}


def _sinusoidal(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    width, rows = config.count("hidden_size"), config.count("max_position_embeddings")
    if width is None:
        config.fail("hidden_size", "is missing")
    if width % 2:
        config.fail("hidden_size", "must be even: sines and cosines come in pairs", width)
    offset = family.offset
    if offset == "pad + 1":
        offset = (config.count("pad_token_id", least=0) or 0) + 1
    waves = Waves(
        width,
        float(family.waves.get("base", 10_000.0)),
        bool(family.waves.get("halves")),
        family.waves.get("step") == "d/2 − 1",
        rows,
        int(offset),
    )
    return {"embedding": waves, "context": rows, "trained": rows} | _without_encoding(
        config, family
    )


def _with_encoding(config: Fields, family: Family, encoding: Any) -> tuple[Layer, ...]:
    return tuple(replace(layer, encoding=encoding) for layer in layers(config, family))


def _alibi(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    heads = config.count("num_attention_heads")
    if heads is None:
        config.fail("num_attention_heads", "is missing")
    longest = config.count("max_position_embeddings")
    # MPT has its settings in an object of their own
    if (attn_config := config.object("attn_config")) is not None:
        for key, usual in (("alibi", True), ("rope", False), ("learned_pos_emb", False)):
            if attn_config.stated(key) not in (None, usual):
                why = "its makers' code heeds it, and transformers adds slopes all the same"
                attn_config.refuse(key, family.name, why)
        if attn_config.stated("alibi_bias_max") not in (None, 8):
            key, most = attn_config.at("alibi_bias_max"), attn_config.stated("alibi_bias_max")
            notes.append(
                f"{key} is {shown(most)}: slopes are those of 8 here, as transformers ignores it;"
                " MPT's own code does not"
            )
    falcon = bool(family.form.get("divided"))
    strength = head_dim(config) ** -0.5 if falcon else 1.0
    if falcon:
        notes.append(
            "slopes times positions are rounded to bfloat16, as its code does: neighbours past"
            " 256 tokens into a text are told apart less and less"
        )
    with_slopes = _with_encoding(config, family, Slopes(heads, strength, falcon))
    return {"layers": with_slopes, "context": longest, "trained": longest}


def _t5(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    heads = config.count("num_attention_heads")
    buckets = config.count("relative_attention_num_buckets", least=2, most=LONGEST)
    reach = config.count("relative_attention_max_distance", most=LONGEST)
    if heads is None or buckets is None or reach is None:
        config.fail("relative_attention_num_buckets", "or the number of heads is missing")
    both = bool(family.form.get("bidirectional", True))
    side = buckets // 2 if both else buckets
    if side < 2 or reach <= side // 2:
        config.fail(
            "relative_attention_max_distance",
            f"must exceed the {side // 2} distances that have a bucket of their own",
            reach,
        )
    layers = _with_encoding(config, family, Buckets(heads, buckets, reach, both))
    if not family.form.get("table"):
        return {"layers": layers}
    table = _learned_table(config, family)
    return {"layers": layers, "embedding": table, "context": table.rows, "trained": table.rows}


def _deberta(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    rows = config.count("max_position_embeddings")
    heads, dim = config.count("num_attention_heads"), head_dim(config)
    if heads is None or rows is None:
        config.fail("max_position_embeddings", "or the number of heads is missing")
    absolute = config.value("position_biased_input")
    embedding = _learned_table(config, family) if absolute in (None, True) else None
    spec: dict[str, Any] = {"embedding": embedding, "context": rows, "trained": rows}
    if not config.value("relative_attention"):
        return spec | _without_encoding(config, family)
    reach = config.value("max_relative_positions")
    buckets = config.value("position_buckets")
    terms = config.value("pos_att_type")
    terms = terms.split("|") if isinstance(terms, str) else terms
    terms = [] if terms is None else terms
    if not isinstance(terms, list) or any(term not in ("c2p", "p2c") for term in terms):
        config.refuse("pos_att_type", family.name, "it has other terms than c2p and p2c")
    terms = tuple(dict.fromkeys(terms))
    if not terms:
        return spec | _without_encoding(config, family)
    reach = rows if not isinstance(reach, int) or reach < 1 else reach
    buckets = buckets if isinstance(buckets, int) and buckets > 0 else 0
    encoding = Disentangled(dim, heads, dim * heads, reach, buckets, terms)
    return spec | {"layers": _with_encoding(config, family, encoding)}


def _transformer_xl(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    heads, width = config.count("num_attention_heads"), config.count("hidden_size")
    if heads is None or width is None:
        config.fail("hidden_size", "or the number of heads is missing")
    # XLNet has these keys
    for key, usual in (("clamp_len", -1), ("bi_data", False)):
        if config.value(key) not in (None, usual):
            config.refuse(key, family.name, f"with {key} its distances are others than they are")
    if family.form.get("segments"):
        notes.append("with token_type_ids it adds a bias for tokens of another segment as well")
    encoding = Projected(head_dim(config), heads, width, bool(family.form.get("halves")))
    return {"layers": _with_encoding(config, family, encoding)}


def _dinov3(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    dim, base = head_dim(config), config.number("rope_theta", above=1.0)
    if base is None:
        config.fail("rope_theta", "is missing")
    if dim % 4:
        config.fail("hidden_size", "makes heads whose channels two axes cannot share alike", dim)
    return {"layers": _with_encoding(config, family, Pictured(dim, base))}


def _none(config: Fields, family: Family, notes: list[str]) -> dict[str, Any]:
    longest = config.count("max_position_embeddings")
    return _without_encoding(config, family) | {"context": longest, "trained": longest}


KINDS = {
    "rotary": rotary,
    "learned": _learned,
    "sinusoidal": _sinusoidal,
    "alibi": _alibi,
    "t5": _t5,
    "deberta": _deberta,
    "transformer-xl": _transformer_xl,
    "dinov3": _dinov3,
    "none": _none,
}
