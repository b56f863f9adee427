"""Which layer does what: types, windows, layers without encoding, sharpened queries.

The rules differ from model to model, some with opposite meanings of the same flag: `families`.
"""

from collections.abc import Mapping
from typing import Any

from posenc.models.config.families import Family
from posenc.models.config.fields import Fields, head_dim
from posenc.models.config.spec import Layer, Rotary, Sharpened

Turns = Mapping[str, Rotary | None]  # type of layer -> how it turns; "" for all types


def layers(given: Fields, known: Family, turns: Turns | None = None) -> tuple[Layer, ...]:
    count = given.count("num_hidden_layers")
    if count is None:
        given.fail("num_hidden_layers", "is missing")
    if count > 10_000:
        given.fail("num_hidden_layers", "is more than any model has", count, "1 … 10000")
    types = _types(given, known, count)
    bare = _bare(given, known, types)
    sharpened = _sharpened(given, known)
    made = []
    for kind, none in zip(types, bare, strict=True):
        turn = None if turns is None or none else _of(turns, kind, given, known)
        temperature = sharpened if none or not known.temperature.get("nope") else None
        attends = not known.attention or kind in known.attention
        window = _window(given, known, kind)
        more = _attention(given, known, kind, len(made)) if attends else {}
        encoding = turn if attends else None
        made.append(Layer(encoding, kind, attends, window, temperature, **more))
    return tuple(made)


def _attention(given: Fields, known: Family, kind: str, index: int) -> dict[str, Any]:
    """What attention needs to be told beside the encoding."""
    causal = known.causal if isinstance(known.causal, bool) else bool(given.flag(known.causal))
    return {
        "causal": causal,
        "scale": _scale(given, known, index),
        "softcap": given.number(known.softcap) if known.softcap else None,
        "sinks": kind in known.sinks,
        "beyond": known.beyond,
    }


def _scale(given: Fields, known: Family, index: int) -> float | None:
    """The softmax scale where it is another than the encoding's own."""
    rule = known.scale
    if "is" in rule:
        return rule["is"]
    if "flag" in rule:  # GPT-2's: none without this flag, less from layer to layer with the other
        scale = 1.0 if given.flag(rule["flag"]) is False else None
        if given.flag("scale_attn_by_inverse_layer_idx"):
            scale = (scale or head_dim(given) ** -0.5) / (index + 1)
        return scale
    if not rule:
        return None
    own, key = _within(given, rule["key"])
    value = own.number(key)
    if value is None and rule.get("else") == "width":  # of a head as wide as an even share of it
        return head_dim(given) ** -0.5
    return None if value is None else (value * rule.get("times", 1)) ** rule.get("power", 1)


def _of(turns: Turns, kind: str, given: Fields, known: Family):
    label = known.labels.get(kind, kind)
    if "" in turns:
        return turns[""]
    if label not in turns:
        if known.attention and kind not in known.attention:
            return None
        given.fail("layer_types", f"has {kind!r}, of which the rope settings say nothing")
    return turns[label]


def _types(given: Fields, known: Family, count: int) -> tuple[str, ...]:
    listed = given.words("layer_types")
    if listed is not None:
        if len(listed) != count:
            given.fail(
                "layer_types", f"must name the type of each of {count} layers, has", len(listed)
            )
        renamed = known.layers.get("renamed", {})
        return tuple(renamed.get(kind, kind) for kind in listed)
    flags = given.counts(known.layers["flags"]) if "flags" in known.layers else None
    if flags is not None:
        if len(flags) != count:
            given.fail(known.layers["flags"], f"must have a flag for each of {count} layers", flags)
        return tuple(known.layers["is" if flag == 0 else "else"] for flag in flags)
    bare = [key for key in ("key", "every") if known.nope.get(key)]
    if known.layers and any(given.given(known.nope[key]) for key in bare):
        kinds = {True: known.layers["is"], False: known.layers["else"]}  # Llama 4
        return tuple(kinds[bare] for bare in _bare(given, known, ("",) * count))
    if "listed" in known.layers:
        listed = given.counts(known.layers["listed"])
        one, other = known.layers["is"], known.layers["else"]
        return tuple(one if listed is None or i in listed else other for i in range(count))
    if (made := known.types(count, *_step(given, known))) is not None:
        return made
    if (
        given.flag("use_sliding_window")
        and (first := given.count("max_window_layers", 0)) is not None
    ):
        return tuple("sliding_attention" if i >= first else "full_attention" for i in range(count))
    return ("full_attention",) * count


def _step(given: Fields, known: Family) -> tuple[int | None, int | None]:
    """Of how many layers one is of another type, and which, where keys of the config say so."""
    rule = known.layers
    every = given.count(rule["key"]) if "key" in rule else None
    at = given.count(rule["at_key"], least=0) if "at_key" in rule else None
    place, period = rule.get("at", 0) if at is None else at, every or rule.get("every", 1)
    if place >= period:
        given.fail(
            rule.get("at_key") or rule["key"], f"must be below {rule['key']}, {period}", place
        )
    return every, at


def _bare(given: Fields, known: Family, types: tuple[str, ...]) -> list[bool]:
    """Which layers have no encoding."""
    rule, count = known.nope, len(types)
    if not rule or ("if" in rule and not given.value(rule["if"])):
        return [False] * count
    if "needs" in rule and not given.value(rule["needs"]):
        return [True] * count
    if "types" in rule:
        return [kind in rule["types"] for kind in types]
    flags = given.counts(rule["key"])
    if flags:
        if len(flags) != count:
            given.fail(rule["key"], f"must have a flag for each of {count} layers, has", len(flags))
        return [flag != rule["rotary"] for flag in flags]
    every = given.count(rule["every"]) or rule["default"]
    return [(i + 1) % every == 0 for i in range(count)]


def _window(given: Fields, known: Family, kind: str) -> int | None:
    if given.value("use_sliding_window") is False:
        return None
    if kind in known.windows:
        rule = known.windows[kind]
        if isinstance(rule, list):
            rule = next((one for one in rule if given.given(one["key"]) is not None), rule[-1])
        if isinstance(rule, str):
            return given.count(rule)
        size = given.count(rule["key"])
        return size and (size + rule.get("up", 0)) // rule.get("over", 1) + rule.get("plus", 0)
    alike = not known.layers and given.given("layer_types") is None and not known.windows
    if kind == "sliding_attention" or (alike and not given.value("max_window_layers")):
        return given.count("sliding_window")
    return None


def _sharpened(given: Fields, known: Family) -> Sharpened | None:
    rule = known.temperature
    if not rule or ("if" in rule and not given.value(rule["if"])):
        return None
    own, key = _within(given, rule["every"])
    steps = own.count(key)
    own, key = _within(given, rule["strength"])
    factor = own.number(key)
    if steps is None or factor is None:
        return None
    return Sharpened(steps, factor, start=1 if rule["form"] == "llama4" else 0)


def _within(given: Fields, key: str) -> tuple[Fields, str]:
    """Where a key stands that may stand in the rope settings: "rope_parameters.beta"."""
    place, _, name = key.rpartition(".")
    if not place:
        return given, key
    own = given.object(place)
    if place == "rope_parameters":
        own = own or given.object("rope_scaling")
    default = given.defaults.get(place) or {}
    if own is None:
        own = Fields(default, given.file, given.path)
    return own, name
