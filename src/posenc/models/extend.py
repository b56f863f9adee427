"""Write a config that extends a model's context; the old config is kept as a backup.

    linear, yarn, llama3    a rope_type with `factor` = target / trained, and the new length
    dynamic                 the same, but the old length, which transformers scales from
    ntk                     no rope_type: base' = base · factor^(d/(d−2)), and the new length
    base                    no rope_type: the base that is passed, and the new length

Only layers without a window are extended, if the config can distinguish them. A model that is
already extended can only be extended further by the same method.
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

from posenc.models.check.readers import lost_settings
from posenc.models.config import specify
from posenc.models.config.families import family
from posenc.models.config.source import Source
from posenc.models.config.spec import Rotary, Spec
from posenc.models.files.errors import ModelError
from posenc.models.files.folder import inside, unused_folder
from posenc.models.recipes import recipe_of
from posenc.models.serving import cache_bytes, nested_config, serving, serving_folder
from posenc.support.text import shown
from posenc.support.writing import written_beside

METHODS = ("linear", "ntk", "dynamic", "yarn", "llama3")  # methods with a formula
BASE = "base"  # method with a base that the caller passes
READERS = {"MLX": "mlx-lm"}  # server → title in readers.toml of the program that reads its config
OTHERS = ("mlx-vlm", "Ollama (MLX)")  # servers that are listed only if they lose settings
OLD, NEW = "rope_scaling", "rope_parameters"
# Model types whose class in transformers 5.23 accepts only one rope_type
ONLY_TYPE = {"phi3": "longrope", "phi4_multimodal": "longrope", "phimoe": "longrope"}
ONLY_TYPE |= {"cosmos3_edge_text": "default"}
MOST_TOKENS, MOST_TIMES = 2**53, 2**20  # limits of lengths in tokens, and of `factor`


@dataclass(frozen=True)
class Change:
    """Change of one config key: its path, its old value and its new value."""

    key: str
    before: Any  # None: missing
    after: Any


@dataclass(frozen=True)
class Extension:
    """Result of `extend`: the files that were written, the changed keys, and serving commands."""

    config: Path
    kept: Path  # path of the old config
    changes: list[Change]
    notes: list[str]
    folder: dict[str, str]  # server → command for the folder with the new config
    serving: dict[str, str]  # server → command for the model with its old config
    cache: int  # bytes of cached keys and values for the longest text


def extend(
    model: Path | Source,
    to: int | None = None,
    method: str = "yarn",
    factor: float | None = None,
    trained: int | None = None,
    base: float | None = None,
    out: Path | None = None,
) -> Extension:
    """Write a config for longer texts, in place or into a copy of the model folder.

    Parameters
    ----------
    model
        A model folder or its config.json, or a `posenc.Model`. A copy of the old config is kept
        beside the new one.
    to, factor, trained
        `to` tokens are `factor` times `trained`; a missing value follows from the others, from the
        published recipe of the model, or from the config.
    method, base
        One of METHODS, or "base" with the new base.
    out
        A new folder for a copy of the model folder, which itself is not changed then.

    Raises ModelError if the model cannot be extended in this way, and FileExistsError if `out` is
    not empty. Nothing is written after an error.
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
    """Write the extended config `after`, in place or into a copy of the model folder."""
    source = Source.of(model)
    config, path = _own_config(source, out), source.path
    raw, before = config.read_bytes(), source.config("so there is nothing to extend")
    spec = specify(after, config.name)
    tokens = to or spec.text_stack.context or 0
    text = raw.decode()
    indent = 4 if "\n    " in text and "\n  " + '"' not in text else 2
    new = json.dumps(after, ensure_ascii=False, indent=indent, allow_nan=False) + "\n"
    if out is None:
        kept = _replaced(config, raw, new.encode())
        written = config
    else:
        kept, written = config, _copied(path, config.name, new.encode(), out)
    lost = lost_settings(after, spec)
    return Extension(
        written,
        kept,
        changes(before, after),
        notes,
        _command_or_warning(
            serving_folder(str(written.parent), tokens) | dict.fromkeys(OTHERS, ""), lost
        ),
        _command_or_warning(serving(str(config.parent), before, after, spec, tokens), lost),
        cache_bytes(spec, tokens),
    )


def _command_or_warning(lines: dict[str, str], lost: dict[str, str]) -> dict[str, str]:
    """Replace a server's command by a warning if the server ignores settings of the new config."""
    checked = {name: lost.get(READERS.get(name, name), line) for name, line in lines.items()}
    return {name: line for name, line in checked.items() if line}


def _replaced(config: Path, raw: bytes, new: bytes) -> Path:
    """Replace the config atomically, and return the path of a copy of the old one."""
    with written_beside(config, replace=True) as unfinished:
        _write_like(config, unfinished, new)
        return _keep(config, raw)


def _copied(path: Path, name: str, new: bytes, out: Path) -> Path:
    """Copy a model folder to the new folder `out`, with another config."""
    root, out = Path(os.path.realpath(path)), unused_folder(out)
    if not root.is_dir():
        raise ValueError(
            f"`path` must be a model folder if `out` is given, got {path}. Pass the folder of the"
            " model."
        )
    if out.is_relative_to(root):
        raise ValueError(f"`out` must be outside the model folder, got {out}. Pass another folder.")
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
    """Return the path of the config to replace or copy. Raises ModelError if there is none."""
    config = source.files.config
    if config is None:
        raise ModelError(source.path, "", "contains no config.json, so there is nothing to extend")
    if out is None and config.is_symlink():
        target = os.path.realpath(config)
        problem = f"is a link to {target}, which other models may use. Pass that file, or a copy"
        raise ModelError(config, "", problem)
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
    """Return a config extended to `to` = `factor` · `trained` tokens, and notes about it."""
    if (base is not None) != (method == BASE):
        if base is None:
            raise ValueError("`base` must be a number with method base, got None. Pass `base`.")
        raise ValueError(
            f"`base` must be None with method {method}, got {base:,.10g}. Leave out `base`, or use"
            " method base."
        )
    if method not in (*METHODS, BASE):
        known = ", ".join((*METHODS, BASE))
        raise ValueError(f"`method` must be one of {known}, got {method!r}.")
    spec = specify(config, file)
    main = spec.text_stack
    context, turn = stretchable(main, file)
    usual, given_to = trained_length(main) or context, to
    notes: list[str] = []
    if usual < context == main.trained and trained is None and factor is None:
        notes.append(
            f"its published recipe states {usual:,} trained tokens; the rest of its context of"
            f" {context:,} is for answers"
        )
    recipe = recipe_of(main)
    given = recipe.factor_for(to) if recipe and method == recipe.method else None
    if given and recipe and to and factor is None and trained in (None, recipe.trained):
        # The recipe's factor may differ from the ratio of the lengths
        factor, trained = given, recipe.trained
        notes.append(f"factor {given:g} for {to:,} tokens is the recipe of {recipe.names}")
    else:
        to, factor, trained = _lengths(to, factor, trained, usual)
    if to <= context:
        how = "" if given_to else f" ({factor:g} times {trained} trained tokens)"
        problem = f"`to` must exceed the context of {context} tokens, got {to}{how}"
        raise ModelError(file, "max_position_embeddings", problem)
    if turn.method not in ("default", method):
        raise ModelError(
            file,
            "rope_type",
            f"is {turn.method!r} already, and two methods cannot be combined. Use"
            f" --method {turn.method}"
            if turn.method in METHODS
            else f"is {turn.method!r}, which posenc cannot extend. Write the new settings by hand",
        )
    if main.model in ONLY_TYPE and method not in ("ntk", BASE):
        only = f"must be {ONLY_TYPE[main.model]!r} for {main.model!r} in transformers, not"
        raise ModelError(
            file, "rope_type", f"{only} {method!r}. Use --method ntk, or --method base"
        )
    _check_trained(trained, usual, turn, context, method, file)
    stretched = deepcopy(config)
    inner, raised = nested_config(stretched, spec.text_keys), 0.0
    _state_by_layer(inner, main, file)
    if method in ("ntk", BASE):
        # NTK-aware: θ of the slowest pair is divided by `factor`, θ of the fastest is unchanged
        raised = base or turn.base * factor ** (turn.turned / (turn.turned - 2))
        if raised <= turn.base:
            now = f"{turn.base:,.10g}, got {raised:,.10g}"
            raise ValueError(f"`base` must be above the present base {now}.")
        _raise_base(inner, turn, main, raised, notes)
    else:
        _set(inner, method, _values(method, factor, trained), main, notes, stretched)
    if method == "dynamic":
        notes.append(
            "max_position_embeddings is unchanged, since dynamic scaling starts from it. Cached"
            f" keys become wrong when a text grows beyond {trained} tokens"
        )
    else:
        inner[_own_name(main, "max_position_embeddings", inner)] = to
    spec = specify(stretched, file)
    _check_result(spec.text_stack, to, method, file)
    if method in ("ntk", BASE) and not isclose(spec.text_stack.global_rotary[0].base, raised):
        ignored = f"is ignored by the class of {main.model!r}, so the base would stay {turn.base:g}"
        raise ModelError(file, "rope_theta", ignored)
    return stretched, notes


def trained_length(spec: Spec) -> int | None:
    """Return the length in tokens that a text model was trained on.

    A published recipe (recipes.toml) takes precedence over the config.

    None if neither states it.
    """
    main = spec.text_stack
    scaled = any(turn.method != "default" for turn in main.rotary)
    if not scaled and (recipe := recipe_of(main)):
        return recipe.trained
    stated = (turn.trained for turn in main.rotary if turn.trained)
    return next(stated, main.trained or main.context)


def slowed(
    config: dict[str, Any], to: int, trained: int, slower: list[float], gain: float
) -> dict[str, Any]:
    """Return a config extended to `to` tokens, in which θ of pair i is divided by `slower[i]`.

    The method is longrope with the same factors for short and long texts, so that cached keys stay
    valid while a text grows. Raises ModelError if the model does not support it.
    """
    spec, longer = specify(config), lengthened(config, to)
    _, turn = stretchable(spec.text_stack, "config.json")
    if turn.method != "default":
        raise ModelError("config.json", "rope_type", f"is {turn.method!r} already")
    if turn.sections:
        raise ModelError(
            "config.json",
            "rope_type",
            "cannot be longrope for a model with mrope_section. Use another method",
        )
    values = {
        "factor": to / trained,
        "original_max_position_embeddings": trained,
        "short_factor": slower,
        "long_factor": slower,
        "attention_factor": gain,
    }
    inner = nested_config(longer, spec.text_keys)
    _state_by_layer(inner, spec.text_stack, "config.json")
    _set(inner, "longrope", values, spec.text_stack, [], longer)
    _check_result(specify(longer).text_stack, to, "longrope", "config.json")
    return longer


def lengthened(config: dict[str, Any], to: int) -> dict[str, Any]:
    """Return the config with a larger context length and unchanged frequencies."""
    spec = specify(config)
    longer = deepcopy(config)
    inner = nested_config(longer, spec.text_keys)
    inner[_own_name(spec.text_stack, "max_position_embeddings", inner)] = to
    return longer


def _lengths(
    to: int | None, factor: float | None, trained: int | None, usual: int
) -> tuple[int, float, int]:
    """Return (`to`, `factor`, `trained`); compute missing values from `to` = `factor` · `trained`.

    If two of them are missing, `trained` is `usual`.
    """
    for name, count in (("to", to), ("trained", trained)):
        if count is not None and not 1 <= count <= MOST_TOKENS:
            raise ValueError(f"`{name}` must be 1 to 2⁵³ tokens, got {shown(count)}.")
    if factor is not None and not (isfinite(factor) and 1 < factor <= MOST_TIMES):
        raise ValueError(f"`factor` must be above 1 and at most {MOST_TIMES:,}, got {factor:g}.")
    if to is None and factor is None:
        raise ValueError(
            "`to` must be a length unless `factor` is passed, got None for `to` and for `factor`."
        )
    if to is None or factor is None:
        trained = trained or usual
        length = round(trained * factor) if factor is not None else to or 0
        return length, factor or length / trained, trained
    implied = round(to / factor)
    if abs(implied * factor - to) > 0.5 or trained not in (None, implied):
        values = f"`to` {to}, `factor` {factor:g}" + (f", `trained` {trained}" if trained else "")
        raise ValueError(
            f"`to` must be `factor` times `trained`, in whole tokens, got {values}. Leave out one"
            " of the three."
        )
    return to, factor, implied


def _check_trained(
    trained: int, usual: int, turn: Rotary, context: int, method: str, file: str
) -> None:
    """Raise ModelError if `trained` contradicts the config."""
    key = "original_max_position_embeddings"
    if trained == usual:
        return
    if turn.method != "default":
        raise ModelError(file, key, f"is {usual}, so `trained` must be {usual}", trained)
    if trained > context:
        problem = f"is {context}, so `trained` must be at most {context}"
        raise ModelError(file, "max_position_embeddings", problem, trained)
    if method == "dynamic":
        problem = f"is {context}, where dynamic scaling starts, so `trained` must be {context}"
        raise ModelError(file, "max_position_embeddings", problem, trained)


def changes(before: Any, after: Any, path: str = "") -> list[Change]:
    """Return a `Change` for each key in which two configs differ, such as "rope_scaling.factor"."""
    differing = []
    for key in dict.fromkeys((*before, *after)):
        old, new, at = before.get(key), after.get(key), f"{path}.{key}" if path else key
        if isinstance(old, dict) and isinstance(new, dict):
            differing += changes(old, new, at)
        elif old != new or (key in before) != (key in after):
            differing.append(Change(at, old, new))
    return differing


def stretchable(main: Spec, file: str) -> tuple[int, Rotary]:
    """Return a model's context length, and the RoPE of its layers without a window.

    Raises ModelError if one of them is missing.
    """
    if not main.rotary:
        raise ModelError(
            file,
            "model_type",
            f"{main.model!r} must have rotary layers, got {main.kind}. For a learned table, use"
            " --method table and train further",
        )
    if not main.global_rotary:
        raise ModelError(
            file,
            "sliding_window",
            "limits every layer to a window, so longer texts need no change of the config",
        )
    if main.context is None:
        raise ModelError(
            file,
            "max_position_embeddings",
            "is missing, so the context length is unknown. Add the key",
        )
    return main.context, main.global_rotary[0]


def _values(method: str, factor: float, trained: int) -> dict[str, Any]:
    """Return the rope settings for a method, such as its factor and original length."""
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
    """Write a method and its settings into the rope settings of the config."""
    place = _spelling(inner, config)
    settings = inner.get(place) or _scaled_by_class(main)
    nested = bool(settings) and all(isinstance(v, dict) or v is None for v in settings.values())
    if nested:
        for label in _global_labels(main, settings):
            settings[label] = _merged(settings[label] or {}, method, values)
    else:
        settings = _merged(settings, method, values)
        if any(x.window is not None for x in main.layers) and len(main.rotary) == 1:
            notes.append("layers with a window use the same settings, so they are extended too")
    inner[place] = settings


def _state_by_layer(inner: dict[str, Any], main: Spec, file: str) -> None:
    """Write rope settings for each layer type if the model's class requires them.

    Cohere Compass needs a base for each type, and ignores a base beside them.
    Raises ModelError for a base that the class ignores.
    """
    entry = family(main.model)
    usual = (entry.defaults.get(NEW) or {}) if entry and not entry.rope else {}
    if not usual or not all(isinstance(value, dict) for value in usual.values()):
        return
    stated = inner.get(NEW) or inner.pop(OLD, None) or {}
    flat = not all(isinstance(value, dict) or value is None for value in stated.values())
    found = {label: stated if flat else stated.get(label) or {} for label in usual}
    if inner.get("rope_theta") and not all("rope_theta" in own for own in found.values()):
        ignored = f"is ignored by the class of {main.model!r}. Write it in {NEW}, by type of layer"
        raise ModelError(file, "rope_theta", ignored, inner["rope_theta"])
    inner.pop(OLD, None)
    complete = {label: {**usual[label], **own} for label, own in found.items()}
    inner[NEW] = complete if flat else {**stated, **complete}


def _scaled_by_class(main: Spec) -> dict[str, Any]:
    """Return the default rope settings of the model's class if they scale frequencies, or {}."""
    entry = family(main.model)
    usual = dict(entry.defaults.get("rope_parameters") or {}) if entry else {}
    return usual if usual.get("rope_type", "default") != "default" else {}


def _merged(settings: dict[str, Any], method: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return rope settings with a new method and factor; other keys keep their old values."""
    key = "type" if "type" in settings and "rope_type" not in settings else "rope_type"
    kept = {k: v for k, v in settings.items() if k not in ("type", "rope_type")}
    usual = {k: v for k, v in values.items() if k not in kept or k == "factor"}
    if settings.get(key) == method:
        # The old attention_factor belongs to the old factor
        kept.pop("attention_factor", None)
    return {key: method, **kept, **usual}


def _raise_base(
    inner: dict[str, Any], turn: Rotary, main: Spec, base: float, notes: list[str]
) -> None:
    settings = inner.get(NEW)
    if not isinstance(settings, dict) or not settings:
        inner[_own_name(main, "rope_theta", inner)] = base
    elif all(isinstance(v, dict) or v is None for v in settings.values()):
        for label in _global_labels(main, settings):
            settings[label]["rope_theta"] = base
    else:
        settings["rope_theta"] = base
        if "rope_theta" in inner:
            inner["rope_theta"] = base
    notes.append(f"the base rises from {turn.base:,.10g} to {base:,.10g}; no other key states it")


def _spelling(inner: dict[str, Any], config: dict[str, Any]) -> str:
    """Return the config key of the rope settings, "rope_parameters" or "rope_scaling".

    If the config has neither, its transformers version decides.
    """
    for key in (NEW, OLD):
        if inner.get(key):
            return key
    for key in (NEW, OLD):
        if key in inner:
            return key
    return NEW if str(config.get("transformers_version", "4")).startswith("5") else OLD


def _global_labels(main: Spec, settings: dict[str, Any]) -> list[str]:
    """Return the layer types in `settings` whose layers have no window."""
    entry = family(main.model)
    labels = entry.labels if entry else {}
    kinds = {labels.get(x.kind, x.kind) for x in main.layers if x.window is None}
    return [label for label, value in settings.items() if label in kinds and value is not None]


def _own_name(main: Spec, key: str, inner: dict[str, Any]) -> str:
    """Return the name that this model's config uses for a standard key, such as "rope_theta"."""
    entry = family(main.model)
    name = entry.keys.get(key, key) if entry else key
    if key == "rope_theta" and entry and entry.rope:
        full = entry.rope.get("full_attention", {})
        name = full.get("theta", name)
    return key if key in inner and name not in inner else name


def _check_result(spec: Spec, to: int, method: str, file: str) -> None:
    """Raise ModelError if posenc reads another method or length from the new config."""
    turn = spec.global_rotary[0]
    expected = "default" if method in ("ntk", BASE) else method
    if turn.method != expected:
        problem = f"{expected!r} would be read as {turn.method!r}, so nothing is written"
        raise ModelError(file, "rope_type", problem)
    if (spec.context or 0) < to:
        problem = f"{to} would be read as {spec.context} tokens, so nothing is written"
        raise ModelError(file, "max_position_embeddings", problem)


def _keep(config: Path, raw: bytes) -> Path:
    """Write a copy of the config beside it, under an unused name."""
    for n in range(1, 1_000):
        kept = config.with_name(f"{config.stem}.original{'' if n == 1 else f'.{n}'}.json")
        with suppress(FileExistsError), written_beside(kept) as copy:
            _write_like(config, copy, raw)
            return kept
    raise ModelError(config, "", "has 999 backups beside it already. Delete the old backups")


def _write_like(config: Path, path: Path, raw: bytes) -> None:
    """Write a new file with the permissions and, if possible, the owner of the config."""
    with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
        file.write(raw)
        as_it_was = config.stat()
        if hasattr(os, "fchown"):
            with suppress(PermissionError):
                os.fchown(file.fileno(), as_it_was.st_uid, as_it_was.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(as_it_was.st_mode))
