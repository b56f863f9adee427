"""Answer which encoding to take, from what was measured.

A question asks for properties by name; its answers are the encodings of this comparison that have
all of them, those of published models first. No text here speaks of one encoding in particular.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posenc.report.words.findings import label
from posenc.studies.comparison import BLIND, Comparison, Measured

UNKNOWN = "Which of them learns best: nothing on this page is trained."
# Texts copied without a mistake at 1.2 times the trained length: studies/shape-copy
COPIED: Mapping[str, int] = {"nope": 56, "alibi": 27, "t5": 14, "rope": 0, "sinusoidal": 0}


@dataclass(frozen=True)
class Question:
    asked: str
    needs: tuple[str, ...]  # properties that hold
    lacks: tuple[str, ...] = ()  # properties that do not
    unmasked: bool = False  # it knows the order without a causal mask
    copied: bool = False  # studies of copying bear on it
    unknown: str = UNKNOWN


QUESTIONS = (
    Question("Text, up to 8,000 tokens", ("order_sensitive", "shift_invariant")),
    Question(
        "Long context",
        ("order_sensitive", "shift_invariant", "any_length"),
        unknown="Whether a model understands so long a text: it has to be trained or extended for"
        " it. `posenc inspect --target` says what would break.",
    ),
    Question(
        "Pictures, two axes",
        ("order_sensitive", "several_axes"),
        unknown="Which of them sees best: no study here trains on pictures.",
    ),
    Question(
        "Must extrapolate",
        ("shift_invariant", "any_length", "decaying"),
        copied=True,
        unknown="Whether large models do as the small ones of the study.",
    ),
    Question("Encoder, no causal mask", ("order_sensitive",), lacks=("symmetric",), unmasked=True),
)


@dataclass(frozen=True)
class Answer:
    """Encodings that have what a question asks for: those in use, and others."""

    question: Question
    used: list[Measured]
    others: list[Measured]
    evidence: list[str]


def guide(result: Comparison) -> list[Answer]:
    """Answer each question by the encodings of a comparison."""
    return [_answer(question, result) for question in QUESTIONS]


def fits(measured: Measured, question: Question) -> bool:
    """True if an encoding has what the question asks for, as measured."""
    held = all(measured.properties[name].holds for name in question.needs)
    lacking = all(measured.properties[name].holds is False for name in question.lacks)
    sees = not measured.causal and measured.shuffle.plain >= BLIND
    return held and lacking and (sees or not question.unmasked)


def _answer(question: Question, result: Comparison) -> Answer:
    fitting = [measured for measured in result.encodings if fits(measured, question)]
    used = sorted((m for m in fitting if m.used_by), key=lambda m: -m.used_by.count(","))
    properties = [label(name) for name in question.needs]
    properties += [f"not {label(name)}" for name in question.lacks]
    properties += ["order known without a mask"] * question.unmasked
    evidence = [f"Measured here: {', '.join(properties)}."]
    evidence += [f"{m.name}: in {m.used_by}." for m in used]
    if question.copied:
        evidence += _copied(result.encodings)
    return Answer(question, used, [m for m in fitting if not m.used_by], evidence)


def _copied(encodings: Sequence[Measured]) -> list[str]:
    shares = {m.name: COPIED[m.slug] for m in encodings if m.slug in COPIED}
    ranked = sorted(shares, key=lambda name: -shares[name])
    words = ", ".join(f"{name} {shares[name]} %" for name in ranked)
    what = "Small models trained here copied texts of 1.2 times the trained length rightly"
    return [f"{what}: {words}."] if shares else []
