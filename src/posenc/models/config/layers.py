"""Work out each layer of a stack: its type, window, encoding or none, temperature of its queries.

The rules differ from model to model, some with opposite meanings of one flag; `families` has them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from posenc.models.config.families import Family
from posenc.models.config.fields import Fields, head_dim
from posenc.models.config.spec import Layer, Rotary, Sharpened
from posenc.models.files.strict import MOST_INT

OLD_WORDS = {  # types of layers in older files → what transformers 5 takes them for
    "attention": "full_attention",
    "mamba": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}
USUAL = ("full_attention", "sliding_attention")  # types that any class may have
IDLE = ("linear_attention", "conv", "moe", "mlp")  # types of layers that do not attend
Turns = Mapping[str, Rotary | None]  # type of layer -> how it turns; "" for all types


def layers(config: Fields, family: Family, turns: Turns | None = None) -> tuple[Layer, ...]:
    count = config.count("num_hidden_layers")
    if count is None:
        config.fail("num_hidden_layers", "is missing")
    if count > 10_000:
        config.fail("num_hidden_layers", "is more than any model has", count, "1 … 10000")
    types = _types(config, family, count)
    bare = _bare(config, family, types)
    sharpened = _sharpened(config, family)
    bases = _bases(config, family, count)
    scaled = config.counts(family.form.get("scaled", ""))
    # Dozens of layers share a few types, and what follows from a type is looked up once
    attending = {kind: _attends(kind, config, family) for kind in dict.fromkeys(types)}
    windows = {kind: _window(config, family, kind) for kind in attending}
    stack = []
    for kind, without, base in zip(types, bare, bases, strict=True):
        turn = None if turns is None or without else _of(turns, kind, config, family)
        if turn and scaled is not None and len(stack) not in scaled:
            turn = replace(turn, method="default", factor=1.0, trained=0, ends=(0, 0), gain=1.0)
        if base is not None:
            turn = replace(turn, base=base) if base and turn else None
        temperature = sharpened if without or not family.temperature.get("nope") else None
        attends = attending[kind]
        more = _attention(config, family, kind, len(stack)) if attends else {}
        window = windows[kind]
        if window and _made_bidirectional(config, family, kind):
            # The mask of transformers counts such a window to both sides, its ends included
            window += 1
        encoding = turn if attends else None
        stack.append(Layer(encoding, kind, attends, window, temperature, **more))
    return tuple(stack)


def _bases(config: Fields, family: Family, count: int) -> tuple[float | None, ...]:
    """A base for each layer, where the config lists them: 0 for none; None: that of all."""
    key = family.form.get("bases", "")
    listed = config.value(key)
    if listed is None:
        return (None,) * count
    numbers = isinstance(listed, list) and all(type(base) in (int, float) for base in listed)
    fits = numbers and all(base == 0 or 1 < base <= MOST_INT for base in listed)
    if not fits or len(listed) != count:
        config.fail(key, f"must list a base above 1, or 0, for each of {count} layers", listed)
    return tuple(map(float, listed))


def _attends(kind: str, config: Fields, family: Family) -> bool:
    """Test whether a layer attends. Raises ModelError for a type that no rule of its class knows,
    since it may be anything.
    """
    if family.attention:
        idle = (*IDLE, *family.kinds)
        if kind in family.attention or kind in idle:
            return kind in family.attention
        known = (*family.attention, *idle)
    else:
        known = (*USUAL, *family.kinds)
        if kind in known:
            return True
    allowed = ", ".join(dict.fromkeys(known))
    whose = f"no layer of {family.name} has" if family.folder else "posenc does not know"
    config.fail("layer_types", f"names a type that {whose}", kind, allowed)


def _attention(config: Fields, family: Family, kind: str, index: int) -> dict[str, Any]:
    """The settings of a layer's attention beside the encoding: fields of `Layer`."""
    causal = family.causal if isinstance(family.causal, bool) else bool(config.flag(family.causal))
    causal = causal and not _made_bidirectional(config, family, kind)
    return {
        "causal": causal,
        "scale": _scale(config, family, index),
        "softcap": config.number(family.softcap) if family.softcap else None,
        "sinks": kind in family.sinks,
        "beyond": family.beyond,
    }


def _made_bidirectional(config: Fields, family: Family, kind: str) -> bool:
    """Test whether `is_causal` makes a decoder look both ways, as in embedding models.

    All masks of transformers heed it, but that of chunks; null counts as false there.
    """
    heeded = family.causal is True and kind != "chunked_attention" and "is_causal" in config.values
    return heeded and not config.flag("is_causal")


def _scale(config: Fields, family: Family, index: int) -> float | None:
    """The softmax scale where it differs from the encoding's own; None where it does not."""
    rule = family.scale
    if "is" in rule:
        return rule["is"]
    # GPT-2 divides nothing without this flag, and more in each further layer with the other
    if "flag" in rule:
        scale = 1.0 if config.flag(rule["flag"]) is False else None
        if config.flag("scale_attn_by_inverse_layer_idx"):
            scale = (scale or head_dim(config) ** -0.5) / (index + 1)
        return scale
    if not rule:
        return None
    fields, key = _within(config, rule["key"])
    value = fields.number(key)
    # The missing number means a head as wide as an even share of the width
    if value is None and rule.get("else") == "width":
        return head_dim(config) ** -0.5
    return None if value is None else (value * rule.get("times", 1)) ** rule.get("power", 1)


def _of(turns: Turns, kind: str, config: Fields, family: Family):
    label = family.labels.get(kind, kind)
    if "" in turns:
        return turns[""]
    if label not in turns:
        if family.attention and kind not in family.attention:
            return None
        config.fail("layer_types", f"has {kind!r}, of which the rope settings say nothing")
    return turns[label]


def _types(config: Fields, family: Family, count: int) -> tuple[str, ...]:
    renamed = {**OLD_WORDS, **family.layers.get("renamed", {})}
    if (listed := _listed(config, family)) is not None:
        # The rest belong to layers that predict further tokens
        if "trimmed" in family.layers:
            listed = listed[:count]
        if len(listed) != count:
            config.fail(
                "layer_types", f"must name the type of each of {count} layers, has", len(listed)
            )
        kinds = [renamed.get(kind, kind) for kind in listed]
        return (*kinds[:-1], family.layers["last"]) if "forced" in family.layers else (*kinds,)
    flags = config.counts(family.layers["flags"]) if "flags" in family.layers else None
    if flags is not None:
        if len(flags) != count:
            config.fail(
                family.layers["flags"], f"must have a flag for each of {count} layers", flags
            )
        return tuple(family.layers["is" if flag == 0 else "else"] for flag in flags)
    # In SmolLM3 layers without encoding slide, where any layer slides
    if "nope" in family.layers:
        slides = config.flag("use_sliding_window") and config.count("sliding_window")
        bare = _bare(config, family, ("",) * count)
        return tuple(family.layers["is" if slides and none else "else"] for none in bare)
    bare = [key for key in ("key", "every") if family.nope.get(key)]
    own = "nonzero" in family.nope  # its list of bases moves no window
    if family.layers and not own and any(config.stated(family.nope[key]) for key in bare):
        kinds = {True: family.layers["is"], False: family.layers["else"]}  # Llama 4
        return tuple(kinds[bare] for bare in _bare(config, family, ("",) * count))
    if "listed" in family.layers:
        listed = config.counts(family.layers["listed"])
        listed_type, other_type = family.layers["is"], family.layers["else"]
        if listed is None:
            return (family.layers.get("unlisted", listed_type),) * count
        return tuple(listed_type if i in listed else other_type for i in range(count))
    begin = _dense(config, family, count)
    if (types := family.types(count - len(begin), *_step(config, family))) is not None:
        return (*begin, *types)
    first = config.count("max_window_layers", 0)  # of those with a window, as in Qwen2
    if config.flag("use_sliding_window") is False or config.count("sliding_window") is None:
        first = None
    first = count if first is None else first
    return tuple("sliding_attention" if i >= first else "full_attention" for i in range(count))


def _dense(config: Fields, family: Family, count: int) -> tuple[str, ...]:
    """The types of the first layers, where these are dense and have a period of their own."""
    if "dense" not in family.layers:
        return ()
    key, pattern = family.layers["dense"]
    dense, every = config.count(key, least=0) or 0, config.count(pattern) or 1
    return family.types(min(dense, count), every, every - 1) or ()


def _listed(config: Fields, family: Family) -> tuple[str, ...] | None:
    """The type of each layer, where a key of the file says it, in a list of types or otherwise."""
    if (listed := config.words("layer_types")) is not None:
        return listed
    # Nemotron-H has a letter for each layer, as in "M-M*-"
    if letters := family.layers.get("letters"):
        key, *_ = letters
        spelled = config.value(key)
        if spelled is None:
            return None
        if not isinstance(spelled, str) or not {*spelled} <= {*letters[key]}:
            allowed = f"a string of {' '.join(letters[key])}"
            config.fail(key, "must have a letter for each layer", spelled, allowed)
        return tuple(letters[key][letter] for letter in spelled)
    # DeepSeek-V4 has a number for each type
    if codes := family.layers.get("codes"):
        (key, kinds) = next(iter(codes.items()))
        if (numbers := config.counts(key)) is None:
            return None
        if unknown := [number for number in numbers if str(number) not in kinds]:
            config.fail(key, "must hold numbers of types of layers", unknown[0], ", ".join(kinds))
        return tuple(kinds[str(number)] for number in numbers)
    # RecurrentGemma repeats a list of types
    if key := family.layers.get("round"):
        kinds = config.words(key) or family.layers["cycle"]
        return tuple(kinds[n % len(kinds)] for n in range(config.count("num_hidden_layers") or 0))
    # Kimi-Linear lists layers, counted from 1
    if numbers := family.layers.get("numbers"):
        fields = config.object(numbers["key"])
        stated = [(fields and fields.counts(k, 1), kind) for k, kind in numbers["lists"].items()]
        if fields is None or any(listed is None for listed, _ in stated):
            return None
        every = [(number, kind) for listed, kind in stated for number in listed or ()]
        kinds = dict(every)
        if sorted(number for number, _ in every) != [*range(1, len(kinds) + 1)]:
            each = " and ".join(map(fields.at, numbers["lists"]))
            config.fail(numbers["key"], f"must name each layer once, in {each}", fields.values)
        return tuple(kinds[number] for number in sorted(kinds))
    return None


def _step(config: Fields, family: Family) -> tuple[int | None, int | None]:
    """The period of the other type of layer, and its place in it, where the config states them."""
    rule = family.layers
    stated_period = config.count(rule["key"]) if "key" in rule else None
    stated_place = config.count(rule["at_key"], least=0) if "at_key" in rule else None
    place = rule.get("at", 0) if stated_place is None else stated_place
    period = stated_period or rule.get("every", 1)
    if place >= period:
        config.fail(
            rule.get("at_key") or rule["key"], f"must be below {rule['key']}, {period}", place
        )
    return stated_period, stated_place


def _bare(config: Fields, family: Family, types: tuple[str, ...]) -> list[bool]:
    """Test for each layer whether it has no encoding."""
    rule, count = family.nope, len(types)
    if not rule or ("if" in rule and not config.value(rule["if"])):
        return [False] * count
    if "needs" in rule and not config.value(rule["needs"]):
        return [True] * count
    if "types" in rule:
        bare = [kind in rule["types"] for kind in types]
        return _but(rule["but"], config, bare) if "but" in rule else bare
    if "nonzero" in rule:  # a list of bases, 0 for none
        bases = config.value(rule["key"])
        if bases is None:
            return [(count - 1 - i) % rule["default"] == 0 for i in range(count)]
        numbers = isinstance(bases, list) and all(type(base) in (int, float) for base in bases)
        if not numbers or len(bases) != count:
            config.fail(rule["key"], f"must list a base, or 0, for each of {count} layers", bases)
        return [not base for base in bases]
    flags = config.counts(rule["key"])
    if flags:
        if len(flags) != count:
            config.fail(
                rule["key"], f"must have a flag for each of {count} layers, has", len(flags)
            )
        return [flag != rule["rotary"] for flag in flags]
    period = config.count(rule["every"]) or rule["default"]
    return [(i + 1) % period == 0 for i in range(count)]


def _but(rule: Mapping[str, str], config: Fields, bare: list[bool]) -> list[bool]:
    """Take dense layers from those without an encoding, where their pattern is 1."""
    pattern = config.count(rule["pattern"])
    (key, named), *_ = rule.items()
    kinds = config.words(key)
    if kinds is None:
        dense = config.count("first_k_dense_replace", least=0) or 0
        kinds = [named if i < dense else "" for i in range(len(bare))]
    if len(kinds) != len(bare):
        config.fail(key, f"must name each of {len(bare)} layers, has", len(kinds))
    turn = pattern in (None, 1)
    return [b and not (turn and kind == named) for b, kind in zip(bare, kinds, strict=True)]


def _window(config: Fields, family: Family, kind: str) -> int | None:
    if config.value("use_sliding_window") is False and "nope" not in family.layers:
        # SmolLM3 masks the layers that are listed as sliding all the same
        return None
    if kind in family.windows:
        rule = family.windows[kind]
        if isinstance(rule, list):
            rule = next(
                (option for option in rule if config.stated(option["key"]) is not None), rule[-1]
            )
        if isinstance(rule, str):
            return config.count(rule)
        size = config.count(rule["key"])
        return size and (size + rule.get("up", 0)) // rule.get("over", 1) + rule.get("plus", 0)
    alike = not family.layers and config.stated("layer_types") is None and not family.windows
    if kind == "sliding_attention" or (alike and not config.value("max_window_layers")):
        return config.count("sliding_window")
    return None


def _sharpened(config: Fields, family: Family) -> Sharpened | None:
    rule = family.temperature
    if not rule or ("if" in rule and not config.value(rule["if"])):
        return None
    fields, key = _within(config, rule["every"])
    steps = fields.count(key)
    fields, key = _within(config, rule["strength"])
    factor = fields.number(key)
    if steps is None or factor is None:
        return None
    return Sharpened(steps, factor, start=1 if rule["form"] == "llama4" else 0)


def _within(config: Fields, key: str) -> tuple[Fields, str]:
    """Resolve a key that may stand in the rope settings, as "rope_parameters.beta" does."""
    parent, _, name = key.rpartition(".")
    if not parent:
        return config, key
    fields = config.object(parent)
    if parent == "rope_parameters":
        fields = fields or config.object("rope_scaling")
    default = config.defaults.get(parent) or {}
    # transformers moves this key into the rope settings from the top of a config.
    if name == "original_max_position_embeddings" and config.stated(name) is not None:
        if fields is not None:
            fields.agree(name, config, name)
        return config, name
    return fields or Fields(default, config.file, config.path), name
