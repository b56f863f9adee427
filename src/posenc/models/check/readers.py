"""Find config keys that a program such as vLLM or llama.cpp ignores, as listed in readers.toml.

    answer("mlx-vlm", "rope_type.yarn", "qwen3_5")        "ignores"

Only keys that change the angles of a config are compared: a program may ignore a key with its
default value.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from math import isclose
from typing import Any, Literal

from posenc.encodings.rotary.theta import yarn_gain
from posenc.models.check.faults import RULES, Fault
from posenc.models.config.rope_settings import FOPE
from posenc.models.config.spec import Fourier, Rotary, Spec
from posenc.support.text import printable

Answer = Literal["reads", "ignores", "refuses", "not read"]
Answers = Mapping[str, Answer]
SPELLINGS = ("rope_parameters", "rope_scaling")
UNSCALED = ("default", "proportional")


@cache
def table() -> dict[str, Any]:
    """Return the content of readers.toml."""
    return tomllib.loads((files("posenc.models.check") / "readers.toml").read_text("utf-8"))


def readers() -> dict[str, dict[str, Any]]:
    """Map the name of each program that reads configs to its entry in readers.toml."""
    return table()["readers"]


def named(names: Sequence[str]) -> tuple[str, ...]:
    """Check names of programs that read configs, and return them without duplicates."""
    for name in names:
        if name not in readers():
            near = get_close_matches(name.lower(), readers(), n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Choose from {', '.join(readers())}."
            raise ValueError(
                f"`for` must name a program that reads configs, got {printable(name)}. {hint}"
            )
    return tuple(dict.fromkeys(names))


def answer(reader: str, key: str, model: str) -> Answer:
    """Return "reads", "ignores" or "refuses": the effect of a config key in a program."""
    found = table()["keys"][key].get(reader, "not read")
    if isinstance(found, str):
        return found  # type: ignore[return-value]
    types = {model, model.removesuffix("_text")}
    return next((verb for verb, models in found.items() if types & {*models}), "not read")


def findings(
    config: Mapping[str, Any], spec: Spec, file: str, names: Sequence[str] = ()
) -> Iterator[Fault]:
    """Yield a fault for each key that changes RoPE's angles but that a program does not read.

    If `names` is empty, yield only keys that some programs read and others ignore or refuse.

    Parameters
    ----------
    config, spec
        A config.json and its specification.
    file
        The name of the config.
    names
        Names of readers.
    """
    keys = stated(config, spec)
    for key, place in keys.items():
        answers: Answers = {
            reader: _effective(reader, key, keys, spec.text_stack) for reader in readers()
        }
        ignoring = [reader for reader, verb in answers.items() if verb in ("ignores", "refuses")]
        for reader in names:
            if reader in ignoring:
                yield Fault(
                    RULES["reader-ignores"], _sentence(reader, key, place, answers), file, place
                )
        if names or not ignoring or "reads" not in answers.values():
            continue
        words = " and ".join(_verbs(answers))
        if key == "rope_parameters":
            remedy = "add rope_theta, and rope_scaling if it scales"
            message = f"the rotation is only in {place}: {words}; {remedy}"
            yield Fault(RULES["new-spelling-alone"], message, file, place)
        else:
            yield Fault(RULES["readers-disagree"], f"{_shown(key, place)}: {words}", file, place)


def lost_settings(config: Mapping[str, Any], spec: Spec) -> dict[str, str]:
    """Map each program that would ignore or refuse rope settings to a warning that names them."""
    keys = stated(config, spec)
    found = {}
    for name, reader in readers().items():
        answers = {key: _effective(name, key, keys, spec.text_stack) for key in keys}
        lost = [
            f"{verb} {_shown(key, keys[key])}"
            for key, verb in answers.items()
            if verb in ("ignores", "refuses")
        ]
        if lost:
            found[reader["title"]] = f"cannot serve this model: it {' and '.join(lost)}"
    return found


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _effective(reader: str, key: str, keys: Mapping[str, str], main: Spec) -> Answer:
    """Return the effect of a config key in a program, which may depend on related keys."""
    verb = answer(reader, key, main.model)
    if key == "rope_parameters":
        return _transformers_4(main) if reader == "transformers-4" else verb
    if key == "dual_chunk_attention_config":
        return verb
    if "rope_parameters" in keys and answer(reader, "rope_parameters", main.model) != "reads":
        return "not read"
    if key.startswith("rope_type."):
        old = "rope_parameters" not in keys[key]
        ignored = old and answer(reader, "rope_scaling", main.model) == "ignores"
        return "ignores" if ignored else verb
    methods = (name for name in keys if name.startswith("rope_type."))
    scales = all(answer(reader, name, main.model) == "reads" for name in methods)
    return verb if scales else "not read"


def stated(config: Mapping[str, Any], spec: Spec) -> dict[str, str]:
    """Map each config key that changes RoPE's angles to its path, as in "rope_scaling.truncate"."""
    inner, path = config, ""
    for name in spec.text_keys:
        if isinstance(config.get(name), dict):
            inner, path = {**inner, **inner[name]}, f"{path}{name}."
    spelling = next((key for key in SPELLINGS if inner.get(key)), "")
    found: dict[str, str] = {}
    turns = [turn for turn in spec.text_stack.rotary if isinstance(turn, Rotary)]
    # A linear factor of 1 has no effect
    scaled = [
        x for x in turns if x.method not in UNSCALED and (x.method, x.factor) != ("linear", 1)
    ]
    if "dual_chunk_attention_config" in inner:
        found["dual_chunk_attention_config"] = f"{path}dual_chunk_attention_config"
    if spelling == "rope_parameters" and not inner.get("rope_scaling"):
        plain = all(turn.base == 10_000 and turn.method in UNSCALED for turn in turns)
        if "rope_theta" not in inner and not plain:
            found["rope_parameters"] = f"{path}rope_parameters"
    for turn in scaled:
        if f"rope_type.{turn.method}" in table()["keys"]:
            found[f"rope_type.{turn.method}"] = f"{path}{spelling}"
        for key in _changing(turn, inner.get(spelling) or {}):
            found[key] = f"{path}{spelling}.{key}"
    if any(isinstance(layer.encoding, Fourier) for layer in spec.text_stack.layers):
        settings = _object(inner.get(spelling))
        given = [key for key in FOPE if settings.get(key) is not None]
        found |= {key: f"{path}{spelling}.{key}" for key in given}
    return found


def _changing(turn: Rotary, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a RoPE scaling whose values change its angles or its attention factor."""
    nested = [value for value in settings.values() if isinstance(value, dict)]
    keys = {*settings, *(key for value in nested for key in value)}
    if turn.method == "longrope" and turn.short != turn.long:
        yield "short_factor"
    if turn.method != "yarn":
        return
    plain = isclose(turn.gain, yarn_gain(turn.factor)) and turn.logit_gain == 1
    changed = {
        "attention_factor": not plain,
        "mscale": not plain and "attention_factor" not in keys,
        "mscale_all_dim": not plain and "attention_factor" not in keys,
        "truncate": not turn.rounded,
        "beta_fast": turn.ends[1] != 32,
        "beta_slow": turn.ends[0] != 1,
    }
    yield from (key for key, matters in changed.items() if matters and key in keys)


def _transformers_4(main: Spec) -> Answer:
    """Return "reads" if transformers 4 uses the right angles without reading `rope_parameters`."""
    bases = table()["transformers-4-bases"]
    usual = next((float(base) for base, types in bases.items() if main.model in types), None)
    if usual is None:
        return "not read"
    same = all(turn.base == usual and turn.method in UNSCALED for turn in main.rotary)
    return "reads" if same else "ignores"


def _verbs(answers: Answers) -> Iterator[str]:
    """Yield a clause, such as "vLLM reads it", for each group of programs with the same result."""
    for answered, verb in (("reads", "read"), ("ignores", "ignore"), ("refuses", "refuse")):
        titles = [readers()[reader]["title"] for reader, one in answers.items() if one == answered]
        if titles:
            yield f"{', '.join(titles)} {verb}{'s' * (len(titles) == 1)} it"


def _sentence(reader: str, key: str, place: str, answers: Answers) -> str:
    """Return a sentence that states the effect of a config key in one version of a program."""
    whose = readers()[reader]
    effect = " and uses its default base without scaling" * (key == "rope_parameters")
    return f"{whose['title']} ({whose['version']}) {answers[reader]} {_shown(key, place)}{effect}"


def _shown(key: str, place: str) -> str:
    return f"{key.removeprefix('rope_type.')} in {place}" if key.startswith("rope_type.") else place
