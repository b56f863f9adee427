"""The suite of the arena: frozen, and the same for whoever takes part."""

import json
from hashlib import sha256
from pathlib import Path
from statistics import median

import pytest
from stored_outcomes import settings

from posenc.lab.arena import suite
from posenc.lab.arena.suite import ENTRY, OBLIGATORY, Suite
from posenc.lab.study import execute
from posenc.lab.study.plan import PlanError

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
    [("rope", "rope is a row of every arena"), ("ropr", "arena: .*rope")],
)
def test_what_takes_part_is_none_of_its_own_rows_and_is_known(encoding, said):
    with pytest.raises(PlanError, match=said):
        Suite.named().plans(encoding)


def test_another_suite_is_not_known():
    with pytest.raises(PlanError, match="no suite is called 'v0': known are v1"):
        Suite.named("v0")


def test_the_page_of_rules_says_what_the_suite_has():
    page = (ROOT / "docs/arena.md").read_text("utf-8")
    named = Suite.named()
    assert named.digest in page
    for name, plan in named.plans("alibi").items():
        rates = ", ".join(f"{rate:g}" for rate in plan.rates)
        cells = len(plan.cells()) + len(plan.trials())
        tasks = ", ".join(plan.tasks)
        numbers = f"{plan.trained} | {plan.profile.steps:,} | {rates} | {plan.seeds} | "
        assert f"| {name} | {tasks} | {numbers}{plan.profile.prompts} | {cells} |" in page


@pytest.mark.repository
def test_what_it_costs_is_at_the_pace_of_the_studies_that_are_stored():
    plans, hours = Suite.named().plans("alibi"), []
    for study, name in (("pairs-copy", "copy-10"), ("pairs-text", "text-64")):
        lines = map(json.loads, (ROOT / "studies" / study / "times.jsonl").read_text().splitlines())
        wall = median(line["wall"] for line in lines if line.get("wall") is not None)
        (steps,) = {cell["profile"]["steps"] for cell in settings(study)}
        cells = len(plans[name].cells()) + len(plans[name].trials())
        hours.append(cells * wall * plans[name].profile.steps / steps / 3_600)
    said = f"`copy-10` takes {hours[0]:.0f} hours of one core and `text-64` {hours[1]:.0f};"
    assert said in (ROOT / "docs/arena.md").read_text("utf-8")
