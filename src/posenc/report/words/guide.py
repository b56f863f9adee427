"""Answer which encoding to take, from what was measured.

A question asks for properties by name; its answers are the encodings of this comparison that have
all of them, those of published models first. No text here speaks of one encoding in particular.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posenc.analysis.rounding import BLIND
from posenc.report.words.findings import label

if TYPE_CHECKING:  # which needs torch
    from posenc.studies.comparison import Comparison, Measured

UNKNOWN = "Which of them learns best: nothing on this page is trained."
# Of studies/shape-text: bits at twice the trained length, reading all and cropped to the last L.
READ_ON: Mapping[str, tuple[float, float]] = {
    "alibi": (2.611, 2.591),
    "t5": (3.145, 2.706),
    "rope": (3.181, 2.374),
    "nope": (3.371, 2.968),
    "sinusoidal": (4.906, 2.671),
}
# Of studies/shape-copy: % of the texts copied at 1.2 and at 1.4 times the trained length.
COPIED: Mapping[str, tuple[int, int]] = {
    "nope": (56, 4),
    "alibi": (27, 0),
    "t5": (14, 1),
    "rope": (0, 0),
    "sinusoidal": (0, 0),
}


@dataclass(frozen=True)
class Question:
    asked: str
    needs: tuple[str, ...]  # properties that hold
    lacks: tuple[str, ...] = ()  # properties that do not
    unmasked: bool = False  # it knows the order without a causal mask
    longer: bool = False  # studies of longer texts bear on it
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
        longer=True,
        unknown="Whether large models do as the small ones of the studies, and whether these do the"
        " same at another length, learning rate or number of steps. Who makes use of what lies"
        " beyond the trained length has not been studied here.",
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
    if question.longer:
        evidence += _longer(result.encodings)
    return Answer(question, used, [m for m in fitting if not m.used_by], evidence)


def _longer(encodings: Sequence[Measured]) -> list[str]:
    """Say what the studies measured of these encodings, cropping first, and where it holds."""
    names = {m.slug: m.name for m in encodings}
    read = [f"{names[s]} {on} and {cut}" for s, (on, cut) in READ_ON.items() if s in names]
    copied = [f"{names[s]} {near} and {far} %" for s, (near, far) in COPIED.items() if s in names]
    if not read:
        return []
    return [
        "Small models trained here on L = 64 characters (learning rate 0.001, 1,500 steps, 7 seeds)"
        " needed bits for a character at 2 L, reading all and cropped to the last L:"
        f" {', '.join(read)}. None gained by reading on.",
        "Trained to copy L = 10 words (learning rate 0.001, 2,000 steps, 6 seeds), they copied"
        f" texts of 1.2 L and of 1.4 L without a mistake: {', '.join(copied)}. The seeds of that"
        " study decide none of its contrasts.",
    ]
