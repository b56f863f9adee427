"""The suite of the arena: frozen, and the same for whoever takes part."""

import json
import re
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from random import Random
from statistics import median

import pytest
from refusals import refused
from stored_outcomes import settings

from posenc import catalog
from posenc.lab.arena import suite
from posenc.lab.arena.suite import Suite
from posenc.lab.study import tasks
from posenc.lab.study.cell import digest_of
from posenc.lab.study.plan import PlanError

ROOT = Path(__file__).parents[3]
DIGESTS = {  # a change of a plan makes another suite, with another name
    "v2": "729b83818e726d8679979fb2b7033558cd913485e5502be3d15509cbb250980a",
    "v2-gpu": "d4afb00e15a14b0cf0046778b5fc3938b1702581c77b0eb0dd32b02ae21d8bff",
}
NAMES = sorted(path.stem for path in suite.FOLDER.glob("v*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_is_frozen(name):
    assert Suite.named(name).digest == DIGESTS[name]


def test_its_digest_is_that_of_all_its_plans():
    named = Suite.named()
    texts = "\n".join(f"{name}\n{plan.text}" for name, plan in named.plans("alibi").items())
    assert named.digest == sha256(texts.encode()).hexdigest()
    other = {name: {**study, "seeds": 9} for name, study in named.studies.items()}
    assert Suite("v2", other).digest != named.digest


@pytest.mark.parametrize("name", NAMES)
def test_each_study_has_controls_and_the_entry_at_two_rates(name):
    """Each plan could be evidence, and its control reads texts twice as long in training."""
    for plan in Suite.named(name).plans("kerple").values():
        plan.check_evidence()
        rows = {row.name: row for row in plan.encodings}
        entries = [row for row in plan.encodings if suite.is_entry(row.name)]
        assert [row.encoding for row in entries] == ["kerple"] * 2
        assert len({plan.profile_of(row).rate for row in entries}) == 2
        ropes = {plan.profile_of(row).rate for row in rows.values() if row.encoding == "rope"}
        assert ropes == {plan.profile_of(row).rate for row in entries}
        assert plan.seeds == 8
        assert plan.metric == "area"
        sides = {name for contrast in plan.contrast for side in contrast for name in side}
        assert sides > {row.name for row in entries}
        assert (plan.positive, plan.negative) == ("taught", "rope cropped")
        assert rows["taught"].trained == 2 * plan.trained
        assert 2 * plan.trained in plan.tested


@pytest.mark.parametrize("name", NAMES)
def test_tasks_need_tokens_that_a_cropped_model_does_not_see(name):
    """At 2 L the first answer was first read before the last tokens that a cropped model reads."""
    for plan in Suite.named(name).plans("kerple").values():
        task = tasks.find(plan.tasks[0]).at(plan.trained, plan.tested)
        symbols, graded = task.text(2 * plan.trained, Random(0), held_out=True)[:2]
        answer = graded.index(True)
        # A letter of a name occurs elsewhere too, but the name does not
        back = 2 * plan.trained if task.name == "names" else answer - symbols.index(symbols[answer])
        assert symbols[answer - back] == symbols[answer]
        assert answer - back < len(symbols) - task.longest


def test_the_sizes_share_a_small_study():
    """The same plan, so that a GPU's cells can be compared with those of two cores."""
    one, other = Suite.named("v2").plans("alibi"), Suite.named("v2-gpu").plans("alibi")
    assert one["recall"] == other["common"]
    large = [plan for name, plan in other.items() if name != "common"]
    assert {(plan.profile.width, plan.profile.layers, plan.precision) for plan in large} == {
        (256, 6, "bfloat16")
    }
    for plan in large:
        task = tasks.find(plan.tasks[0]).at(plan.trained, plan.tested)
        assert 512 <= task.longest < 600
        assert 4_000 < task.most_tokens() < 4_300


@pytest.mark.parametrize("encoding", ["pope", "grape-a"])
def test_the_hypothesis_of_a_published_encoding_is_what_its_paper_claims(encoding):
    claim = suite.CLAIMS[encoding]
    assert f"arXiv:{catalog.find(encoding).paper.link.rpartition('/')[2]}" in claim["source"]
    for plan in Suite.named().plans(encoding).values():
        assert plan.hypothesis == claim["claim"]
        assert plan.hypothesis != Suite.named().plans("alibi")["recall"].hypothesis


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("rope", "the entry must differ from .*, got rope"), ("ropr", "arena: .*rope")],
)
def test_what_takes_part_is_none_of_its_own_rows_and_is_known(encoding, said):
    with pytest.raises(PlanError, match=said):
        Suite.named().plans(encoding)


def test_another_suite_is_not_known():
    with refused(PlanError, "'v0'"):
        Suite.named("v0")


def test_the_page_of_rules_says_what_the_suite_has():
    page = (ROOT / "docs/studies.md").read_text("utf-8")
    assert all(Suite.named(name).digest in page for name in NAMES)
    named = Suite.named()
    for name, plan in named.plans("alibi").items():
        rates = sorted({plan.profile_of(row).rate for row in plan.encodings})
        cells = len(plan.cells())
        steps = f"{plan.profile.batch} | {plan.profile.steps:,}"
        numbers = f"{plan.trained} | {steps} | {', '.join(f'{rate:g}' for rate in rates)}"
        hours = f"{named.hours(name):.1f}"
        assert f"| {name} | {plan.tasks[0]} | {numbers} | {cells} | {hours} |" in page


@pytest.mark.repository
def test_what_recall_costs_is_at_the_pace_of_a_stored_study():
    """The models of that study have the same sizes and steps, and two heads instead of four."""
    lines = (ROOT / "studies/use-of-length/times.jsonl").read_text().splitlines()
    walls = {line["cell"]: line["wall"] for line in map(json.loads, lines) if "wall" in line}
    recalls = [cell for cell in settings("use-of-length") if cell["task"] == "recall"]
    named = Suite.named()
    plan = named.plans("alibi")["recall"]
    for cell in recalls:
        assert asdict(plan.profile) == cell["profile"] | {"heads": plan.profile.heads}
        assert cell["trained"] == plan.trained
    # Cells by the digest of their settings
    wall = median(walls[digest_of(cell)] for cell in recalls)
    assert named.seconds["recall"] == round(wall)
    assert named.hours("recall") == pytest.approx(len(plan.cells()) * wall / 3_600, rel=0.01)


@pytest.mark.repository
def test_the_hours_of_a_whole_suite_are_on_its_page():
    named = Suite.named()
    plans = named.plans("alibi")
    hours = sum(named.hours(name) for name in named.studies)
    page = (ROOT / "docs/studies.md").read_text("utf-8")
    assert f"about {hours:.0f} hours on one core or {hours / 2:.0f} hours on two cores" in page
    ours = {suite.is_entry(row.name) for row in plans["recall"].encodings}
    assert ours == {True, False}
    share = 2 / 6  # rows of the entry
    assert re.search(rf"[Ss]tored baselines[^.]* {share * hours:.0f} hours on one core", page)


def test_a_suite_whose_controls_have_not_been_run_is_a_draft():
    assert "positive control" in Suite.named().draft
    assert "v2 is a draft" in (ROOT / "docs/studies.md").read_text("utf-8")
