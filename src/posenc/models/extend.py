"""Write a config for longer texts, in the spelling of the old one, which is kept beside it.

    linear, yarn, llama3    a rope_type with `factor` = target / trained, and the new length
    dynamic                 the same, but the length stays: transformers counts from it
    ntk                     no rope_type: base' = base · factor^(d/(d−2)), and the new length
    base                    no rope_type: the base that is given, and the new length

Only layers that see the whole text are stretched, where the config can tell them from those with a
window. A model that was stretched before is stretched further by its own method, never twice.
"""

import json
import os
import shutil
import stat
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from posenc.models.check.readers import unheard
from posenc.models.config import specify
from posenc.models.config.source import Source
from posenc.models.config.spec import Rotary, Spec
from posenc.models.files.errors import ModelError
from posenc.models.files.folder import (
    inside,
    unused_folder,
)
from posenc.models.recipes import recipe_of
from posenc.models.serving import cache_bytes, serving, serving_folder
from posenc.support.text import shown
from posenc.support.writing import written_beside

METHODS = ("linear", "ntk", "dynamic", "yarn", "llama3")  # methods that are a formula
BASE = "base"  # given by hand
READERS = {"MLX": "mlx-lm"}  # a server -> the program that reads its config, by its title
OTHERS = ("mlx-vlm", "Ollama (MLX)")  # named only where they lose settings
OLD, NEW = "rope_scaling", "rope_parameters"
# Model types whose class in transformers 5.23 loads a single rope_type
ONLY_TYPE = {"phi3": "longrope", "phi4_multimodal": "longrope", "phimoe": "longrope"}
ONLY_TYPE |= {"cosmos3_edge_text": "default"}
MOST_TOKENS, MOST_TIMES = 2**53, 2**20  # tokens, and how many times longer texts become


@dataclass(frozen=True)
class Change:
    """One key of the config, before and after."""

    key: str
    before: Any  # None: it was not there
    after: Any


@dataclass(frozen=True)
class Extension:
    """The new config, the copy of the old one, and the keys that differ."""

    config: Path
    kept: Path  # where the old config is now
    changes: list[Change]
    notes: list[str]
    folder: dict[str, str]  # a server -> the line that serves the folder of the new config
    serving: dict[str, str]  # a server -> the line that serves the model with its old config
    cache: int  # bytes of cached keys and values of the longest text


def extend(
    model: Path | Source,
    to: int | None = None,
    method: str = "yarn",
    factor: float | None = None,
    trained: int | None = None,
    base: float | None = None,
    out: Path | None = None,
) -> Extension:
    """Write a config for longer texts in place of the one at `path`, or into the copy `out`.

    Parameters
    ----------
    model
        A model folder or its config.json, or a `posenc.Model`. The old config is kept beside the
        new one.
    to, factor, trained
        `to` tokens are `factor` times `trained`; a value left out follows from the others, from
        what the model's makers give, or from the config.
    method, base
        One of METHODS, or "base" with the new base.
    out
        A new folder for a copy of the model folder; the folder of the model is then left alone.

    Raises ModelError where the model cannot be stretched so, and FileExistsError where `out` holds
    anything; nothing is written then.
    """
    source = Source.of(model)
    before = source.config("so there is nothing to extend")
    config = _own_config(source, out)
    after, notes = extended(before, to, method, config.name, factor, trained, base)
    return write(source, after, notes, to, out)


def write(
    model: Path | Source,
    after: dict[str, Any],
    notes: list[str],
    to: int | None = None,
    out: Path | None = None,
) -> Extension:
    """Write a config for texts of `to` tokens, as `extend` does, in place or into a copy."""
    source = Source.of(model)
    config, path = _own_config(source, out), source.path
    raw, before = config.read_bytes(), source.config("so there is nothing to extend")
    spec = specify(after, config.name)
    tokens = to or spec.main.context or 0
    text = raw.decode()
    indent = 4 if "\n    " in text and "\n  " + '"' not in text else 2
    new = json.dumps(after, ensure_ascii=False, indent=indent, allow_nan=False) + "\n"
    if out is None:
        kept = _replaced(config, raw, new.encode())
        written = config
    else:
        kept, written = config, _copied(path, config.name, new.encode(), out)
    lost = unheard(after, spec)
    return Extension(
        written,
        kept,
        changes(before, after),
        notes,
        _heard(serving_folder(str(written.parent), tokens) | dict.fromkeys(OTHERS, ""), lost),
        _heard(serving(str(config.parent), before, after, spec, tokens), lost),
        cache_bytes(spec, tokens),
    )


def _heard(lines: dict[str, str], lost: dict[str, str]) -> dict[str, str]:
    """Replace the line of each server that would lose settings with a sentence that says so."""
    told = {name: lost.get(READERS.get(name, name), line) for name, line in lines.items()}
    return {name: line for name, line in told.items() if line}


def _replaced(config: Path, raw: bytes, new: bytes) -> Path:
    """Replace the config as a whole; return where the old one is kept."""
    with written_beside(config, replace=True) as unfinished:
        _write_like(config, unfinished, new)
        return _keep(config, raw)


def _copied(path: Path, name: str, new: bytes, out: Path) -> Path:
    """Copy a model folder to the new folder `out`, with another config."""
    root, out = Path(os.path.realpath(path)), unused_folder(out)
    if not root.is_dir():
        raise ValueError(f"`path` must be a model folder to be copied to `out`, got {path}.")
    if out.is_relative_to(root):
        raise ValueError(f"`out` must be outside of the model folder, got {out}.")
    files = [file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()]
    with written_beside(out) as unfinished:
        unfinished.mkdir(parents=True)
        for file in files:
            target = unfinished / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if str(file) == name:
                target.write_bytes(new)
            else:
                shutil.copyfile(inside(path, str(file)), target)
    return out / name


def _own_config(source: Source, out: Path | None) -> Path:
    """The config that is written in place of, or copied. Raises ModelError where there is none."""
    config = source.files.config
    if config is None:
        raise ModelError(source.path, "", "holds no config.json, so there is nothing to extend")
    if out is None and config.is_symlink():
        target = os.path.realpath(config)
        meant = f"is a link to {target}, which may serve others: give that file, or a copy"
        raise ModelError(config, "", meant)
    return config


def extended(
    config: dict[str, Any],
    to: int | None,
    method: str,
    file: str = "config.json",
    factor: float | None = None,
    trained: int | None = None,
    base: float | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the config for texts of `to` = `factor` · `trained` tokens, and notes about it."""
    if (base is not None) != (method == BASE):
        given = "nothing" if base is None else f"{base:,.10g}"
        raise ValueError(
            f"`base` is the new base of method base, got {given} for method {method}: give both, or"
            " neither."
        )
    if method not in (*METHODS, BASE):
        known = ", ".join((*METHODS, BASE))
        raise ValueError(f"`method` must be one of {known}, got {method!r}.")
    spec = specify(config, file)
    place, main = spec.main_place, spec.main
    context, turn = stretchable(main, file)
    usual, asked = trained_length(main) or context, to
    notes: list[str] = []
    if usual < context == main.trained and trained is None and factor is None:
        notes.append(
            f"it was trained on {usual:,} tokens, as its makers say: the rest of its"
            f" {context:,} is room for answers"
        )
    recipe = recipe_of(main)
    given = recipe.factor_for(to) if recipe and method == recipe.method else None
    if given and recipe and to and factor is None and trained in (None, recipe.trained):
        # The makers' factor is larger, or smaller, than the ratio of the lengths
        factor, trained = given, recipe.trained
        notes.append(f"factor {given:g} for {to:,} tokens is the recipe of {recipe.names}")
    else:
        to, factor, trained = _lengths(to, factor, trained, usual)
    if to <= context:
        how = "" if asked else f" ({factor:g} times the {trained} that it was trained on)"
        served = f"it serves {context} tokens already: `to` must be more, got {to}{how}"
        raise ModelError(file, "max_position_embeddings", served)
    if turn.method not in ("default", method):
        raise ModelError(
            file,
            "rope_type",
            f"is {turn.method!r} already: frequencies must not be stretched twice; use"
            f" --method {turn.method}"
            if turn.method in METHODS
            else f"is {turn.method!r}, whose factors were searched for, not computed",
        )
    if main.model in ONLY_TYPE and method not in ("ntk", BASE):
        only = f"of {main.model!r} may be {ONLY_TYPE[main.model]!r} alone: transformers would not"
        only += f" load {method!r}"
        raise ModelError(file, "rope_type", f"{only}. Use --method ntk, or --method base")
    _check_trained(trained, usual, turn, context, method, file)
    stretched = deepcopy(config)
    inner, raised = _at(stretched, place), 0.0
    _state_by_layer(inner, main, file)
    if method in ("ntk", BASE):
        # NTK-aware: the slowest pair then turns `factor` times slower, the fastest as before.
        raised = base or turn.base * factor ** (turn.turned / (turn.turned - 2))
        if raised <= turn.base:
            now = f"{turn.base:,.10g}, got {raised:,.10g}"
            raise ValueError(f"`base` must be above the present one, {now}: give a larger one.")
        _raise_base(inner, turn, main, raised, notes)
    else:
        _set(inner, method, _values(method, factor, trained), main, notes, stretched)
    if method == "dynamic":
        notes.append(
            "max_position_embeddings stays: dynamic scaling counts from it; keys cached before a"
            f" text grows past {trained} tokens are wrong after it"
        )
    else:
        inner[_own_name(main, "max_position_embeddings", inner)] = to
    spec = specify(stretched, file)
    _check(spec.main, to, method, file)
    if method in ("ntk", BASE) and not isclose(spec.main.far_seeing[0].base, raised):
        ignored = f"is ignored by the class of {main.model!r}: the base would stay {turn.base:g}"
        raise ModelError(file, "rope_theta", ignored)
    return stretched, notes


def trained_length(spec: Spec) -> int | None:
    """The length that a text model was trained on: what its makers say counts before its config.

    None where neither says it.
    """
    main = spec.main
    scaled = any(turn.method != "default" for turn in main.rotary)
    if not scaled and (recipe := recipe_of(main)):
        return recipe.trained
    stated = (turn.trained for turn in main.rotary if turn.trained)
    return next(stated, main.trained or main.context)


def slowed(
    config: dict[str, Any], to: int, trained: int, slower: list[float], gain: float
) -> dict[str, Any]:
    """Return the config for texts of `to` tokens whose pairs turn so many times slower, one each.

    It is written as longrope, with the same factors for texts of any length, so that keys that were
    cached stay right while a text grows.
    Raises ModelError where the model does not take it.
    """
    spec, longer = specify(config), lengthened(config, to)
    _, turn = stretchable(spec.main, "config.json")
    if turn.method != "default":
        raise ModelError("config.json", "rope_type", f"is {turn.method!r} already")
    if turn.sections:
        raise ModelError("config.json", "rope_type", "turns by several axes")
    values = {
        "factor": to / trained,
        "original_max_position_embeddings": trained,
        "short_factor": slower,
        "long_factor": slower,
        "attention_factor": gain,
    }
    inner = _at(longer, spec.main_place)
    _state_by_layer(inner, spec.main, "config.json")
    _set(inner, "longrope", values, spec.main, [], longer)
    _check(specify(longer).main, to, "longrope", "config.json")
    return longer


def lengthened(config: dict[str, Any], to: int) -> dict[str, Any]:
    """Return the config with the length alone raised: nothing turns otherwise."""
    spec = specify(config)
    longer = deepcopy(config)
    inner = _at(longer, spec.main_place)
    inner[_own_name(spec.main, "max_position_embeddings", inner)] = to
    return longer


def _at(config: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    """The settings that these keys lead to; two stacks of a model may share those of the whole."""
    for name in place:
        config = config.get(name, config)
    return config


def _lengths(
    to: int | None, factor: float | None, trained: int | None, usual: int
) -> tuple[int, float, int]:
    """Complete `to` = `factor` · `trained`; `trained` defaults to `usual`."""
    for name, count in (("to", to), ("trained", trained)):
        if count is not None and not 1 <= count <= MOST_TOKENS:
            raise ValueError(f"`{name}` is a number of tokens, 1 to 2⁵³, got {shown(count)}.")
    if factor is not None and not (isfinite(factor) and 1 < factor <= MOST_TIMES):
        raise ValueError(
            f"`factor` is how many times longer texts become: above 1 and at most {MOST_TIMES:,},"
            f" got {factor:g}."
        )
    if to is None and factor is None:
        raise ValueError("`to` or `factor` must be given: for how long a text, or how many times.")
    if to is None or factor is None:
        trained = trained or usual
        length = round(trained * factor) if factor is not None else to or 0
        return length, factor or length / trained, trained
    implied = round(to / factor)
    if abs(implied * factor - to) > 0.5 or trained not in (None, implied):
        values = f"`to` {to}, `factor` {factor:g}" + (f", `trained` {trained}" if trained else "")
        raise ValueError(
            f"`to` is `factor` times `trained`, all tokens whole, got {values}: leave one out."
        )
    return to, factor, implied


def _check_trained(
    trained: int, usual: int, turn: Rotary, context: int, method: str, file: str
) -> None:
    """Raise ModelError where `trained` contradicts the config."""
    key = "original_max_position_embeddings"
    if trained == usual:
        return
    if turn.method != "default":
        raise ModelError(file, key, f"says it was trained on {usual} tokens, `trained` is", trained)
    if trained > context:
        raise ModelError(file, "max_position_embeddings", f"is {context}, `trained` is", trained)
    if method == "dynamic":
        counts = f"is {context}, and dynamic scaling counts from it, `trained` is"
        raise ModelError(file, "max_position_embeddings", counts, trained)


def changes(before: Any, after: Any, path: str = "") -> list[Change]:
    """List every key that differs, by its path."""
    differing = []
    for key in dict.fromkeys((*before, *after)):
        old, new, at = before.get(key), after.get(key), f"{path}.{key}" if path else key
        if isinstance(old, dict) and isinstance(new, dict):
            differing += changes(old, new, at)
        elif old != new or (key in before) != (key in after):
            differing.append(Change(at, old, new))
    return differing


def stretchable(main: Spec, file: str) -> tuple[int, Rotary]:
    """The context length, and the rotation of the layers that see the whole text.

    Raises ModelError where there is none.
    """
    if not main.rotary:
        raise ModelError(
            file,
            "model_type",
            f"{main.model!r} turns no queries and keys ({main.kind}), and this extends rotations:"
            " a table of rows is interpolated by --method table, and trained on",
        )
    if not main.far_seeing:
        raise ModelError(
            file, "sliding_window", "bounds every layer: a longer text changes nothing"
        )
    if main.context is None:
        raise ModelError(file, "max_position_embeddings", "is missing: stretched from what length?")
    return main.context, main.far_seeing[0]


def _values(method: str, factor: float, trained: int) -> dict[str, Any]:
    """The keys of a rope_type that is a formula."""
    values: dict[str, Any] = {"factor": factor}
    if method in ("yarn", "llama3"):
        values["original_max_position_embeddings"] = trained
    if method == "llama3":
        values |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return values


def _set(
    inner: dict[str, Any],
    method: str,
    values: dict[str, Any],
    main: Spec,
    notes: list[str],
    config: dict[str, Any],
) -> None:
    """Write a rope_type and its keys where the config has its settings."""
    place = _spelling(inner, config)
    settings = inner.get(place) or _scaled_by_class(main)
    nested = bool(settings) and all(isinstance(v, dict) or v is None for v in settings.values())
    if nested:
        for label in _far_seeing(main, settings):
            settings[label] = _merged(settings[label] or {}, method, values)
    else:
        settings = _merged(settings, method, values)
        if any(x.window is not None for x in main.layers) and len(main.rotary) == 1:
            notes.append(
                "layers with a window turn by the same settings, so they are stretched too"
            )
    inner[place] = settings


def _state_by_layer(inner: dict[str, Any], main: Spec, file: str) -> None:
    """Complete the settings of a class that reads them by type of layer alone.

    Cohere Compass opens no config without a base for each type, and ignores one beside them.
    Raises ModelError for a base that the class ignores.
    """
    from posenc.models.config.families import family

    entry = family(main.model)
    usual = (entry.defaults.get(NEW) or {}) if entry and not entry.rope else {}
    if not usual or not all(isinstance(value, dict) for value in usual.values()):
        return
    stated = inner.get(NEW) or inner.pop(OLD, None) or {}
    flat = not all(isinstance(value, dict) or value is None for value in stated.values())
    found = {label: stated if flat else stated.get(label) or {} for label in usual}
    if inner.get("rope_theta") and not all("rope_theta" in own for own in found.values()):
        ignored = f"is ignored by the class of {main.model!r}: write it in {NEW}, by type of layer"
        raise ModelError(file, "rope_theta", ignored, inner["rope_theta"])
    inner.pop(OLD, None)
    complete = {label: {**usual[label], **own} for label, own in found.items()}
    inner[NEW] = complete if flat else {**stated, **complete}


def _scaled_by_class(main: Spec) -> dict[str, Any]:
    """The settings of a class that scales where a config is silent; a key in the file ends that."""
    from posenc.models.config.families import family

    entry = family(main.model)
    usual = dict(entry.defaults.get("rope_parameters") or {}) if entry else {}
    return usual if usual.get("rope_type", "default") != "default" else {}


def _merged(settings: dict[str, Any], method: str, values: dict[str, Any]) -> dict[str, Any]:
    """Merge a rope_type into old settings: their values stay, but for the factor."""
    key = "type" if "type" in settings and "rope_type" not in settings else "rope_type"
    kept = {k: v for k, v in settings.items() if k not in ("type", "rope_type")}
    usual = {k: v for k, v in values.items() if k not in kept or k == "factor"}
    if settings.get(key) == method:
        # It belongs to the old factor
        kept.pop("attention_factor", None)
    return {key: method, **kept, **usual}


def _raise_base(
    inner: dict[str, Any], turn: Rotary, main: Spec, base: float, notes: list[str]
) -> None:
    settings = inner.get(NEW)
    if not isinstance(settings, dict) or not settings:
        inner[_own_name(main, "rope_theta", inner)] = base
    elif all(isinstance(v, dict) or v is None for v in settings.values()):
        for label in _far_seeing(main, settings):
            settings[label]["rope_theta"] = base
    else:
        settings["rope_theta"] = base
        if "rope_theta" in inner:
            inner["rope_theta"] = base
    notes.append(f"the base rises from {turn.base:,.10g} to {base:,.10g}; nothing else says so")


def _spelling(inner: dict[str, Any], config: dict[str, Any]) -> str:
    """The key of the rope settings; without any, the one its version of transformers writes."""
    for key in (NEW, OLD):
        if inner.get(key):
            return key
    for key in (NEW, OLD):
        if key in inner:
            return key
    return NEW if str(config.get("transformers_version", "4")).startswith("5") else OLD


def _far_seeing(main: Spec, settings: dict[str, Any]) -> list[str]:
    """The labels of settings of layers without a window."""
    from posenc.models.config.families import family

    entry = family(main.model)
    labels = entry.labels if entry else {}
    kinds = {labels.get(x.kind, x.kind) for x in main.layers if x.window is None}
    return [label for label, value in settings.items() if label in kinds and value is not None]


def _own_name(main: Spec, key: str, inner: dict[str, Any]) -> str:
    """The name of a key in this model's config."""
    from posenc.models.config.families import family

    entry = family(main.model)
    name = entry.keys.get(key, key) if entry else key
    if key == "rope_theta" and entry and entry.rope:
        full = entry.rope.get("full_attention", {})
        name = full.get("theta", name)
    return key if key in inner and name not in inner else name


def _check(spec: Spec, to: int, method: str, file: str) -> None:
    """Raise ModelError where the new config would be read as anything else than was asked for."""
    turn = spec.far_seeing[0]
    meant = "default" if method in ("ntk", BASE) else method
    if turn.method != meant:
        read = f"{meant!r} would be read as {turn.method!r}: not written"
        raise ModelError(file, "rope_type", read)
    if (spec.context or 0) < to:
        read = f"{to} would be read as {spec.context} tokens: not written"
        raise ModelError(file, "max_position_embeddings", read)


def _keep(config: Path, raw: bytes) -> Path:
    """Write a copy of the config beside it, under a free name."""
    for n in range(1, 1_000):
        kept = config.with_name(f"{config.stem}.original{'' if n == 1 else f'.{n}'}.json")
        with suppress(FileExistsError), written_beside(kept) as copy:
            _write_like(config, copy, raw)
            return kept
    raise ModelError(config, "", "has a thousand originals beside it already")


def _write_like(config: Path, path: Path, raw: bytes) -> None:
    """Write a new file with the mode and, where allowed, the owner of the config."""
    with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
        file.write(raw)
        as_it_was = config.stat()
        if hasattr(os, "fchown"):
            with suppress(PermissionError):
                os.fchown(file.fileno(), as_it_was.st_uid, as_it_was.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(as_it_was.st_mode))
