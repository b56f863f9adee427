"""Read the rope settings of a config, in every spelling, into a `Rotary` for each type of layer.

A key that may stand in two places must have the same value in both. A key that no method reads is
refused, and so is a factor that its method does not: a scaling that is silently dropped shows only
in long texts. One that tunes another method is a note.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import log, sqrt
from typing import Any

from posenc.models.config.fields import WIDEST, Config, Fields, head_dim
from posenc.models.config.spec import IDLE, Rotary
from posenc.models.files.errors import ModelError
from posenc.support.text import shown

METHODS = {  # rope_type -> the keys that it reads, beyond `COMMON_KEYS`
    "default": (),
    "linear": ("factor",),
    "ntk": ("factor",),
    "dynamic": ("factor", "alpha"),
    "yarn": ("factor", "attention_factor", "beta_fast", "beta_slow", "truncate")  # noqa: RUF005
    + ("mscale", "mscale_all_dim"),
    "longrope": ("factor", "attention_factor", "short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "proportional": ("factor",),
}
COMMON_KEYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section")
COMMON_KEYS += ("mrope_interleaved", "original_max_position_embeddings")
# `finetuned` says how the model was trained, and changes no angle
COMMON_KEYS += ("finetuned",)
KEYS = {*COMMON_KEYS, *(key for keys in METHODS.values() for key in keys)}
STRETCHING = {"factor", "short_factor", "long_factor"}  # keys that must not be dropped
ALIASES = {"su": "longrope", "mrope": "default"}  # names that mean another
FOPE = ("fope_init_factor", "fope_sep_head", "num_inv_freq")  # of Intern-S1-Pro
OF_PAIRS = ("ntk", "dynamic", "yarn")  # methods that need two pairs
ONE_PAIR = "runs from the fastest pair to the slowest, and but one turns"
NEARLY = 1.05  # lengths within this factor of each other are rounded values of one
PLACES = ("rope_parameters", "rope_scaling")
SAID = {"rotary": True, "use_rope": True, "rotary_pct": 1, "rope_pct": 1}  # what holds without them
POSITIONAL = re.compile(r"(^|_)(rope|rotary|alibi|yarn|ntk|logn)(_|$)")


def rotations(
    config: Config,
    sections: Sequence[int] = (),
    woven: bool = False,
    wide: Mapping[str, str] | None = None,
    alpha: bool = False,
) -> Callable[[str], Rotary | None]:
    """Read the rotation of each type of layer, and return a function from a type to its rotation.

    sections: pairs of each axis where the config states none; `woven` if axes take turns
    wide: type of layer → key of the channels of its heads, if they differ from those of others
    alpha: "dynamic" scaling may raise the base by a factor of that name
    """
    config.number("rope_theta", above=1.0)
    config.number("partial_rotary_factor", above=0, most=1.0)
    config.count("original_max_position_embeddings")
    wide = wide or {}
    by_type = _settings(config, share_at_top=not wide)
    axes = tuple(sections), woven
    for label, rope in by_type.items():
        whose = _with_heads(config, wide[label]) if label in wide else config
        config.turns[label] = _rotation(rope, whose, axes, alpha)
    _doubt(by_type, config)
    return lambda kind: _of(kind, config)


def _of(kind: str, config: Config) -> Rotary | None:
    """Return the rotation of a type of layer."""
    label = config.family.labels.get(kind, kind)
    turns = config.turns
    if "" in turns:
        return turns[""]
    if label not in turns and kind not in IDLE:
        config.fail("layer_types", f"has {kind!r}, of which the rope settings say nothing")
    return turns.get(label)


def settle(config: Config) -> dict[str, int | None]:
    """Return the context and the trained length of a stack of rotary layers, as fields of `Spec`.

    Raises ModelError for an unread key whose name speaks of positions. Call it when all else has
    been read.
    """
    scaled = [turn for turn in config.turns.values() if turn and turn.method != "default"]
    _refuse_unknown(config)
    if config.object("dual_chunk_attention_config"):
        config.notes.append(
            f"{config.at('dual_chunk_attention_config')} remaps distances beyond a chunk, which is"
            " not counted here: what is said of longer texts rests on a program that reads it"
        )
    if not config.family.name or config.family.layout == "":
        config.notes.append(
            "the layout is not known: whether the channels of a pair sit side by side"
        )
    return _reach(config.count("max_position_embeddings"), scaled, config.notes)


def _with_heads(config: Config, key: str) -> Config:
    """Return the config as layers see it whose heads have the channels that `key` states."""
    dim, saved = config.count(key, most=WIDEST), config.object("per_layer_config")
    # transformers writes these by the number of the layer
    if saved is not None:
        layers = [saved.object(number) for number in saved.values]
        dims = {layer.count("head_dim", most=WIDEST) for layer in layers if layer} - {None}
        if len(dims) > 1:
            whose = config.family.name
            config.refuse("per_layer_config", whose, f"heads of {len(dims)} other widths")
        dim = next(iter(dims), dim)
    return config.but({**config.values, "head_dim": dim})


def _doubt(by_type: Mapping[str, Fields | None], config: Config) -> None:
    """Doubt settings that scale and state no base: transformers 5 always writes one beside them.

    Files of version 4 may lack it, as those of before it was a key.
    """
    family = config.family
    keys = ("rope_theta", *(rule.get("theta", "") for rule in family.rope.values()))
    if "rope_theta" in family.ignored or any(config.stated(key) for key in keys):
        return
    for label, rope in by_type.items():
        turn = config.turns[label]
        if rope and turn and turn.method != "default" and rope.stated("rope_theta") is None:
            where = (
                f"{rope.path or 'the config'} scales by {turn.method!r} and states no rope_theta"
            )
            config.notes.append(
                f"{where}: {turn.base:,.10g}, which its class takes then, counts here"
            )
            if rope.path.endswith("rope_parameters") or f"rope_parameters.{label}" in rope.path:
                doubt = f"{where}, so the base that it was trained with may be another"
                config.doubts += (doubt,)


def _reach(longest: int | None, scaled: list[Rotary], notes: list[str]) -> dict[str, int | None]:
    """The context length, and the length before it was stretched."""
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
            elif turn.method == "llama3" and turn.factor > 1 and turn.trained == longest:
                notes.append(
                    f"max_position_embeddings is {longest}, the length before scaling: llama3"
                    f" ×{turn.factor:g} is made for {stretched}"
                )
            elif turn.method == "llama3" and turn.trained > (longest or 0):
                notes.append(
                    f"max_position_embeddings is {longest}, below the {turn.trained} tokens before"
                    " scaling: it is missing, or of another model"
                )
    return reach


def _settings(config: Config, share_at_top: bool) -> dict[str, Fields | None]:
    """The rope settings of each type of layer, "" for all; None where a type has no rotation."""
    shared, family = _rope_fields(config), config.family
    theta, share = "rope_theta", "partial_rotary_factor"
    default = config.defaults.get("rope_parameters") or {}
    if shared is not None and _nested(shared, config):
        objects = {label: shared.object(label) for label in shared.values}
        for label, rope in objects.items():
            if rope is not None:
                rope.defaults = {**default.get(label, {}), "rope_type": "default"}
                rope.defaults.setdefault(theta, config.value(theta))
        # Beside nested settings these keys mean nothing, so they are only marked as read
        for rule in family.rope.values():
            config.stated(rule.get("theta", theta))
        return objects
    if not family.rope:
        rope = shared or Fields({}, config.file, config.path)
        flat = default if shared is None or not _type(shared) else _defaults_kept(default)
        rope.defaults = {**config.defaults, **flat}
        for key in (theta, share, "original_max_position_embeddings"):
            stated = rope.agree(key, config, key)
            rope.defaults[key] = rope.defaults.get(key) if stated is None else stated
        return {"": rope}
    _flat_beside_types(shared, config)
    by_type = {}
    # The file has flat settings, of a model that has several
    for label, rule in family.rope.items():
        values = dict(shared.values) if shared is not None and rule.get("scaled", True) else {}
        rope = Fields(values, config.file, shared.path if shared else config.path)
        base = config.stated(rule.get("theta", theta))
        kept = default.get(label, {}) if not values else _defaults_kept(default.get(label, {}))
        rope.defaults = {**kept, **({} if base is None else {theta: base})}
        if "gain" in rule:
            rope.defaults["attention_factor"] = rule["gain"]
        if share in config.values and share_at_top:
            rope.defaults[share] = config.stated(share)
        rope.defaults.setdefault(
            "original_max_position_embeddings", config.stated("original_max_position_embeddings")
        )
        by_type[label] = rope
    return by_type


def _flat_beside_types(shared: Fields | None, config: Config) -> None:
    """Say that transformers 5 leaves out settings for all layers of a model that has several.

    Raises ModelError where no layer takes them: its class cannot be built from such a file.
    """
    if shared is None or not shared.values.keys() - {"rope_type", "type"}:
        return
    family = config.family
    scaled = {name: rule for name, rule in family.rope.items() if rule.get("scaled", True)}
    types = ", ".join(family.rope)
    if not scaled:
        problem = f"must hold settings for each type of layer of {family.name}, {types}"
        raise ModelError(shared.file, shared.path, problem, dict(shared.values))
    if shared.path.endswith("rope_parameters"):
        lost = "are not by type of layer"
    elif "rope_type" not in shared.values and not any("gain" in rule for rule in scaled.values()):
        lost = f"say `type` {shown(_type(shared))} and no `rope_type`"
    else:
        return
    config.notes.append(
        f"{shared.path}: its settings {lost} ({types}), and the class of {family.name} in"
        " transformers 5 leaves them out; they count here as they are meant, of"
        f" {', '.join(scaled)}"
    )


def _defaults_kept(default: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that still hold where the file sets a scaling of its own."""
    return {k: v for k, v in default.items() if k in ("rope_theta", "partial_rotary_factor")}


def _rope_fields(config: Fields) -> Fields | None:
    """Return `rope_parameters` or `rope_scaling`; raise ModelError where they disagree."""
    stated = (config.object(place) for place in PLACES)
    both = [rope for rope in stated if rope is not None and rope.values]
    if len(both) == 2:
        new, old = both
        for key in new.values.keys() & old.values.keys():
            new.agree(key, old, key)
        if _type(new) != _type(old):
            where = f"{new.path} and {old.path}"
            raise ModelError(
                config.file, where, f"disagree: {shown(_type(new))} and {shown(_type(old))}"
            )
    return both[0] if both else None


def _type(rope: Fields) -> Any:
    """Read `rope_type`, or `type` in older files; "mrope" is the default with sections."""
    new, old = (rope.stated(key) for key in ("rope_type", "type"))
    new, old = (ALIASES.get(name, name) if isinstance(name, str) else name for name in (new, old))
    if None not in (new, old) and new != old:
        where = f"{rope.at('rope_type')} and {rope.at('type')}"
        raise ModelError(rope.file, where, f"disagree: {shown(new)}, {shown(old)}")
    return old if new is None else new


def _nested(rope: Fields, config: Config) -> bool:
    """Test whether each key is a type of layer, and none a setting of all."""
    family = config.family
    labels = {*family.rope, *family.labels.values(), *(config.words("layer_types") or ())}
    usual = config.defaults.get("rope_parameters") or {}
    settings = {*KEYS, *(key for key, value in usual.items() if not isinstance(value, dict))}
    return bool(rope.values) and all(
        key not in settings and (isinstance(value, dict) or (value is None and key in labels))
        for key, value in rope.values.items()
    )


def _rotation(
    rope: Fields | None, config: Config, axes: tuple[tuple[int, ...], bool], alpha: bool
) -> Rotary | None:
    """The rotation of one type of layer."""
    if rope is None:
        return None
    family, notes = config.family, config.notes
    name = _type(rope)
    name = rope.defaults.get("rope_type") or "default" if name is None else name
    if not isinstance(name, str) or name not in METHODS:
        rope.fail("rope_type", "is not known", name, ", ".join((*METHODS, *ALIASES)))
    # This model reads some keys of its own
    usual = family.defaults.get("rope_parameters") or {}
    if key := next((key for key in FOPE if rope.stated(key) is not None), ""):
        why = "each of its waves is a weighted sum, with weights from the checkpoint"
        rope.refuse(key, "FoPE", why)
    read = (*COMMON_KEYS, *METHODS[name], *usual)
    of_others = rope.values.keys() & KEYS - STRETCHING - {*read}
    rope.refuse_others((*read, *of_others), f"rope_type {name!r}")
    for key in sorted(key for key in of_others if rope.stated(key) is not None):
        value = shown(rope.values[key])
        notes.append(f"{rope.at(key)} is {value}, which rope_type {name!r} does not read")
    base = rope.number("rope_theta", above=1.0) or 10_000.0
    dim, turned, share = _width(rope, config, name)
    sections, woven = _sections(rope, config, axes, turned)
    if name == "proportional" and sections:
        rope.fail(
            "rope_type", f"is not read beside the {len(sections)} axes of mrope_section", name
        )
    if name in OF_PAIRS and turned < 4:
        rope.fail("rope_type", f"{name} {ONE_PAIR}")
    longest = config.count("max_position_embeddings")
    trained = rope.count("original_max_position_embeddings")
    layout = family.layout or None
    if family.layout_key and (side_by_side := config.flag(family.layout_key)) is not None:
        layout = "interleaved" if side_by_side else "half"
    turn: dict[str, Any] = {
        "dim": dim,
        "turned": turned,
        "base": base,
        "method": name,
        "layout": layout,
        "trailing": family.place == "trailing" and dim > turned,
        "backward": family.sign < 0,
        "sections": sections,
        "woven": woven,
    }
    raised_by = _alpha(rope, config, alpha) if name == "dynamic" else None
    if name in ("linear", "ntk", "llama3") or (name == "dynamic" and raised_by is None):
        turn["factor"] = _factor(rope, notes)
    if name == "default":
        pass
    elif name == "dynamic" and raised_by is not None:
        raised = base * raised_by ** (turned / (turned - 2))
        turn |= {"method": "default", "factor": 1.0, "base": raised}
        notes.append(
            f"{rope.at('alpha')} is {raised_by:g}: it raises the base from {base:,.10g} to"
            f" {raised:,.10g}, for texts of any length"
        )
    elif name == "dynamic":
        turn["trained"] = _trained(rope, longest, longest)
    elif name == "proportional":
        turn |= {"share": share, "factor": rope.number("factor") or 1.0}
    elif name == "llama3":
        turn["trained"] = _trained(rope, trained, longest)
        turn["ends"] = _ends(rope, "low_freq_factor", "high_freq_factor", (1.0, 4.0), required=True)
    elif name == "yarn":
        turn |= _yarn(rope, config, _trained(rope, trained, longest), longest)
    elif name == "longrope":
        turn |= _longrope(rope, turned, _trained(rope, trained, longest), longest, notes)
    _note_lengths(rope, name, turn.get("factor", 1.0), longest, notes)
    return Rotary(**turn)


def _sections(
    rope: Fields, config: Config, axes: tuple[tuple[int, ...], bool], turned: int
) -> tuple[tuple[int, ...], bool]:
    """The number of pairs of each axis (none for a single axis), and whether axes interleave."""
    sections, woven = rope.counts("mrope_section"), rope.flag("mrope_interleaved")
    family, notes, (usual_sections, usually) = config.family, config.notes, axes
    if family.folder and not usual_sections:
        for key, value in {"mrope_section": sections, "mrope_interleaved": woven}.items():
            if value:
                ignores = f"the code of {family.name} ignores: it has one axis"
                notes.append(f"{rope.at(key)} is {shown(value)}, which {ignores}")
        return (), False
    sections = sections or usual_sections
    if usual_sections and woven not in (None, usually):
        ignores = f"the code of {family.name} ignores: its axes "
        ignores += "take turns" if usually else "have blocks of pairs"
        notes.append(f"{rope.at('mrope_interleaved')} is {shown(woven)}, which {ignores}")
        woven = usually
    woven = usually if woven is None else woven
    if sections:
        if sum(sections) != turned // 2:
            problem = f"must sum to the {turned // 2} pairs that turn"
            rope.fail("mrope_section", problem, list(sections))
        _check_sections(rope, sections, woven)
    return sections, woven


def _check_sections(rope: Fields, sections: tuple[int, ...], woven: bool) -> None:
    """Raise ModelError where an axis has no pair, or not as many as interleaving gives it."""
    if min(sections) < 1:
        rope.fail("mrope_section", "must give each axis a pair", list(sections))
    count, total = len(sections), sum(sections)
    shares = [
        len(range(axis, min(count * pairs, total), count)) for axis, pairs in enumerate(sections)
    ]
    if woven and list(sections[1:]) != shares[1:]:
        rope.fail("mrope_section", f"taking turns, axes would get {shares} pairs", list(sections))


def _width(rope: Fields, config: Config, name: str) -> tuple[int, int, float]:
    """Channels of a head, how many of them are rotated, and the share of pairs (proportional)."""
    dim, family, notes = head_dim(config), config.family, config.notes
    rest = (
        config.count("qk_nope_head_dim", least=0, most=WIDEST) or 0
        if family.place == "trailing"
        else 0
    )
    share = rope.number("partial_rotary_factor", above=0, most=1.0) or 1.0
    within = rope.stated("partial_rotary_factor") is not None
    stated = within or config.stated("partial_rotary_factor") is not None
    if rest and (not stated or abs(share * (dim + rest) - dim) < 0.5):
        # The share is that of the whole head, and all of what can turn does
        share = 1.0
    unheeded = "rope_parameters.partial_rotary_factor" in family.ignored
    if stated and share < 1 and name != "proportional" and unheeded:
        ignores = f"the code of {family.name} ignores: its heads turn as a whole"
        if name != "default":
            rope.fail("partial_rotary_factor", f"is heeded by {name!r}, and {ignores}", share)
        notes.append(f"{rope.at('partial_rotary_factor')} is {share:g}, which {ignores}")
        share = 1.0
    if name == "proportional":
        turned = dim
    elif (turned := config.count("rotary_dim", least=2) or 0) == 0:
        turned = int(dim * share)
    elif within and turned != int(dim * share) and config.stated("rotary_dim") is not None:
        problem = f"disagrees with {config.at('rotary_dim')}, {turned} channels of {dim}"
        rope.fail("partial_rotary_factor", problem, share)
    if turned < 2 or turned % 2 or turned > dim:
        key = "partial_rotary_factor" if share < 1 else "head_dim"
        source = rope if share < 1 else config
        source.fail(
            key if config.stated("rotary_dim") is None else "rotary_dim",
            f"channels turn in pairs: of a head of {dim} it turns {turned}, which must be even and"
            f" from 2 to {dim}",
        )
    return dim + rest, turned, share


def _alpha(rope: Fields, config: Config, heeded: bool) -> float | None:
    """Read the factor of the base of Hunyuan's models, which other classes ignore."""
    alpha, family = rope.number("alpha"), config.family
    if alpha is None or not family.folder or heeded:
        return alpha
    config.notes.append(f"{rope.at('alpha')} is {alpha:g}, which the code of {family.name} ignores")
    return None


def _factor(rope: Fields, notes: list[str]) -> float:
    factor = rope.number("factor")
    if factor is None:
        rope.fail("factor", f"is missing: {_type(rope)!r} stretches by it")
    _note_factor(rope, factor, notes)
    return factor


def _note_factor(rope: Fields, factor: float, notes: list[str]) -> None:
    """Note a factor that shortens the context, or that scales nothing."""
    if factor < 1:
        notes.append(f"{rope.at('factor')} is {factor:g}: below 1 it shortens the context")
    # Dynamic scaling raises the base of longer texts even by a factor of 1
    elif factor == 1 and rope.stated("factor") is not None and _type(rope) != "dynamic":
        notes.append(f"{rope.at('factor')} is 1, by which {_type(rope)!r} scales nothing")


def _note_lengths(
    rope: Fields, name: str, factor: float, longest: int | None, notes: list[str]
) -> None:
    """Note an original length that does not become the context when multiplied by the factor.

    A YaRN that is made for more than the context is noted in `_reach`.
    """
    key = "original_max_position_embeddings"
    original = rope.count(key)
    if name not in ("linear", "yarn") or not original or not longest or factor <= 1:
        return
    made = original * factor
    if made * NEARLY < longest or (name == "linear" and made > NEARLY * longest):
        key = key if rope.stated(key) is None else rope.at(key)
        notes.append(
            f"{key} is {original}, which {name} ×{factor:g} makes {made:.0f}, but"
            f" max_position_embeddings is {longest}"
        )


def _trained(rope: Fields, trained: int | None, longest: int | None) -> int:
    trained = trained or longest
    if trained is None:
        rope.fail("original_max_position_embeddings", "is missing, and max_position_embeddings too")
    return trained


def _ends(
    rope: Fields, slow: str, fast: str, default: tuple[float, float], required: bool = False
) -> tuple[float, float]:
    ends = rope.number(slow), rope.number(fast)
    for key, value in zip((slow, fast), ends, strict=True):
        if required and value is None:
            rope.fail(key, "is missing")
    low, high = (value or usual for value, usual in zip(ends, default, strict=True))
    if low > high:
        rope.fail(slow, f"must not exceed {fast}, which is {high:g}", low)
    return low, high


def _yarn(rope: Fields, config: Config, trained: int, longest: int | None) -> dict[str, Any]:
    family, notes = config.family, config.notes
    factor = rope.number("factor") or (longest / trained if longest else 1.0)
    if rope.value("factor") is None:
        notes.append(f"{rope.at('factor')} is missing: {longest} / {trained} tokens taken for it")
    grown = lambda m: 0.1 * m * log(factor) + 1 if factor > 1 else 1.0  # noqa: E731
    mscale, all_dim = (rope.number(k, above=-1e-9) for k in ("mscale", "mscale_all_dim"))
    _note_factor(rope, factor, notes)
    if mscale and family.latent and rope.stated("mscale_all_dim") is None:
        notes.append(
            f"{rope.at('mscale')} is {mscale:g} and mscale_all_dim is missing: {family.name} was"
            f" published with both, and loses a softmax scale of ×{grown(mscale) ** 2:.4g} without"
        )
    elif mscale and mscale != 1 and not all_dim:
        notes.append(
            f"{rope.at('mscale')} without mscale_all_dim counts for nothing in transformers;"
            " DeepSeek's own code would scale by it"
        )
    gain = rope.number("attention_factor")
    usual = grown(mscale) / grown(all_dim) if mscale and all_dim else grown(1.0)
    if gain is None:
        gain = usual
    elif rope.stated("attention_factor") and abs(gain - usual) > 1e-4 * usual:
        notes.append(
            f"{rope.at('attention_factor')} is {gain:g}, where yarn ×{factor:g} would take"
            f" {usual:.6g} without the key"
        )
    rounded = rope.flag("truncate")
    return {
        "factor": factor,
        "trained": trained,
        "ends": _ends(rope, "beta_slow", "beta_fast", (1.0, 32.0)),
        "rounded": True if rounded is None else rounded,
        "gain": gain,
        "logit_gain": grown(all_dim) ** 2 if family.latent and all_dim else 1.0,
    }


def _longrope(
    rope: Fields, turned: int, trained: int, longest: int | None, notes: list[str]
) -> dict[str, Any]:
    if trained < 2:
        key = "original_max_position_embeddings"
        rope.fail(key, "must be 2 at least, as longrope divides by its logarithm", trained)
    short, long = (
        rope.numbers(key, turned // 2) or rope.fail(key, "is missing")
        for key in ("short_factor", "long_factor")
    )
    factor = rope.number("factor") or (longest / trained if longest else 1.0)
    gain = rope.number("attention_factor")
    usual = sqrt(1 + log(factor) / log(trained)) if factor > 1 else 1.0
    if short != long:
        _note_longrope(rope, short, long, trained, longest, notes)
        if gain is not None and abs(gain - usual) > 1e-4 * usual:
            notes.append(
                f"{rope.at('attention_factor')} is {gain:g}, where longrope ×{factor:g} would take"
                f" {usual:.6g} without the key"
            )
    _note_factor(rope, factor, notes)
    gain = usual if gain is None else gain
    return {"short": short, "long": long, "factor": factor, "trained": trained, "gain": gain}


def _note_longrope(
    rope: Fields,
    short: tuple[float, ...],
    long: tuple[float, ...],
    trained: int,
    longest: int | None,
    notes: list[str],
) -> None:
    """Note two different lists of factors that cannot be meant as they stand.

    In all published files each long factor is at least the short one.
    """
    if all(far <= near for near, far in zip(short, long, strict=True)):
        notes.append(
            f"{rope.at('long_factor')} is nowhere above short_factor: the two lists are exchanged"
        )
    if longest and trained >= longest:
        key = "original_max_position_embeddings"
        stated = "missing" if rope.count(key) is None else trained
        key = key if rope.stated(key) is None else rope.at(key)
        notes.append(
            f"{key} is {stated}, and max_position_embeddings is {longest}: long_factor is never"
            " used"
        )


def _refuse_unknown(config: Fields) -> None:
    """Refuse a key whose name speaks of positions and that nothing here reads.

    `indexer_rope_interleave` is allowed: an indexer only chooses which keys are attended to.
    """
    understood = {*config.defaults, *config.names.values(), "indexer_rope_interleave"}
    for key in config.unread():
        said = config.values[key]
        if (
            not POSITIONAL.search(key)
            or key in understood
            or said is False
            or said == SAID.get(key)
        ):
            continue
        config.fail(key, "looks as if it changed positions, and posenc does not know how")
