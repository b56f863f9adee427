"""Faults of a config, each with a name, a level, and links to reports of the same fault.

`posenc.models.config` raises an error for an impossible config and adds notes about a doubtful one.
A rule recognises these sentences by a pattern, so that `posenc inspect` and `posenc check` agree.

error     the file contradicts itself or its weights: exit code 1
warning   a fault in some published files, intended in others
note      an assumption, or an ignored key
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
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
    """Kind of fault; the regular expression `pattern` matches the parser's message about it."""

    name: str
    level: Level
    what: str
    threads: tuple[str, ...]
    pattern: str = ""

    @property
    def links(self) -> list[str]:
        """URLs of the GitHub threads that report this kind of fault."""
        return [
            "https://github.com/{}/issues/{}".format(*thread.split("#")) for thread in self.threads
        ]


@dataclass(frozen=True)
class Fault:
    """One finding in one file: a fault or a remark."""

    rule: FaultRule
    message: str
    file: str
    key: str = ""

    @property
    def level(self) -> Level:
        return self.rule.level


REFUSED = (  # rules for errors of the parser, of which the first match applies
    FaultRule(
        "values-disagree",
        "error",
        "Two keys state the same setting with different values.",
        ("vllm-project/vllm#42624", "THUDM/slime#1720", "deepspeedai/DeepSpeed#8341"),
        r"\bdisagree\b|must agree with",
    ),
    FaultRule(
        "unknown-key",
        "error",
        "The scaling has a key that its method does not read, often misspelled.",
        ("lablup/mlxcel#1355", "sgl-project/sglang#33558", "unslothai/unsloth#6197"),
        "is not a key of rope_type",
    ),
    FaultRule(
        "sections-sum",
        "error",
        "The sections of M-RoPE do not sum to the rotated pairs.",
        ("ikawrakow/ik_llama.cpp#2149",),
        r"mrope_section",
    ),
    FaultRule(
        "unknown-method",
        "error",
        "The rope_type is unknown to all programs.",
        ("huggingface/transformers#32167",),
        r"rope_type: must be a known method",
    ),
    FaultRule(
        "missing-key",
        "error",
        "A key that the method needs is missing.",
        ("sgl-project/sglang#26187",),
        r"is missing",
    ),
    FaultRule(
        "odd-channels",
        "error",
        "The number of rotated channels is odd, or larger than a head.",
        ("huggingface/transformers#35233",),
        r"must rotate an even number|channels are rotated in pairs",
    ),
)
IMPOSSIBLE = FaultRule(
    "impossible-value",
    "error",
    "A value is outside the range of its key.",
    ("huggingface/transformers#28685",),
)
UNKNOWN_TO_US = r"may change positions"  # posenc does not support the key; the file has no fault
MISSING_BASE = FaultRule(
    "missing-base",
    "error",
    "Frequencies are scaled but no base is stated, so each program uses its own default.",
    ("unslothai/unsloth#7028",),
)
REMARKS = (
    FaultRule(
        "missing-base-old",
        "warning",
        "Frequencies are scaled but no base is stated, in a file of an older version.",
        ("unslothai/unsloth#7028",),
        r"states no rope_theta",
    ),
    FaultRule(
        "attention-factor",
        "warning",
        "An attention factor is stated that differs from the default of the factor.",
        ("vllm-project/vllm#46280", "sgl-project/sglang#33558", "ggml-org/llama.cpp#17945"),
        r"attention_factor is .* but the default of (yarn|longrope)",
    ),
    FaultRule(
        "context-not-multiplied",
        "warning",
        "The context is the length before scaling, which only some programs multiply.",
        ("vllm-project/vllm#56446", "vllm-project/vllm#53634"),
        r"do not multiply the lengths again|the length before scaling;",
    ),
    FaultRule(
        "missing-factor",
        "warning",
        "YaRN has no factor, so it is computed from two lengths.",
        ("vllm-project/vllm#56446",),
        r"factor is missing",
    ),
    FaultRule(
        "factor-below-1",
        "warning",
        "A factor below 1 shortens the context.",
        ("huggingface/transformers#32167",),
        r"below 1 it shortens",
    ),
    FaultRule(
        "factor-of-1",
        "warning",
        "A scaling method is stated with a factor of 1, which has no effect.",
        (),
        r"is 1, with which",
    ),
    FaultRule(
        "lengths-disagree",
        "warning",
        "The original length times the factor differs from the context.",
        (
            "vllm-project/vllm#56446",
            "huggingface/transformers#38224",
        ),
        r"extends to \d+, but max_position_embeddings is",
    ),
    FaultRule(
        "context-below-original",
        "warning",
        "The context is shorter than the length before scaling.",
        ("NVIDIA/Megatron-LM#1418",),
        r"tokens before scaling; the key is missing",
    ),
    FaultRule(
        "lists-exchanged",
        "error",
        "LongRoPE's factors for long texts do not exceed those for short texts.",
        ("ml-explore/mlx-lm#660",),
        r"the lists seem exchanged",
    ),
    FaultRule(
        "long-unused",
        "warning",
        "LongRoPE's original length is the context, so its long factors are never used.",
        ("EricLBuehler/candle-vllm#284",),
        r"long_factor is never used",
    ),
    FaultRule(
        "mscale-lost",
        "warning",
        "DeepSeek's mscale_all_dim is missing, and with it a factor of the softmax scale.",
        ("turboderp-org/exllamav3#259", "ikawrakow/ik_llama.cpp#1298"),
        r"with it a softmax scale",
    ),
    FaultRule(
        "settings-left-out",
        "warning",
        "The rope settings are not by type of layer, so transformers 5 drops them.",
        ("huggingface/transformers#41922", "huggingface/transformers#41934"),
        r"in transformers 5 drops them",
    ),
    FaultRule(
        "mscale-alone",
        "note",
        "mscale without mscale_all_dim has an effect in some programs only.",
        ("turboderp-org/exllamav3#259", "ikawrakow/ik_llama.cpp#1298"),
        r"without mscale_all_dim",
    ),
    FaultRule(
        "rotation-ignored",
        "warning",
        "The code of this model ignores a key of the rotation.",
        ("huggingface/transformers#48241", "ml-explore/mlx-lm#1507"),
        r"(rotary_dim|rotary_pct|partial_rotary_factor|rope_theta|rope_scaling|rope_parameters|alpha"
        r"|beta_\w+|mscale\w*|attention_factor|mrope_\w+)\S* is .*"
        r"(which the code of .* ignores|does not read)",
    ),
    FaultRule(
        "key-ignored",
        "note",
        "The code of this model ignores a key.",
        ("huggingface/transformers#45945",),
        r"which the code of .* ignores",
    ),
)
FAR_FOR_ITS_BASE = FaultRule(
    "base-too-small",
    "warning",
    "The base is far too small to distinguish distances within the context.",
    ("hiyouga/LlamaFactory#9524",),
)
BASES_SWAPPED = FaultRule(
    "bases-exchanged",
    "error",
    "Layers with a window have a larger base than layers without one.",
    ("huggingface/transformers#41922",),
)
WINDOW_OF_ONE = FaultRule(
    "window-of-1",
    "error",
    "A window of 1 lets each token see only itself.",
    ("huggingface/transformers#39408",),
)
OTHER_CLASS = FaultRule(
    "architectures-disagree",
    "warning",
    "`architectures` names a class of another model than `model_type`.",
    ("huggingface/transformers#45058",),
)
REMARK = FaultRule("remark", "note", "An assumption about the config, or an ignored key.", ())
OF_ITSELF = (BASES_SWAPPED, WINDOW_OF_ONE, OTHER_CLASS)
RULES = (*REFUSED, IMPOSSIBLE, MISSING_BASE, *REMARKS, FAR_FOR_ITS_BASE, *OF_ITSELF, REMARK)


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
    files, path = source.files, source.path
    name = (path if path.is_file() else files.config or (*files.weights, path)[0]).name
    try:
        spec = source.own_spec
    except Unread as error:
        return Faults(name, None, (), (str(error),))
    except ModelError as error:
        if re.search(UNKNOWN_TO_US, str(error)):
            return Faults(name, None, (), (str(error),))
        rule = _rule(REFUSED, str(error)) or IMPOSSIBLE
        return Faults(name, None, (Fault(rule, str(error), name, _key_of(str(error))),))
    findings = [*_findings(spec, name, files.notes)]
    config = source.values or {} if files.config and files.config.name == name else {}
    if message := contradictions.other_class(config, spec):
        findings.append(Fault(OTHER_CLASS, message, name, "architectures"))
    unknown = contradictions.unknown_model(spec)
    return Faults(name, spec, tuple(findings), (f"{name}: {unknown}",) if unknown else ())


def _findings(spec: Spec, file: str, notes: tuple[str, ...] = ()) -> Iterator[Fault]:
    """Yield the findings about a specification and, recursively, about its nested parts."""
    doubted = set()
    for doubt in spec.doubts:
        doubted.add(doubt.partition(" states no rope_theta")[0])
        yield Fault(MISSING_BASE, doubt, file, _key_of(doubt))
    for note in (*spec.notes, *notes):
        if note.partition(" states no rope_theta")[0] not in doubted:
            yield Fault(_rule(REMARKS, note) or REMARK, note, file, _key_of(note))
    yield from _too_far(spec, file)
    if message := contradictions.swapped_bases(spec):
        yield Fault(BASES_SWAPPED, message, file, "rope_theta")
    if message := contradictions.window_of_one(spec):
        yield Fault(WINDOW_OF_ONE, message, file, "sliding_window")
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
                FAR_FOR_ITS_BASE,
                f"with base {rotary.base:,.10g} a key equal to the query scores below a random key"
                f" from {distance:,} tokens on, but the context is {spec.context:,}",
                file,
                "rope_theta",
            )


def _rule(rules: tuple[FaultRule, ...], sentence: str) -> FaultRule | None:
    return next((rule for rule in rules if re.search(rule.pattern, sentence)), None)


def _key_of(sentence: str) -> str:
    """Return the config key at the start of an error or note, without the file name; "" if none.

    >>> _key_of("config.json:rope_scaling.factor: must be above 0, got -1")
    'rope_scaling.factor'
    >>> _key_of("max_position_embeddings is 32768, but ...")
    'max_position_embeddings'
    """
    place = re.match(r"[^\s:]+:([\w.\[\]]+)[: ]", sentence) or re.match(
        r"((?:\w+\.)*\w*_\w+)\b", sentence
    )
    return printable(place[1]) if place else ""
