"""Parse the rope settings of a config, in old and new format, into a `Rotary` per layer type.

A key that occurs in two places must have the same value in both. Unknown keys, and factors that
the scaling method does not use, raise an error: a scaling that is silently dropped shows only in
long texts. A key that tunes another method becomes a note.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import log, pi, sqrt
from typing import Any

from posenc.models.config.fields import WIDEST, Config, Fields, head_dim
from posenc.models.config.spec import IDLE, Fourier, Rotary
from posenc.models.files.errors import ModelError
from posenc.support.text import shown

METHODS = {  # rope_type → keys that it reads besides `COMMON_KEYS`
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
# `finetuned` describes the training, and has no effect on angles
COMMON_KEYS += ("finetuned",)
KEYS = {*COMMON_KEYS, *(key for keys in METHODS.values() for key in keys)}
STRETCHING = {"factor", "short_factor", "long_factor"}  # keys that must not be dropped
ALIASES = {"su": "longrope", "mrope": "default"}  # older names of methods
FOPE = ("fope_init_factor", "fope_sep_head", "num_inv_freq")  # keys of Intern-S1-Pro
TWO_PAIRS = ("ntk", "dynamic", "yarn")  # methods that need two pairs
ONE_PAIR = "must have at least two rotated pairs"
NEARLY = 1.05  # lengths within this factor of each other count as equal, since configs round them
PLACES = ("rope_parameters", "rope_scaling")
DEFAULTS = {"rotary": True, "use_rope": True, "rotary_pct": 1, "rope_pct": 1}  # harmless values
POSITIONAL = re.compile(r"(^|_)(rope|rotary|alibi|yarn|ntk|logn)(_|$)")


def rotations(
    config: Config,
    sections: Sequence[int] = (),
    interleaved: bool = False,
    wide: Mapping[str, str] | None = None,
    alpha: bool = False,
) -> Callable[[str], Rotary | Fourier | None]:
    """Parse the RoPE of each layer type, and return a function from a layer type to its RoPE.

    sections: default number of pairs of each axis; `interleaved` if axes alternate
    wide: type of layer → key of the channels of its heads, if they differ from those of others
    alpha: whether the class reads `alpha`, by which "dynamic" scaling raises the base
    """
    config.number("rope_theta", above=1.0)
    config.number("partial_rotary_factor", above=0, most=1.0)
    config.count("original_max_position_embeddings")
    wide = wide or {}
    by_type = _settings(config, share_at_top=not wide)
    axes = tuple(sections), interleaved
    for label, rope in by_type.items():
        whose = _with_heads(config, wide[label]) if label in wide else config
        config.rotations[label] = _rotation(rope, whose, axes, alpha)
    _doubt_missing_base(by_type, config)
    return lambda kind: _rope_of(kind, config)


def _rope_of(kind: str, config: Config) -> Rotary | Fourier | None:
    """Return the RoPE of layers of type `kind`; None if these layers have no RoPE."""
    label = config.family.labels.get(kind, kind)
    rotations = config.rotations
    if "" in rotations:
        return rotations[""]
    if label not in rotations and kind not in IDLE:
        config.fail("layer_types", f"contains {kind!r}, but there are no rope settings for it")
    return rotations.get(label)


def lengths(config: Config) -> dict[str, int | None]:
    """Return the context length and trained length of a stack with RoPE, as fields of `Spec`.

    Raises ModelError for an unread key whose name suggests positions, so call this last.
    """
    rotations = config.rotations.values()
    turns = [turn for turn in rotations if isinstance(turn, Rotary)]
    scaled = [rotary for rotary in turns if rotary.method != "default"]
    _refuse_unknown(config)
    if config.object("dual_chunk_attention_config"):
        config.notes.append(
            f"{config.at('dual_chunk_attention_config')} changes distances beyond a chunk;"
            " posenc ignores this key, so results for longer texts apply only to models without it"
        )
    known = config.family.layout or any(isinstance(turn, Fourier) for turn in rotations)
    if not config.family.name or not known:
        config.notes.append(
            "the layout is unknown: the channels of a pair may be adjacent or half a head apart"
        )
    return _reach(config.count("max_position_embeddings"), scaled, config.notes)


def _with_heads(config: Config, key: str) -> Config:
    """Return the config with `head_dim` replaced by the head size of one type of layer.

    The size is the value of `key`, or the one in `per_layer_config`.
    """
    dim, saved = config.count(key, most=WIDEST), config.object("per_layer_config")
    # transformers writes `per_layer_config` with indices of layers as keys
    if saved is not None:
        layers = [saved.object(number) for number in saved.values]
        dims = {layer.count("head_dim", most=WIDEST) for layer in layers if layer} - {None}
        if len(dims) > 1:
            whose = config.family.name
            config.refuse(
                "per_layer_config", whose, f"its layers have {len(dims)} different head sizes"
            )
        dim = next(iter(dims), dim)
    return config.with_values({**config.values, "head_dim": dim})


def _doubt_missing_base(by_type: Mapping[str, Fields | None], config: Config) -> None:
    """Add a note if the config scales the frequencies without stating `rope_theta`.

    For a file of transformers 5, `doubts` gets the note too.

    transformers 5 always writes the base beside a scaling; files of version 4 may lack it.
    """
    family = config.family
    keys = ("rope_theta", *(rule.get("theta", "") for rule in family.rope.values()))
    if "rope_theta" in family.ignored or any(config.stated(key) for key in keys):
        return
    for label, rope in by_type.items():
        turn = config.rotations[label]
        if rope and turn and turn.method != "default" and rope.stated("rope_theta") is None:
            where = (
                f"{rope.path or 'the config'} scales by {turn.method!r} but states no rope_theta"
            )
            config.notes.append(f"{where}; posenc uses {turn.base:,.10g}, the class's default")
            if rope.path.endswith("rope_parameters") or f"rope_parameters.{label}" in rope.path:
                doubt = f"{where}, so the base used in training may be different"
                config.doubts += (doubt,)


def _reach(longest: int | None, scaled: list[Rotary], notes: list[str]) -> dict[str, int | None]:
    """Return the context and trained lengths; add notes where the config's lengths disagree."""
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
                    f"max_position_embeddings is {longest}, but the trained length × the factor,"
                    f" {turn.trained} × {turn.factor:g} = {stretched}, is used as the context; do"
                    " not multiply the lengths again"
                )
            elif turn.method == "llama3" and turn.factor > 1 and turn.trained == longest:
                notes.append(
                    f"max_position_embeddings is {longest}, the length before scaling; llama3"
                    f" ×{turn.factor:g} extends it to {stretched}"
                )
            elif turn.method == "llama3" and turn.trained > (longest or 0):
                notes.append(
                    f"max_position_embeddings is {longest}, below the {turn.trained} tokens before"
                    " scaling; the key is missing or copied from another model"
                )
    return reach


def _settings(config: Config, share_at_top: bool) -> dict[str, Fields | None]:
    """Map each layer type ("" for all) to its rope settings, None if its layers have no RoPE."""
    shared, family = _rope_fields(config), config.family
    theta, share = "rope_theta", "partial_rotary_factor"
    default = config.defaults.get("rope_parameters") or {}
    if shared is not None and _nested(shared, config):
        objects = {label: shared.object(label) for label in shared.values}
        for label, rope in objects.items():
            if rope is not None:
                rope.defaults = {**default.get(label, {}), "rope_type": "default"}
                rope.defaults.setdefault(theta, config.value(theta))
        # Beside nested settings these keys have no effect, so they are only marked as read
        for rule in family.rope.values():
            config.stated(rule.get("theta", theta))
        return objects
    if not family.rope:
        rope = shared or Fields({}, config.file, config.path)
        flat = default if shared is None or not _type(shared) else _kept_defaults(default)
        rope.defaults = {**config.defaults, **flat}
        for key in (theta, share, "original_max_position_embeddings"):
            stated = rope.agree(key, config, key)
            rope.defaults[key] = rope.defaults.get(key) if stated is None else stated
        return {"": rope}
    _note_flat_settings(shared, config)
    by_type = {}
    # The file has flat settings, although the model has several types of layers
    for label, rule in family.rope.items():
        values = dict(shared.values) if shared is not None and rule.get("scaled", True) else {}
        rope = Fields(values, config.file, shared.path if shared else config.path)
        base = config.stated(rule.get("theta", theta))
        kept = default.get(label, {}) if not values else _kept_defaults(default.get(label, {}))
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


def _note_flat_settings(shared: Fields | None, config: Config) -> None:
    """Add a note if transformers 5 drops rope settings that are not nested by layer type.

    Raises ModelError if no type of layer uses them: the class cannot be built from the file.
    """
    if shared is None or not shared.values.keys() - {"rope_type", "type"}:
        return
    family = config.family
    scaled = {name: rule for name, rule in family.rope.items() if rule.get("scaled", True)}
    types = ", ".join(family.rope)
    if not scaled:
        problem = f"must have settings for each type of layer of {family.name}, {types}"
        raise ModelError(shared.file, shared.path, problem, dict(shared.values))
    if shared.path.endswith("rope_parameters"):
        lost = "are not nested by type of layer"
    elif "rope_type" not in shared.values and not any("gain" in rule for rule in scaled.values()):
        lost = f"have `type` {shown(_type(shared))} and no `rope_type`"
    else:
        return
    config.notes.append(
        f"{shared.path}: its settings {lost} ({types}), so the class of {family.name} in"
        f" transformers 5 drops them; posenc applies them to {', '.join(scaled)}, as intended"
    )


def _kept_defaults(default: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class's default base and rotated share, valid even if a config scales the RoPE."""
    return {k: v for k, v in default.items() if k in ("rope_theta", "partial_rotary_factor")}


def _rope_fields(config: Fields) -> Fields | None:
    """Return `rope_parameters` or `rope_scaling`. Raises ModelError if both exist and disagree."""
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
    """Return the scaling method from `rope_type` or the older key `type`, in its current name."""
    new, old = (rope.stated(key) for key in ("rope_type", "type"))
    new, old = (ALIASES.get(name, name) if isinstance(name, str) else name for name in (new, old))
    if None not in (new, old) and new != old:
        where = f"{rope.at('rope_type')} and {rope.at('type')}"
        raise ModelError(rope.file, where, f"disagree: {shown(new)}, {shown(old)}")
    return old if new is None else new


def _nested(rope: Fields, config: Config) -> bool:
    """Test whether the rope settings are one object per layer type rather than one for all."""
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
) -> Rotary | Fourier | None:
    """Return the rotation of one type of layer."""
    if rope is None:
        return None
    family, notes = config.family, config.notes
    name = _type(rope)
    name = rope.defaults.get("rope_type") or "default" if name is None else name
    if not isinstance(name, str) or name not in METHODS:
        rope.fail("rope_type", "must be a known method", name, ", ".join((*METHODS, *ALIASES)))
    # The class may read further keys
    usual = family.defaults.get("rope_parameters") or {}
    if any(rope.stated(key) is not None for key in FOPE):
        return _fourier(rope, config, name)
    read = (*COMMON_KEYS, *METHODS[name], *usual)
    of_others = rope.values.keys() & KEYS - STRETCHING - {*read}
    rope.refuse_others((*read, *of_others), f"rope_type {name!r}")
    for key in sorted(key for key in of_others if rope.stated(key) is not None):
        value = shown(rope.values[key])
        notes.append(f"{rope.at(key)} is {value}, which rope_type {name!r} does not read")
    base = rope.number("rope_theta", above=1.0) or 10_000.0
    dim, turned, share = _width(rope, config, name)
    sections, interleaved = _sections(rope, config, axes, turned)
    if name == "proportional" and sections:
        rope.fail("rope_type", f"is not supported with {len(sections)} axes of mrope_section", name)
    if name in TWO_PAIRS and turned < 4:
        rope.fail("rope_type", f"{name} {ONE_PAIR}, got one")
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
        "interleaved": interleaved,
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
            f"{rope.at('alpha')} is {raised_by:g}, which raises the base from {base:,.10g} to"
            f" {raised:,.10g} for texts of any length"
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


def _fourier(rope: Fields, config: Config, name: str) -> Fourier:
    """Return the settings of FoPE, interpreted as in Intern-S1-Pro's own code and in vLLM."""
    if config.family.folder or name != "default":
        rope.refuse(
            "rope_type", f"FoPE with rope_type {name!r} in a {config.family.name or 'model'}",
            "FoPE is known only with the rope_type 'default', in models outside of transformers",
        )  # fmt: skip
    rope.refuse_others((*COMMON_KEYS, *FOPE), "FoPE")
    spread, base = rope.number("fope_init_factor"), rope.number("rope_theta", above=1.0)
    if spread is None:
        rope.fail("fope_init_factor", "is missing, although other keys of FoPE are present")
    dim, base = head_dim(config), base or 10_000.0
    waves, longest = (
        rope.count("num_inv_freq", most=dim // 2),
        config.count("max_position_embeddings"),
    )
    if waves is None and longest is None:
        rope.fail("num_inv_freq", "is missing, and max_position_embeddings is missing too")
    if waves is None:
        # Waves of which a text of the longest length holds a whole turn
        waves = sum(base ** (-2 * j / dim) > 2 * pi / (longest or 0) for j in range(dim // 2))
    heads = config.count("num_key_value_heads") if rope.flag("fope_sep_head") else 1
    return Fourier(dim, base, waves, heads or 1, spread)


def _sections(
    rope: Fields, config: Config, axes: tuple[tuple[int, ...], bool], turned: int
) -> tuple[tuple[int, ...], bool]:
    """Return M-RoPE's pairs per axis, () for a single axis, and whether axes are interleaved."""
    sections, interleaved = rope.counts("mrope_section"), rope.flag("mrope_interleaved")
    family, notes, (usual_sections, usually) = config.family, config.notes, axes
    if family.folder and not usual_sections:
        for key, value in {"mrope_section": sections, "mrope_interleaved": interleaved}.items():
            if value:
                ignores = f"the code of {family.name} ignores because its positions have one axis"
                notes.append(f"{rope.at(key)} is {shown(value)}, which {ignores}")
        return (), False
    sections = sections or usual_sections
    if usual_sections and interleaved not in (None, usually):
        ignores = f"the code of {family.name} ignores; its axes "
        ignores += "always alternate" if usually else "always have blocks of pairs"
        notes.append(f"{rope.at('mrope_interleaved')} is {shown(interleaved)}, which {ignores}")
        interleaved = usually
    interleaved = usually if interleaved is None else interleaved
    if sections:
        if sum(sections) != turned // 2:
            problem = f"must sum to {turned // 2}, the number of rotated pairs"
            rope.fail("mrope_section", problem, list(sections))
        _check_sections(rope, sections, interleaved)
    return sections, interleaved


def _check_sections(rope: Fields, sections: tuple[int, ...], interleaved: bool) -> None:
    """Raise ModelError if an M-RoPE section is empty, or if the sections cannot be interleaved."""
    if min(sections) < 1:
        rope.fail("mrope_section", "must give each axis at least one pair", list(sections))
    count, total = len(sections), sum(sections)
    shares = [
        len(range(axis, min(count * pairs, total), count)) for axis, pairs in enumerate(sections)
    ]
    if interleaved and list(sections[1:]) != shares[1:]:
        rope.fail("mrope_section", f"must be {shares} for interleaved axes", list(sections))


def _width(rope: Fields, config: Config, name: str) -> tuple[int, int, float]:
    """Return (channels of a head, its rotated channels, `partial_rotary_factor`)."""
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
        # The share is relative to the whole head, and the channels of `head_dim` are all rotated
        share = 1.0
    unused = "rope_parameters.partial_rotary_factor" in family.ignored
    if stated and share < 1 and name != "proportional" and unused:
        ignores = f"the code of {family.name} ignores, since it rotates whole heads"
        if name != "default":
            problem = f"must be 1 in {family.name} with rope_type {name!r}"
            rope.fail("partial_rotary_factor", problem, share)
        notes.append(f"{rope.at('partial_rotary_factor')} is {share:g}, which {ignores}")
        share = 1.0
    if name == "proportional":
        turned = dim
    elif (turned := config.count("rotary_dim", least=2) or 0) == 0:
        turned = int(dim * share)
    elif within and turned != int(dim * share) and config.stated("rotary_dim") is not None:
        problem = f"must agree with {config.at('rotary_dim')}, {turned} of {dim} channels"
        rope.fail("partial_rotary_factor", problem, share)
    if turned < 2 or turned % 2 or turned > dim:
        key = "partial_rotary_factor" if share < 1 else "head_dim"
        source = rope if share < 1 else config
        source.fail(
            key if config.stated("rotary_dim") is None else "rotary_dim",
            f"must rotate an even number of channels from 2 to {dim}, got {turned}",
        )
    return dim + rest, turned, share


def _alpha(rope: Fields, config: Config, used: bool) -> float | None:
    """Return `alpha`, by which Hunyuan raises the RoPE base; None if the model ignores it."""
    alpha, family = rope.number("alpha"), config.family
    if alpha is None or not family.folder or used:
        return alpha
    config.notes.append(f"{rope.at('alpha')} is {alpha:g}, which the code of {family.name} ignores")
    return None


def _factor(rope: Fields, notes: list[str]) -> float:
    factor = rope.number("factor")
    if factor is None:
        rope.fail("factor", f"is missing, but {_type(rope)!r} needs it")
    _note_factor(rope, factor, notes)
    return factor


def _note_factor(rope: Fields, factor: float, notes: list[str]) -> None:
    """Add a note if the scaling factor shortens the context or has no effect."""
    if factor < 1:
        notes.append(f"{rope.at('factor')} is {factor:g}; a factor below 1 shortens the context")
    # Dynamic scaling raises the base of longer texts even with a factor of 1
    elif factor == 1 and rope.stated("factor") is not None and _type(rope) != "dynamic":
        notes.append(f"{rope.at('factor')} is 1, so {_type(rope)!r} has no effect")


def _note_lengths(
    rope: Fields, name: str, factor: float, longest: int | None, notes: list[str]
) -> None:
    """Add a note if the original length times the factor differs from the context.

    For YaRN, `_reach` adds the note about a product above the context.
    """
    key = "original_max_position_embeddings"
    original = rope.count(key)
    if name not in ("linear", "yarn") or not original or not longest or factor <= 1:
        return
    made = original * factor
    if made * NEARLY < longest or (name == "linear" and made > NEARLY * longest):
        key = key if rope.stated(key) is None else rope.at(key)
        notes.append(
            f"{key} is {original}, which {name} ×{factor:g} extends to {made:.0f}, but"
            f" max_position_embeddings is {longest}"
        )


def _trained(rope: Fields, trained: int | None, longest: int | None) -> int:
    trained = trained or longest
    if trained is None:
        problem = "is missing, and max_position_embeddings is missing too"
        rope.fail("original_max_position_embeddings", problem)
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
        notes.append(f"{rope.at('factor')} is missing; posenc uses {longest} / {trained}")
    grown = lambda m: 0.1 * m * log(factor) + 1 if factor > 1 else 1.0  # noqa: E731
    mscale, all_dim = (rope.number(k, above=-1e-9) for k in ("mscale", "mscale_all_dim"))
    _note_factor(rope, factor, notes)
    if mscale and family.latent and rope.stated("mscale_all_dim") is None:
        notes.append(
            f"{rope.at('mscale')} is {mscale:g}, but mscale_all_dim is missing; with this key, as"
            f" in {family.name}, the softmax scale is multiplied by {grown(mscale) ** 2:.4g}"
        )
    elif mscale and mscale != 1 and not all_dim:
        notes.append(
            f"{rope.at('mscale')} without mscale_all_dim has no effect in transformers;"
            " DeepSeek's own code would scale by it"
        )
    gain = rope.number("attention_factor")
    usual = grown(mscale) / grown(all_dim) if mscale and all_dim else grown(1.0)
    if gain is None:
        gain = usual
    elif rope.stated("attention_factor") and abs(gain - usual) > 1e-4 * usual:
        notes.append(
            f"{rope.at('attention_factor')} is {gain:g}, but the default of yarn ×{factor:g} is"
            f" {usual:.6g}"
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
        rope.fail(key, "must be at least 2, since longrope divides by its logarithm", trained)
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
                f"{rope.at('attention_factor')} is {gain:g}, but the default of longrope"
                f" ×{factor:g} is {usual:.6g}"
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
    """Add notes if LongRoPE's short and long factors look swapped, or if some are never used.

    In all published files each long factor is at least the short one.
    """
    if all(far <= near for near, far in zip(short, long, strict=True)):
        notes.append(
            f"{rope.at('long_factor')} never exceeds short_factor, so the lists seem exchanged"
        )
    if longest and trained >= longest:
        key = "original_max_position_embeddings"
        stated = "missing" if rope.count(key) is None else trained
        key = key if rope.stated(key) is None else rope.at(key)
        notes.append(
            f"{key} is {stated} and max_position_embeddings is {longest}, so long_factor is never"
            " used"
        )


def _refuse_unknown(config: Fields) -> None:
    """Raise ModelError for a key that has not been read although its name suggests positions.

    `indexer_rope_interleave` is allowed because an indexer only chooses keys.
    """
    understood = {*config.defaults, *config.names.values(), "indexer_rope_interleave"}
    for key in config.unread():
        value = config.values[key]
        harmless = value is False or value == DEFAULTS.get(key)
        if POSITIONAL.search(key) and key not in understood and not harmless:
            config.fail(key, "may change positions, but posenc does not support it")
