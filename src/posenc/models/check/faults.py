"""Name the faults of a config, each with where it was reported.

The reader of configs (`posenc.models.config`) refuses what is impossible and notes what is
doubtful, in sentences. A rule gives such a sentence a name, a level and a thread, so that
`posenc inspect` and `posenc check` say the same.

error     the file cannot be meant as it stands: exit code 1
warning   met as a fault in other files, and published on purpose too
note      what the reader assumed or left aside
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
# Times the distance that frequencies tell apart: Llama 4 Scout, the farthest published, serves 54.
FAR = 64


@dataclass(frozen=True)
class FaultRule:
    """A kind of fault. `says` finds it in the reader's sentence; "" where a check is its own."""

    name: str
    level: Level
    what: str
    threads: tuple[str, ...]
    says: str = ""

    @property
    def links(self) -> list[str]:
        return [
            "https://github.com/{}/issues/{}".format(*thread.split("#")) for thread in self.threads
        ]


@dataclass(frozen=True)
class Fault:
    """One fault, or one remark, in one file."""

    rule: FaultRule
    message: str
    file: str
    key: str = ""

    @property
    def level(self) -> Level:
        return self.rule.level


REFUSED = (  # the first whose pattern is in the reader's sentence
    FaultRule(
        "values-disagree",
        "error",
        "Two keys say the same thing with different values.",
        ("vllm-project/vllm#42624", "THUDM/slime#1720", "deepspeedai/DeepSpeed#8341"),
        r"\bdisagree\b|must agree with",
    ),
    FaultRule(
        "unknown-key",
        "error",
        "The scaling has a key that its method does not read, often a misspelt one.",
        ("lablup/mlxcel#1355", "sgl-project/sglang#33558", "unslothai/unsloth#6197"),
        "is not a key of rope_type",
    ),
    FaultRule(
        "sections-sum",
        "error",
        "The sections of M-RoPE do not share out the pairs that turn.",
        ("ikawrakow/ik_llama.cpp#2149",),
        r"mrope_section",
    ),
    FaultRule(
        "unknown-method",
        "error",
        "The rope_type is none that any code reads.",
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
        "Channels turn in pairs, and an odd number or too many would turn.",
        ("huggingface/transformers#35233",),
        r"must rotate an even number|channels are rotated in pairs",
    ),
)
IMPOSSIBLE = FaultRule(
    "impossible-value",
    "error",
    "A value is outside of what its key can mean.",
    ("huggingface/transformers#28685",),
)
UNKNOWN_TO_US = r"may change positions"  # nothing is wrong with the file
MISSING_BASE = FaultRule(
    "missing-base",
    "error",
    "Frequencies are scaled and no base is stated, so that each reader takes its own.",
    ("unslothai/unsloth#7028",),
)
REMARKS = (
    FaultRule(
        "missing-base-old",
        "warning",
        "Frequencies are scaled and no base is stated, in a file of before it was always written.",
        ("unslothai/unsloth#7028",),
        r"states no rope_theta",
    ),
    FaultRule(
        "attention-factor",
        "warning",
        "An attention factor is stated, and is not the one that follows from the factor.",
        ("vllm-project/vllm#46280", "sgl-project/sglang#33558", "ggml-org/llama.cpp#17945"),
        r"attention_factor is .* but the default of (yarn|longrope)",
    ),
    FaultRule(
        "context-not-multiplied",
        "warning",
        "The context is the length before scaling, which readers multiply or do not.",
        ("vllm-project/vllm#56446", "vllm-project/vllm#53634"),
        r"do not multiply the lengths again|the length before scaling;",
    ),
    FaultRule(
        "missing-factor",
        "warning",
        "YaRN has no factor, so that it is taken from two lengths.",
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
        "A factor of 1 scales nothing, although a scaling is asked for.",
        (),
        r"is 1, with which",
    ),
    FaultRule(
        "lengths-disagree",
        "warning",
        "The original length times the factor is not the context.",
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
        "LongRoPE's original length is the context, so that its long factors are never used.",
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
        "The rotation of a model with several types of layer is spelled so that transformers 5"
        " leaves it out.",
        ("huggingface/transformers#41922", "huggingface/transformers#41934"),
        r"in transformers 5 drops them",
    ),
    FaultRule(
        "mscale-alone",
        "note",
        "mscale without mscale_all_dim counts in one code and not in another.",
        ("turboderp-org/exllamav3#259", "ikawrakow/ik_llama.cpp#1298"),
        r"without mscale_all_dim",
    ),
    FaultRule(
        "rotation-ignored",
        "warning",
        "A key of the rotation is there, and the code of this model does not read it.",
        ("huggingface/transformers#48241", "ml-explore/mlx-lm#1507"),
        r"(rotary_dim|rotary_pct|partial_rotary_factor|rope_theta|rope_scaling|rope_parameters|alpha"
        r"|beta_\w+|mscale\w*|attention_factor|mrope_\w+)\S* is .*"
        r"(which the code of .* ignores|does not read)",
    ),
    FaultRule(
        "key-ignored",
        "note",
        "A key is there that the code of this model does not read.",
        ("huggingface/transformers#45945",),
        r"which the code of .* ignores",
    ),
)
FAR_FOR_ITS_BASE = FaultRule(
    "base-too-small",
    "warning",
    "The base is far too small for the context: distances are not told apart.",
    ("hiyouga/LlamaFactory#9524",),
)
BASES_SWAPPED = FaultRule(
    "bases-exchanged",
    "error",
    "Layers with a window have a larger base than layers that see the whole text.",
    ("huggingface/transformers#41922",),
)
WINDOW_OF_ONE = FaultRule(
    "window-of-1",
    "error",
    "A window of 1 lets each token see itself alone.",
    ("huggingface/transformers#39408",),
)
OTHER_CLASS = FaultRule(
    "architectures-disagree",
    "warning",
    "`architectures` names a class of another model than `model_type`.",
    ("huggingface/transformers#45058",),
)
REMARK = FaultRule("remark", "note", "What the reader of the config assumed or left aside.", ())
OF_ITSELF = (BASES_SWAPPED, WINDOW_OF_ONE, OTHER_CLASS)
RULES = (*REFUSED, IMPOSSIBLE, MISSING_BASE, *REMARKS, FAR_FOR_ITS_BASE, *OF_ITSELF, REMARK)


@dataclass(frozen=True)
class Faults:
    """The findings in one file; `spec` is None where it could not be read."""

    file: str
    spec: Spec | None
    findings: tuple[Fault, ...]
    unknown: tuple[str, ...] = ()  # why nothing can be said


def faults(model: Path | Source) -> Faults:
    """Read the config of a file or a folder, or the metadata of a GGUF file, for faults.

    Raises ModelError where there is no file to read.
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
    """Yield the findings of a spec and of the parts within it."""
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
    """Find a context many times longer than the distances that its frequencies tell apart."""
    for rotary in spec.rotary:
        if not spec.context or rotary not in spec.global_rotary or rotary.share < 1:
            continue
        told = reach([abs(turn) for turn in rotary.theta(spec.context)], spec.context)
        if told * FAR < spec.context:
            yield Fault(
                FAR_FOR_ITS_BASE,
                f"with base {rotary.base:,.10g} a key equal to the query scores below a random one"
                f" from {told:,} tokens on, and the context is {spec.context:,}",
                file,
                "rope_theta",
            )


def _rule(rules: tuple[FaultRule, ...], sentence: str) -> FaultRule | None:
    return next((rule for rule in rules if re.search(rule.says, sentence)), None)


def _key_of(sentence: str) -> str:
    """The key that a sentence of the reader begins with, without its file; "" for none.

    >>> _key_of("config.json:rope_scaling.factor: must be above 0, got -1")
    'rope_scaling.factor'
    >>> _key_of("max_position_embeddings is 32768, but ...")
    'max_position_embeddings'
    """
    place = re.match(r"[^\s:]+:([\w.\[\]]+)[: ]", sentence) or re.match(
        r"((?:\w+\.)*\w*_\w+)\b", sentence
    )
    return printable(place[1]) if place else ""
