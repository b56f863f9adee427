"""The suite of the arena: frozen, and the same for whoever takes part."""

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from statistics import median

import pytest
from refusals import refused
from stored_outcomes import settings

from posenc.lab.study import execute
from posenc.lab.study.plan import PlanError
from studies.arena import suite
from studies.arena.board import as_page
from studies.arena.suite import ENTRY, OBLIGATORY, Suite

ROOT = Path(__file__).parents[3]
DIGESTS = {  # what is frozen: a change is another suite, of another name
    "v1": "9c12e3b6cc7e8395673b24dcb1b5615e96b4afc5518af95df780242000ad5956"
}


@pytest.mark.parametrize("name", sorted(path.stem for path in suite.FOLDER.glob("*.toml")))
def test_a_suite_is_frozen(name):
    assert Suite.named(name).digest == DIGESTS[name]


def test_its_digest_is_that_of_all_its_plans():
    named = Suite.named()
    texts = "\n".join(f"{name}\n{plan.text}" for name, plan in named.plans("alibi").items())
    assert named.digest == sha256(texts.encode()).hexdigest()
    other = {name: {**study, "seeds": 9} for name, study in named.studies.items()}
    assert Suite("v1", other).digest != named.digest


def test_its_rules_hold_in_each_of_its_studies():
    """Three rates, eight seeds, crop in texts, and the rows that everybody has beside theirs."""
    for plan in Suite.named().plans("kerple").values():
        assert plan.labels == (*OBLIGATORY, ENTRY)
        assert len(plan.rates) == 3
        assert plan.seeds == 8
        assert plan.metric == "area"
        sides = {name for contrast in plan.contrast for side in contrast for name in side}
        assert sides >= {ENTRY, "nope", "rope"}
        assert ("rope cropped" in sides) == (plan.tasks == ("language",))
        trained = plan.trained
        assert {n for n in plan.tested if n > trained}
        for cell in execute.resolved(plan):
            assert cell.seed <= 10_000 or max(cell.tested) <= trained
        windows = [row for row in plan.encodings if row.control == "window"]
        assert [row.encoding for row in windows] == ["rope"]


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
    named = Suite.named()
    assert named.digest in page
    for name, plan in named.plans("alibi").items():
        rates = ", ".join(f"{rate:g}" for rate in plan.rates)
        cells = len(plan.cells()) + len(plan.trials())
        tasks = ", ".join(plan.tasks)
        numbers = f"{plan.trained} | {plan.profile.steps:,} | {rates} | {plan.seeds} | "
        hours = f"{named.hours(name):.1f}"
        assert f"| {name} | {tasks} | {numbers}{plan.profile.prompts} | {cells} | {hours} |" in page


@pytest.mark.repository
@pytest.mark.parametrize(
    ("study", "name", "longer"),
    [("bands-copy", "copy-10", "copy-20"), ("fair-text", "text-64", "text-128")],
)
def test_what_it_costs_is_at_the_pace_of_stored_studies_of_the_same_profile(study, name, longer):
    """A study with texts twice as long counts twice."""
    lines = map(json.loads, (ROOT / "studies" / study / "times.jsonl").read_text().splitlines())
    wall = median(line["wall"] for line in lines if line.get("wall") is not None)
    named = Suite.named()
    plan = named.plans("alibi")[name]
    profiles = [cell["profile"] | {"rate": 0} for cell in settings(study)]
    assert asdict(plan.profile) | {"rate": 0} in profiles
    assert named.seconds[name] == round(wall)
    assert named.seconds[longer] == 2 * round(wall)
    cells = len(plan.cells()) + len(plan.trials())
    assert named.hours(name) == pytest.approx(cells * wall / 3_600, rel=0.01)


@pytest.mark.repository
def test_the_hours_of_a_whole_suite_are_on_its_page():
    named = Suite.named()
    hours = sum(named.hours(name) for name in named.studies)
    page = (ROOT / "docs/studies.md").read_text("utf-8")
    assert f"about {hours:.0f} hours of one core, {hours / 2:.0f} hours on two" in page


def test_without_a_positive_control_a_suite_is_a_draft():
    """On its page too, as on the board."""
    assert "positive control" in Suite.named().draft
    assert "v1 is a draft" in as_page(Suite.named(), [])
    assert "v1 is a draft" in (ROOT / "docs/studies.md").read_text("utf-8")
