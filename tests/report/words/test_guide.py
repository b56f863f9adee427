"""The guide against what was measured, and against the table of the studies."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from posenc.report.words.guide import COPIED, QUESTIONS, fits, guide

STUDIES = Path(__file__).parents[3] / "studies" / "README.md"


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
    study = answers["Must extrapolate"].evidence[-1]
    assert "NoPE 56 %, ALiBi 27 %, T5 14 %" in study
    assert all(answer.question.unknown for answer in answers.values())


@pytest.mark.repository
def test_the_study_says_these_shares():
    section = STUDIES.read_text("utf-8").partition("(shape-copy/plan.toml)")[2]
    table = section.partition("| copy |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([\w-]+) \| \d+ % \| (\d+) %", table, re.MULTILINE)
    assert {name: int(share) for name, share in rows} == COPIED
