"""Find faults in a config by rules; each rule has a name, a level and links to bug reports.

`posenc.models.config` raises an error for an impossible config and adds notes about a doubtful one.
A rule in rules.toml recognises these sentences by a pattern, so that `posenc inspect` and
`posenc check` agree.

error     the file contradicts itself or its weights: exit code 1
warning   a fault in some published files, intended in others
note      an assumption, or an ignored key
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from posenc.analysis.frequencies import reach
from posenc.models.check import contradictions
from posenc.models.config.source import Source
from posenc.models.config.spec import Spec
from posenc.models.files.errors import ModelError, Unread
from posenc.support.text import printable

Level = Literal["error", "warning", "note"]
# Largest plausible ratio of the context to the reach of the frequencies; Llama 4 Scout has 54, the
# largest of published models
FAR = 64


@dataclass(frozen=True)
class FaultRule:
    """Kind of fault, as described in rules.toml."""

    name: str
    level: Level
    what: str
    threads: Sequence[str] = ()
    pattern: str = ""

    @property
    def links(self) -> list[str]:
        """URLs of the GitHub threads that report this kind of fault."""
        threads = (thread.split("#") for thread in self.threads)
        return [f"https://github.com/{where}/issues/{number}" for where, number in threads]


@dataclass(frozen=True)
class Fault:
    """A fault that one rule has found in one file, or a remark about the file."""

    rule: FaultRule
    message: str
    file: str
    key: str = ""

    @property
    def level(self) -> Level:
        return self.rule.level


_table = tomllib.loads((files("posenc.models.check") / "rules.toml").read_text("utf-8"))
REFUSED, REMARKS, _others = (
    tuple(FaultRule(**entry) for entry in _table[kind]) for kind in ("refused", "remarks", "others")
)
RULES = {rule.name: rule for rule in (*REFUSED, *REMARKS, *_others)}
UNKNOWN_TO_US = r"may change positions"  # posenc does not support the key; the file has no fault


@dataclass(frozen=True)
class Faults:
    """Findings in one file; `spec` is None if the file could not be read."""

    file: str
    spec: Spec | None
    findings: tuple[Fault, ...]
    unknown: tuple[str, ...] = ()  # reasons why the check is incomplete


def faults(model: Path | Source) -> Faults:
    """Return the faults of a config, or of the metadata of a GGUF file.

    Raises ModelError if there is no file to read.
    """
    source = Source.of(model)
    own, path = source.files, source.path
    name = (path if path.is_file() else own.config or (*own.weights, path)[0]).name
    try:
        spec = source.own_spec
    except Unread as error:
        return Faults(name, None, (), (str(error),))
    except ModelError as error:
        if re.search(UNKNOWN_TO_US, str(error)):
            return Faults(name, None, (), (str(error),))
        rule = _rule(REFUSED, str(error)) or RULES["impossible-value"]
        return Faults(name, None, (Fault(rule, str(error), name, _key_of(str(error))),))
    findings = [*_findings(spec, name, own.notes)]
    config = source.values or {} if own.config and own.config.name == name else {}
    if message := contradictions.other_class(config, spec):
        findings.append(Fault(RULES["architectures-disagree"], message, name, "architectures"))
    unknown = contradictions.unknown_model(spec)
    return Faults(name, spec, tuple(findings), (f"{name}: {unknown}",) if unknown else ())


def _findings(spec: Spec, file: str, notes: tuple[str, ...] = ()) -> Iterator[Fault]:
    """Yield the faults of a specification and of all specifications nested in it."""
    doubted = set()
    for doubt in spec.doubts:
        doubted.add(doubt.partition(" states no rope_theta")[0])
        yield Fault(RULES["missing-base"], doubt, file, _key_of(doubt))
    for note in (*spec.notes, *notes):
        if note.partition(" states no rope_theta")[0] not in doubted:
            yield Fault(_rule(REMARKS, note) or RULES["remark"], note, file, _key_of(note))
    yield from _too_far(spec, file)
    if message := contradictions.swapped_bases(spec):
        yield Fault(RULES["bases-exchanged"], message, file, "rope_theta")
    if message := contradictions.window_of_one(spec):
        yield Fault(RULES["window-of-1"], message, file, "sliding_window")
    for part in spec.parts.values():
        yield from _findings(part, file)


def _too_far(spec: Spec, file: str) -> Iterator[Fault]:
    """Yield a fault if the RoPE base is too small to distinguish distances within the context."""
    for rotary in spec.rotary:
        if not spec.context or rotary not in spec.global_rotary or rotary.share < 1:
            continue
        distance = reach([abs(turn) for turn in rotary.theta(spec.context)], spec.context)
        if distance * FAR < spec.context:
            yield Fault(
                RULES["base-too-small"],
                f"with base {rotary.base:,.10g} a key equal to the query scores below a random key"
                f" from {distance:,} tokens on, but the context is {spec.context:,}",
                file,
                "rope_theta",
            )


def _rule(rules: tuple[FaultRule, ...], sentence: str) -> FaultRule | None:
    return next((rule for rule in rules if re.search(rule.pattern, sentence)), None)


def _key_of(sentence: str) -> str:
    """Return the config key that an error message or a note starts with; "" if there is none.

    >>> _key_of("config.json:rope_scaling.factor: must be above 0, got -1")
    'rope_scaling.factor'
    >>> _key_of("max_position_embeddings is 32768, but ...")
    'max_position_embeddings'
    """
    place = re.match(r"[^\s:]+:([\w.\[\]]+)[: ]", sentence) or re.match(
        r"((?:\w+\.)*\w*_\w+)\b", sentence
    )
    return printable(place[1]) if place else ""
