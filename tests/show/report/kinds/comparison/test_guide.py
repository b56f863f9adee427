"""The guide against what was measured, and against the stores of the studies, by SQL."""

from dataclasses import replace

import pytest
from stored_outcomes import mean, settings

from posenc.show.report.kinds.comparison.guide import COPIED, QUESTIONS, READ_ON, fits, guide


def test_each_named_encoding_has_what_its_answer_rests_on(everything):
    for answer in guide(everything):
        named = [*answer.used, *answer.others]
        assert answer.used, answer.question.asked
        for one in named:
            held = {name: finding.holds for name, finding in one.properties.items()}
            assert all(held[name] is True for name in answer.question.needs)
            assert all(held[name] is False for name in answer.question.lacks)
            assert not answer.question.unmasked or one.shuffle.plain > 1e-4
        for one in everything.encodings:
            if one not in named:
                assert not fits(one, answer.question)


def test_an_answer_changes_with_what_was_measured(everything):
    """Nothing is said of an encoding by name: take a property away and it is gone."""
    for question in QUESTIONS:
        name = question.needs[0]
        without = [
            replace(m, properties=m.properties | {name: replace(m.properties[name], defect=1.0)})
            for m in everything.encodings
        ]
        answers = {a.question: a for a in guide(replace(everything, encodings=without))}
        assert answers[question].used == answers[question].others == []


def test_evidence_names_the_models_and_the_study(everything):
    answers = {answer.question.asked: answer for answer in guide(everything)}
    rope = next(m for m in everything.encodings if m.slug == "rope")
    assert f"RoPE: in {rope.used_by}." in answers["Long context"].evidence
    read, copied = answers["Must extrapolate"].evidence[-2:]
    assert "RoPE 3.181 and 2.374" in read
    assert "NoPE 56 and 4 %, ALiBi 27 and 0 %, T5 14 and 1 %" in copied
    assert all(answer.question.unknown for answer in answers.values())


@pytest.mark.repository
def test_evidence_names_length_rate_steps_and_seeds_of_the_studies(everything):
    (answer,) = (a for a in guide(everything) if a.question.asked == "Must extrapolate")
    for line, name in zip(answer.evidence[-2:], ("shape-text", "shape-copy"), strict=True):
        cells = settings(name)
        (trained,) = {cell["trained"] or 64 for cell in cells}  # 64: the task's own
        (profile,) = {(cell["profile"]["rate"], cell["profile"]["steps"]) for cell in cells}
        seeds = len({cell["seed"] for cell in cells})
        where = f"(learning rate {profile[0]}, {profile[1]:,} steps, {seeds} seeds)"
        assert f"L = {trained} " in line
        assert where in line


@pytest.mark.repository
def test_the_stores_hold_these_numbers():
    bits = {
        slug: tuple(round(mean("shape-text", slug, 128, cropped=cut), 3) for cut in (False, True))
        for slug in READ_ON
    }
    assert bits == READ_ON
    assert all(cropped < on for on, cropped in READ_ON.values())  # none gained
    assert {
        slug: tuple(round(100 * mean("shape-copy", slug, n)) for n in (12, 14)) for slug in COPIED
    } == COPIED
