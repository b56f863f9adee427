"""The rope settings of a config, in every spelling → how each type of layer turns.

Where a key may stand in two places, both must say the same. A key that its method does not read is
refused: a scaling that is silently dropped shows only in long texts.
"""

import re
from collections.abc import Mapping
from math import log, sqrt
from typing import Any

from posenc.models.config.families import Family
from posenc.models.config.fields import WIDEST, Fields, head_dim
from posenc.models.config.layers import layers
from posenc.models.config.spec import Rotary
from posenc.models.files.errors import ModelError, shown

METHODS = {  # rope_type -> the keys that it reads, beyond those of EVERY
    "default": (),
    "linear": ("factor",),
    "ntk": ("factor", "alpha"),
    "dynamic": ("factor", "alpha"),
    "yarn": ("factor", "attention_factor", "beta_fast", "beta_slow", "truncate")  # noqa: RUF005
    + ("mscale", "mscale_all_dim"),
    "longrope": ("factor", "attention_factor", "short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "proportional": ("factor",),
}
EVERY = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section")
EVERY += ("mrope_interleaved", "original_max_position_embeddings")
KEYS = {*EVERY, *(key for keys in METHODS.values() for key in keys)}
SAME = {"su": "longrope", "mrope": "default"}  # names that mean another
PLACES = ("rope_parameters", "rope_scaling")
POSITIONAL = re.compile(r"(^|_)(rope|rotary|alibi|yarn|ntk|logn)(_|$)")


def rotary(given: Fields, known: Family, notes: list[str]) -> dict[str, Any]:
    given.number("rope_theta", above=1.0)
    given.number("partial_rotary_factor", above=0, most=1.0)
    given.count("original_max_position_embeddings")
    settings = _settings(given, known, notes)
    turns = {label: _turn(own, given, known, notes) for label, own in settings.items()}
    made = layers(given, known, turns)
    scaled = [turn for turn in turns.values() if turn and turn.method != "default"]
    _refuse_unknown(given)
    if not known.name or known.layout == "":
        notes.append("the layout is not known: whether the channels of a pair sit side by side")
    longest = given.count("max_position_embeddings")
    return {"layers": made, **_reach(longest, scaled, notes)}


def _reach(longest: int | None, scaled: list[Rotary], notes: list[str]) -> dict[str, int | None]:
    """How far it reaches, and how far it did before it was stretched."""
    reach = {"context": longest, "trained": longest}
    for turn in scaled:
        if turn.method in ("linear", "ntk", "proportional"):
            if turn.factor > 1 and longest:
                reach["trained"] = max(1, round(longest / turn.factor))
        elif turn.trained:
            reach["trained"] = turn.trained
            stretched = round(turn.trained * turn.factor)
            if turn.method in ("dynamic", "yarn") and stretched > (longest or 0):
                reach["context"] = stretched
                notes.append(
                    f"max_position_embeddings is {longest}, but {turn.trained} tokens stretched"
                    f" {turn.factor:g} times make {stretched}: that is the context counted here,"
                    " and the lengths must not be multiplied once more"
                )
    return reach


def _settings(given: Fields, known: Family, notes: list[str]) -> dict[str, Fields | None]:
    """The rope settings of each type of layer, "" for all; None where a type does not turn."""
    found = _found(given)
    theta, share = "rope_theta", "partial_rotary_factor"
    default = given.defaults.get("rope_parameters") or {}
    if found is not None and _nested(found, given, known):
        objects = {label: found.object(label) for label in found.values}
        for label, own in objects.items():
            if own is not None:
                own.defaults = {**default.get(label, {}), "rope_type": "default"}
                own.defaults.setdefault(theta, given.value(theta))
        return objects
    if not known.rope:
        own = found or Fields({}, given.file, given.path)
        flat = default if found is None or not _type(found) else _kept(default)
        own.defaults = {**given.defaults, **flat}
        for key in (theta, share, "original_max_position_embeddings"):
            said = own.agree(key, given, key)
            own.defaults[key] = own.defaults.get(key) if said is None else said
        return {"": own}
    made = {}
    for label, rule in known.rope.items():  # flat settings of a model that has several
        values = dict(found.values) if found is not None and rule.get("scaled", True) else {}
        own = Fields(values, given.file, found.path if found else given.path)
        base = given.given(rule.get("theta", theta))
        kept = default.get(label, {}) if not values else _kept(default.get(label, {}))
        own.defaults = {**kept, **({} if base is None else {theta: base})}
        if share in given.values:
            own.defaults[share] = given.given(share)
        own.defaults.setdefault(
            "original_max_position_embeddings", given.given("original_max_position_embeddings")
        )
        made[label] = own
    return made


def _kept(default: Mapping[str, Any]) -> dict[str, Any]:
    """Of the defaults, what still holds where the file sets a scaling of its own."""
    return {k: v for k, v in default.items() if k in ("rope_theta", "partial_rotary_factor")}


def _found(given: Fields) -> Fields | None:
    """`rope_parameters` or `rope_scaling`, which must not disagree."""
    both = [own for own in map(given.object, PLACES) if own is not None and own.values]
    if len(both) == 2:
        new, old = both
        for key in new.values.keys() & old.values.keys():
            new.agree(key, old, key)
        if _type(new) != _type(old):
            where = f"{new.path} and {old.path}"
            raise ModelError(
                given.file, where, f"disagree: {shown(_type(new))} and {shown(_type(old))}"
            )
    return both[0] if both else None


def _type(own: Fields) -> Any:
    """`rope_type`, or `type` in older files; "mrope" is the default with sections."""
    new, old = (own.given(key) for key in ("rope_type", "type"))
    new, old = (SAME.get(name, name) if isinstance(name, str) else name for name in (new, old))
    if None not in (new, old) and new != old:
        where = f"{own.at('rope_type')} and {own.at('type')}"
        raise ModelError(own.file, where, f"disagree: {shown(new)}, {shown(old)}")
    return old if new is None else new


def _nested(own: Fields, given: Fields, known: Family) -> bool:
    labels = {*known.rope, *known.labels.values(), *(given.words("layer_types") or ())}
    return bool(own.values) and all(
        key not in KEYS and (isinstance(value, dict) or (value is None and key in labels))
        for key, value in own.values.items()
    )


def _turn(own: Fields | None, given: Fields, known: Family, notes: list[str]) -> Rotary | None:
    """How one type of layer turns."""
    if own is None:
        return None
    name = _type(own)
    name = own.defaults.get("rope_type") or "default" if name is None else name
    if not isinstance(name, str) or name not in METHODS:
        own.fail("rope_type", "is not known", name, ", ".join((*METHODS, *SAME)))
    usual = known.defaults.get("rope_parameters") or {}  # keys of this model's own
    own.refuse_others((*EVERY, *METHODS[name], *usual), f"rope_type {name!r}")
    base = own.number("rope_theta", above=1.0) or 10_000.0
    dim, turned, share = _width(own, given, known, name, notes)
    sections, woven = _sections(own, known, turned, notes)
    if name == "proportional" and sections:
        own.fail("rope_type", f"is not read beside the {len(sections)} axes of mrope_section", name)
    if name in ("ntk", "dynamic", "yarn") and turned < 4:
        own.fail(
            "rope_type", f"{name} runs from the fastest pair to the slowest, and but one turns"
        )
    longest = given.count("max_position_embeddings")
    trained = own.count("original_max_position_embeddings")
    layout = known.layout or None
    if known.layout_key and (side_by_side := given.flag(known.layout_key)) is not None:
        layout = "interleaved" if side_by_side else "half"
    turn: dict[str, Any] = {
        "dim": dim,
        "turned": turned,
        "base": base,
        "method": name,
        "layout": layout,
        "trailing": known.place == "trailing" and dim > turned,
        "backward": known.sign < 0,
        "sections": sections,
        "woven": woven,
    }
    if name in ("linear", "ntk", "dynamic", "llama3"):
        turn["factor"] = _factor(own, notes, optional=own.given("alpha") is not None)
    if name == "default":
        pass
    elif name == "dynamic":
        turn["trained"] = _trained(own, longest, longest)
        if (alpha := own.number("alpha")) is not None:  # HunYuan's: the same at any length
            turn |= {"method": "ntk", "factor": alpha, "trained": 0}
    elif name == "proportional":
        turn |= {"share": share, "factor": own.number("factor") or 1.0}
    elif name == "llama3":
        turn["trained"] = _trained(own, trained, longest)
        turn["ends"] = _ends(own, "low_freq_factor", "high_freq_factor", (1.0, 4.0), required=True)
    elif name == "yarn":
        turn |= _yarn(own, known, _trained(own, trained, longest), longest, notes)
    elif name == "longrope":
        turn |= _longrope(own, turned, _trained(own, trained, longest), longest)
    return Rotary(**turn)


def _sections(
    own: Fields, known: Family, turned: int, notes: list[str]
) -> tuple[tuple[int, ...], bool]:
    """The pairs of each axis, none where there is but one, and whether axes take turns."""
    sections, woven = own.counts("mrope_section"), own.flag("mrope_interleaved")
    if known.folder and not known.mrope:
        for key, value in {"mrope_section": sections, "mrope_interleaved": woven}.items():
            if value:
                ignores = f"the code of {known.name} ignores: it has one axis"
                notes.append(f"{own.at(key)} is {shown(value)}, which {ignores}")
        return (), False
    sections = sections or tuple(known.mrope.get("sections", ()))
    usually = bool(known.mrope.get("woven"))
    if known.mrope and woven not in (None, usually):
        ignores = f"the code of {known.name} ignores: its axes "
        ignores += "take turns" if usually else "have blocks of pairs"
        notes.append(f"{own.at('mrope_interleaved')} is {shown(woven)}, which {ignores}")
        woven = usually
    woven = usually if woven is None else woven
    if sections:
        if sum(sections) != turned // 2:
            problem = f"must sum to the {turned // 2} pairs that turn"
            own.fail("mrope_section", problem, list(sections))
        _check_sections(own, sections, woven)
    return sections, woven


def _check_sections(own: Fields, sections: tuple[int, ...], woven: bool) -> None:
    """Raises ModelError where an axis has no pair, or not as many as taking turns gives it."""
    if min(sections) < 1:
        own.fail("mrope_section", "must give each axis a pair", list(sections))
    count, total = len(sections), sum(sections)
    shares = [len(range(axis, min(count * of, total), count)) for axis, of in enumerate(sections)]
    if woven and list(sections[1:]) != shares[1:]:
        own.fail("mrope_section", f"taking turns, axes would get {shares} pairs", list(sections))


def _width(
    own: Fields, given: Fields, known: Family, name: str, notes: list[str]
) -> tuple[int, int, float]:
    """Channels of a head, how many of them turn, and the share of pairs (proportional)."""
    dim = head_dim(given)
    rest = (
        given.count("qk_nope_head_dim", least=0, most=WIDEST) or 0
        if known.place == "trailing"
        else 0
    )
    share = own.number("partial_rotary_factor", above=0, most=1.0) or 1.0
    within = own.given("partial_rotary_factor") is not None
    stated = within or given.given("partial_rotary_factor") is not None
    unheeded = "rope_parameters.partial_rotary_factor" in known.ignored
    if stated and share < 1 and name != "proportional" and unheeded:
        ignores = f"the code of {known.name} ignores: its heads turn as a whole"
        if name != "default":
            own.fail("partial_rotary_factor", f"is heeded by {name!r}, and {ignores}", share)
        notes.append(f"{own.at('partial_rotary_factor')} is {share:g}, which {ignores}")
        share = 1.0
    if name == "proportional":
        turned = dim
    elif (turned := given.count("rotary_dim", least=2) or 0) == 0:
        turned = int(dim * share)
    elif within and turned != int(dim * share) and given.given("rotary_dim") is not None:
        problem = f"disagrees with {given.at('rotary_dim')}, {turned} channels of {dim}"
        own.fail("partial_rotary_factor", problem, share)
    if turned < 2 or turned % 2 or turned > dim:
        key = "partial_rotary_factor" if share < 1 else "head_dim"
        of = own if share < 1 else given
        of.fail(
            key if given.given("rotary_dim") is None else "rotary_dim",
            f"channels turn in pairs: of a head of {dim} it turns {turned}, which must be even and"
            f" from 2 to {dim}",
        )
    return dim + rest, turned, share


def _factor(own: Fields, notes: list[str], optional: bool = False) -> float:
    factor = own.number("factor")
    if factor is None:
        if optional:
            return 1.0
        own.fail("factor", f"is missing: {_type(own)!r} stretches by it")
    if factor < 1:
        notes.append(f"{own.at('factor')} is {factor:g}: below 1 it shortens the context")
    return factor


def _trained(own: Fields, trained: int | None, longest: int | None) -> int:
    trained = trained or longest
    if trained is None:
        own.fail("original_max_position_embeddings", "is missing, and max_position_embeddings too")
    return trained


def _ends(
    own: Fields, slow: str, fast: str, default: tuple[float, float], required: bool = False
) -> tuple[float, float]:
    ends = own.number(slow), own.number(fast)
    for key, value in zip((slow, fast), ends, strict=True):
        if required and value is None:
            own.fail(key, "is missing")
    low, high = (given or usual for given, usual in zip(ends, default, strict=True))
    if low > high:
        own.fail(slow, f"must not exceed {fast}, which is {high:g}", low)
    return low, high


def _yarn(
    own: Fields, known: Family, trained: int, longest: int | None, notes: list[str]
) -> dict[str, Any]:
    factor = own.number("factor") or (longest / trained if longest else 1.0)
    if own.value("factor") is None:
        notes.append(f"{own.at('factor')} is missing: {longest} / {trained} tokens taken for it")
    mscale, all_dim = (own.number(k, above=-1e-9) for k in ("mscale", "mscale_all_dim"))
    if mscale and mscale != 1 and not all_dim:
        notes.append(
            f"{own.at('mscale')} without mscale_all_dim counts for nothing in transformers;"
            " DeepSeek's own code would scale by it"
        )
    grown = lambda m: 0.1 * m * log(factor) + 1 if factor > 1 else 1.0  # noqa: E731
    gain = own.number("attention_factor")
    if gain is None:
        gain = grown(mscale) / grown(all_dim) if mscale and all_dim else grown(1.0)
    rounded = own.flag("truncate")
    return {
        "factor": factor,
        "trained": trained,
        "ends": _ends(own, "beta_slow", "beta_fast", (1.0, 32.0)),
        "rounded": True if rounded is None else rounded,
        "gain": gain,
        "logit_gain": grown(all_dim) ** 2 if known.logit_gain == "mscale" and all_dim else 1.0,
    }


def _longrope(own: Fields, turned: int, trained: int, longest: int | None) -> dict[str, Any]:
    if trained < 2:
        key = "original_max_position_embeddings"
        own.fail(key, "must be 2 at least, as longrope divides by its logarithm", trained)
    short, long = (own.numbers(key, turned // 2) for key in ("short_factor", "long_factor"))
    for key, factors in (("short_factor", short), ("long_factor", long)):
        if factors is None:
            own.fail(key, "is missing")
    factor = own.number("factor") or (longest / trained if longest else 1.0)
    gain = own.number("attention_factor")
    if gain is None:
        gain = sqrt(1 + log(factor) / log(trained)) if factor > 1 else 1.0
    return {"short": short, "long": long, "factor": factor, "trained": trained, "gain": gain}


def _refuse_unknown(given: Fields) -> None:
    """A key that looks as if it said something about positions, and that nothing here reads.

    An indexer turns its own queries and keys, to choose those that are attended to.
    """
    known = {*given.defaults, *given.names.values(), "indexer_rope_interleave"}
    for key in given.unread():
        if POSITIONAL.search(key) and key not in known and given.values[key] is not False:
            given.fail(key, "looks as if it changed positions, and posenc does not know how")
