"""Any Hugging Face config.json → what the model does about positions, layer by layer.

Both spellings are read, `rope_scaling` (transformers 4) and `rope_parameters` (5), `type` and
`rope_type`, flat and by type of layer. What a config leaves out stands for what the model's class
takes (`families`). What cannot be meant is refused in one line. torch is not imported here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from posenc.models.files.errors import ModelError, Unread, shown

LARGEST = 2**30  # bytes of a table that is made without being asked twice
LONGEST = 2**24  # tokens up to which distances are told apart


def specify(config: Mapping[str, Any], file: str = "config.json") -> Spec:
    """The specification of a config that has been read; `file` is for messages."""
    return _specify(Fields(config, file))


def _specify(given: Fields, within: str = "") -> Spec:
    """`within` is what a config inside another is, if it does not say so itself."""
    model = given.given("model_type") or within
    if not isinstance(model, str):
        given.fail("model_type", "must be a name", model)
    known = families.family(model)
    if known is None:
        if not any(given.given(key) for key in (*PLACES, "rope_theta", "rotary_dim")):
            given.refuse("model_type", model, "it is not known, and no key says what it does")
        return _stack(given, Family(model, "", "rotary"))
    known = known.settled(given.values)
    if known.refused:
        given.refuse("model_type", model, known.refused)
    spec = Spec(model, known.kind)
    if known.stacks:
        parts = {name: _stack(given, known.stack(name)) for name in known.stacks}
        spec = Spec(model, "parts", parts=parts)
    elif known.kind != "parts":
        spec = _stack(given, known)
    elif (text := _flat(given, known)) is not None:
        spec = _stack(given, text)
    return _with_parts(spec, given, known)


def _flat(given: Fields, known: Family) -> Family | None:
    """The text model whose keys stand beside those of other parts, as in older Qwen-VL files."""
    text = families.family(f"{known.name}_text")
    if text is None or any(given.given(name) is not None for name in TEXT):
        return None
    deep = text.keys.get("num_hidden_layers", "num_hidden_layers")
    return text.settled(given.values) if given.given(deep) is not None else None


def _with_parts(spec: Spec, given: Fields, known: Family) -> Spec:
    """With what the configs inside say; those that are not read get a note, unless all are not.

    Nor does what is wrong with pictures or sound keep a text model from being read.
    """
    parts, notes, unread = dict(spec.parts), list(spec.notes), None
    text = bool(spec.layers or spec.embedding) or any(name in known.parts for name in TEXT)
    for name in known.parts:
        inner = given.object(name)
        if inner is None:
            continue
        usual = (f"{known.name}_{end}" for end in (name.removesuffix("_config"), f"{name}_model"))
        within = next((kind for kind in usual if families.family(kind)), "")
        if within and inner.given("model_type") == known.name:  # older files give it the whole's
            inner = Fields({**inner.values, "model_type": within}, inner.file, inner.path)
        try:
            parts[name] = _specify(inner, within)
        except ModelError as error:
            if not isinstance(error, Unread) and (name in TEXT or not text):
                raise
            unread = error if unread is None or name in TEXT else unread
            notes.append(str(error))
    read = (spec, *(part.main for part in parts.values()))
    if not any(part.layers or part.embedding for part in read):
        if unread:
            raise unread
        if not parts and known.kind == "parts":
            there = " and ".join(known.parts)
            given.refuse("model_type", known.name, f"the file holds nothing under {there}")
    return Spec(**{**vars(spec), "parts": parts, "notes": tuple(notes)})


def _stack(given: Fields, known: Family) -> Spec:
    """One stack of layers."""
    if known.kind == "nothing":
        return Spec(known.name, known.kind)
    notes: list[str] = []
    values = _heeded(_as_the_class_reads(given, known, notes), given, known, notes)
    given = Fields(values, given.file, given.path, known.keys, known.defaults)
    _check_heads(given)
    made = KINDS[known.kind](given, known, notes)
    _refuse_switched(given, known)
    unlike = {word for layer in made["layers"] for word in layer.unlike}
    notes += [f"its attention {word}, which `attend` does not" for word in sorted(unlike)]
    heads = given.count("num_attention_heads") or 0
    return Spec(
        known.name,
        known.kind,
        heads=heads,
        groups=given.count("num_key_value_heads") or heads,
        notes=tuple(dict.fromkeys(notes)),
        **made,
    )


def _as_the_class_reads(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    """The keys of a file, with usual names for older ones, without what the class itself sets."""
    values = dict(given.values)
    for key, value in known.fixed.items():
        if values.pop(key, None) not in (None, value):
            why = f"its class takes {key} for {shown(value)}, and its makers' code as it stands"
            given.refuse(key, known.name, why)
    for older, usual in known.older.items():
        if (value := values.pop(older, None)) is None:
            continue
        if values.get(usual) is None:
            values[usual] = value
        elif value != values[usual]:
            notes.append(f"{given.at(older)} is {shown(value)}: {usual} counts")
    own = known.keys.get("head_dim", "")
    if own.startswith("qk_") and values.get("head_dim") not in (None, values.get(own)):
        notes.append(f"{given.at('head_dim')} is {shown(values.pop('head_dim'))}: {own} counts")
    return values


def _heeded(
    values: dict[str, Any], given: Fields, known: Family, notes: list[str]
) -> dict[str, Any]:
    """What a config says, without what the code of such a model ignores."""
    names = {name for key in known.ignored for name in (key, known.keys.get(key, key))}
    if "rope_parameters.partial_rotary_factor" in names:  # some methods heed it: see settings
        names -= {"partial_rotary_factor"}
    if "rope_scaling" in names:
        names |= {*PLACES}
    elif any(values.get(place) for place in PLACES):
        names -= {"rope_theta", "partial_rotary_factor"}  # which then count as if they were there
    for key in sorted(key for key in values.keys() & names if values[key] is not None):
        value = shown(values[key])
        notes.append(f"{given.at(key)} is {value}, which the code of {known.name} ignores")
    return {key: value for key, value in values.items() if key not in names}


def _refuse_switched(given: Fields, known: Family) -> None:
    """A key that changes what the model does about positions, and that no rule here is about."""
    for key, usual in known.switched.items():
        value = given.values.get(key)
        if value is not None and value != usual:
            expected = "where it is not there" if usual is None else f"where it is {shown(usual)}"
            given.refuse(key, known.name, f"with {key} {shown(value)}, but only {expected}")


def _check_heads(given: Fields) -> None:
    heads, groups = given.count("num_attention_heads"), given.count("num_key_value_heads")
    if heads and groups and heads % groups:
        given.fail(
            "num_key_value_heads",
            "must divide the heads of queries",
            groups,
            f"divisors of {heads}",
        )
    for key in ("max_position_embeddings", "num_hidden_layers", "hidden_size"):
        given.count(key)


def _learned(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    kind = given.given("position_embedding_type")
    if kind not in (None, "absolute"):
        given.fail("position_embedding_type", "is not read by posenc", kind, "'absolute'")
    table = _table(given, known)
    return {"embedding": table, "context": table.rows, "trained": table.rows} | _bottom(
        given, known
    )


def _table(given: Fields, known: Family) -> Table:
    rows, width = _rows(given, known), given.count(known.form.get("width", "hidden_size"))
    if rows is None or width is None:
        given.fail("max_position_embeddings" if rows is None else "hidden_size", "is missing")
    bytes_ = 4 * rows * width
    if bytes_ > LARGEST:
        size = f"{bytes_ / 2**40:.1f} TiB" if bytes_ > 2**40 else f"{bytes_ / 2**30:.1f} GiB"
        given.fail("max_position_embeddings", f"a table of so many rows needs {size}", rows)
    offset = known.offset
    if offset == "pad + 1":
        offset = (given.count("pad_token_id", least=0) or 0) + 1
    usable = rows + known.extra - int(offset)
    if usable < 1:
        given.fail("max_position_embeddings", f"leaves no row after the first {offset}", rows)
    return Table(usable, width, int(offset))


def _rows(given: Fields, known: Family) -> int | None:
    """As many as tokens, or as patches of a picture."""
    if "grid" not in known.form:
        return given.count("max_position_embeddings")
    image, patch = (_sides(given, key) for key in known.form["grid"])
    return (image[0] // patch[0]) * (image[1] // patch[1])


def _sides(given: Fields, key: str) -> tuple[int, ...]:
    """Height and width, where one number stands for both."""
    sides = given.counts(key, least=1) if isinstance(given.value(key), list) else given.count(key)
    if sides is None or (isinstance(sides, tuple) and len(sides) != 2):
        given.fail(key, "must be a number of pixels, or two", given.value(key))
    return sides if isinstance(sides, tuple) else (sides, sides)


def _bottom(given: Fields, known: Family) -> dict[str, Any]:
    """Layers that know nothing of positions, above embeddings that do."""
    return {"layers": layers(given, known)}


def _sinusoidal(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    width, rows = given.count("hidden_size"), given.count("max_position_embeddings")
    if width is None:
        given.fail("hidden_size", "is missing")
    if width % 2:
        given.fail("hidden_size", "must be even: sines and cosines come in pairs", width)
    offset = known.offset
    if offset == "pad + 1":
        offset = (given.count("pad_token_id", least=0) or 0) + 1
    waves = Waves(
        width,
        float(known.waves.get("base", 10_000.0)),
        bool(known.waves.get("halves")),
        known.waves.get("step") == "d/2 − 1",
        rows,
        int(offset),
    )
    return {"embedding": waves, "context": rows, "trained": rows} | _bottom(given, known)


def _alike(given: Fields, known: Family, encoding: Any) -> tuple[Layer, ...]:
    return tuple(replace(layer, encoding=encoding) for layer in layers(given, known))


def _alibi(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    heads = given.count("num_attention_heads")
    if heads is None:
        given.fail("num_attention_heads", "is missing")
    longest = given.count("max_position_embeddings")
    if (own := given.object("attn_config")) is not None:  # MPT's
        for key, usual in (("alibi", True), ("rope", False), ("learned_pos_emb", False)):
            if own.given(key) not in (None, usual):
                why = "its makers' code heeds it, and transformers adds slopes all the same"
                own.refuse(key, known.name, why)
        if own.given("alibi_bias_max") not in (None, 8):
            most = shown(own.given("alibi_bias_max"))
            notes.append(
                f"{own.at('alibi_bias_max')} is {most}: slopes are those of 8 here, as transformers"
                " ignores it; MPT's own code does not"
            )
    falcon = bool(known.form.get("divided"))
    strength = head_dim(given) ** -0.5 if falcon else 1.0
    if falcon:
        notes.append(
            "slopes times positions are rounded to bfloat16, as its code does: neighbours past"
            " 256 tokens into a text are told apart less and less"
        )
    made = _alike(given, known, Slopes(heads, strength, falcon))
    return {"layers": made, "context": longest, "trained": longest}


def _t5(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    heads = given.count("num_attention_heads")
    buckets = given.count("relative_attention_num_buckets", least=2, most=LONGEST)
    reach = given.count("relative_attention_max_distance", most=LONGEST)
    if heads is None or buckets is None or reach is None:
        given.fail("relative_attention_num_buckets", "or the number of heads is missing")
    both = bool(known.form.get("bidirectional", True))
    side = buckets // 2 if both else buckets
    if side < 2 or reach <= side // 2:
        given.fail(
            "relative_attention_max_distance",
            f"must exceed the {side // 2} distances that have a bucket of their own",
            reach,
        )
    return {"layers": _alike(given, known, Buckets(heads, buckets, reach, both))}


def _deberta(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    rows = given.count("max_position_embeddings")
    heads, dim = given.count("num_attention_heads"), head_dim(given)
    if heads is None or rows is None:
        given.fail("max_position_embeddings", "or the number of heads is missing")
    absolute = given.value("position_biased_input")
    embedding = _table(given, known) if absolute in (None, True) else None
    made: dict[str, Any] = {"embedding": embedding, "context": rows, "trained": rows}
    if not given.value("relative_attention"):
        return made | _bottom(given, known)
    reach = given.value("max_relative_positions")
    buckets = given.value("position_buckets")
    terms = given.value("pos_att_type")
    terms = terms.split("|") if isinstance(terms, str) else terms
    terms = [] if terms is None else terms
    if not isinstance(terms, list) or any(term not in ("c2p", "p2c") for term in terms):
        given.refuse("pos_att_type", known.name, "it has other terms than c2p and p2c")
    terms = tuple(dict.fromkeys(terms))
    if not terms:
        return made | _bottom(given, known)
    reach = rows if not isinstance(reach, int) or reach < 1 else reach
    buckets = buckets if isinstance(buckets, int) and buckets > 0 else 0
    encoding = Disentangled(dim, heads, dim * heads, reach, buckets, terms)
    return made | {"layers": _alike(given, known, encoding)}


def _transformer_xl(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    heads, width = given.count("num_attention_heads"), given.count("hidden_size")
    if heads is None or width is None:
        given.fail("hidden_size", "or the number of heads is missing")
    for key, usual in (("clamp_len", -1), ("bi_data", False)):  # XLNet's
        if given.value(key) not in (None, usual):
            given.refuse(key, known.name, f"with {key} its distances are others than they are")
    if known.form.get("segments"):
        notes.append("with token_type_ids it adds a bias for tokens of another segment as well")
    encoding = Projected(head_dim(given), heads, width, bool(known.form.get("halves")))
    return {"layers": _alike(given, known, encoding)}


def _dinov3(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    dim, base = head_dim(given), given.number("rope_theta", above=1.0)
    if base is None:
        given.fail("rope_theta", "is missing")
    if dim % 4:
        given.fail("hidden_size", "makes heads whose channels two axes cannot share alike", dim)
    return {"layers": _alike(given, known, Pictured(dim, base))}


def _none(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    longest = given.count("max_position_embeddings")
    return _bottom(given, known) | {"context": longest, "trained": longest}


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
