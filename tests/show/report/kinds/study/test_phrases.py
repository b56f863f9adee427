"""Words on contrasts and rows against numbers that are put in."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_studies import plan, study

from posenc.lab.study import store
from posenc.lab.study.analysis import Contrast, analyse
from posenc.lab.study.statistics import Interval
from posenc.lab.study.summary import summarise
from posenc.show.report import page
from posenc.show.report.kinds.study import phrases

CONTRAST = Contrast(
    "copy", ["nope"], ["rope", "sinusoidal"], [1, 2, 3, 4, 5, 6],
    Interval(0.5, 0.4, 0.6), [0.5] * 6, 0.03, 0.04, None, "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "nope is better"),
        ({"difference": Interval(-0.5, -0.6, -0.4)}, "rope + sinusoidal is better"),
        ({"adjusted": 0.06}, "no difference shown"),
        ({"adjusted": 0.06, "equal": 0.06}, "no difference shown"),
        ({"adjusted": 0.06, "equal": 0.04}, "equal within the plan's margin"),
        ({"difference": Interval(0.5, -0.1, 0.6)}, "no difference shown"),
        ({"verdict": "undertrained: rope"}, "undertrained: rope"),
        ({"difference": None, "verdict": "no paired seeds yet"}, "no paired seeds yet"),
    ],
)
def test_a_side_is_better_only_if_p_and_interval_say_so(change, said):
    assert phrases.verdict(replace(CONTRAST, **change)) == said


def test_what_is_decided_is_said_with_its_interval_and_conditions_and_the_rest_is_named():
    back = replace(CONTRAST, difference=Interval(-0.5, -0.6, -0.4))
    weak = replace(CONTRAST, verdict="undertrained: rope")
    same = replace(CONTRAST, adjusted=1.0)
    assert phrases.findings([CONTRAST, back, weak, same], False, "at 1.2 L") == [
        "nope is better than rope + sinusoidal, by 40.0 to 60.0 percentage points, at 1.2 L.",
        "rope + sinusoidal is better than nope, by 40.0 to 60.0 percentage points, at 1.2 L.",
        "Neither a difference nor equality is shown: nope − rope + sinusoidal.",
        "Not decided: nope − rope + sinusoidal (undertrained: rope).",
    ]
    assert phrases.findings([CONTRAST], True, "over L…2L") == [
        "nope is better than rope + sinusoidal, by 0.400 to 0.600 bits, over L…2L."
    ]


def test_conditions_name_lengths_rate_steps_and_seeds():
    planned = plan(seeds=2, metric="at 1.2")
    found = analyse(study(planned, missing=[("rope", 2)]))
    assert phrases.conditions(found) == (
        "at 1.2 L, L = 20, learning rate 0.001, 5 steps, 1 to 2 seeds"
    )
    nothing = replace(found, metric="area", rows=[], profile=None, steps=None)
    assert phrases.conditions(nothing) == "over L…2L"
    tried = replace(found, rates=[1e-3, 2e-3])
    assert (
        "learning rate 0.001 of each row, chosen at n ≤ L of 0.001, 0.002, 5"
        in phrases.conditions(tried)
    )
    chosen = replace(tried, profile=None, rows=[replace(row, rate=2e-3) for row in found.rows[:1]])
    assert phrases.conditions(chosen) == (
        "at 1.2 L, L = 20, learning rates that were chosen at n ≤ L of 0.001, 0.002 (nope 0.002),"
        " 5 steps, 2 seeds"
    )


def test_the_design_counts_runs_encodings_tasks_and_seeds():
    planned = plan(seeds=2, tasks=["copy", "sort"])
    found = analyse(study(planned, missing=[("rope", 2)]))
    said = phrases.design(found)
    assert said.startswith("18 of 20 runs are done: 5 encodings on 2 tasks, 1 to 2 seeds each.")
    assert "2 layers, width 64, 4 heads, for 5 steps of 64 texts" in said
    assert "at one learning rate, 0.001, and tests 40 prompts" in said
    assert "not for other lengths, rates and steps" in said


def test_units_and_spans():
    rows = analyse(study(plan(seeds=1, tasks=["copy", "language"]))).rows
    units = {row.task: phrases.unit(row) for row in rows}
    assert units == {"copy": "texts all right, %", "language": "bits per character"}
    assert phrases.unit(replace(rows[-1], task="masked")) == "bits per word"
    assert phrases.unit(replace(rows[0], task="images")) == "pictures all right, %"
    assert (phrases.span("area"), phrases.span("at 1.2")) == ("L…2L", "1.2 L")
    assert phrases.note(replace(rows[0], undertrained=[1], failures={3: "nan"})) == (
        "undertrained; seed 3 failed: nan"
    )
    some = replace(rows[0], undertrained=[2], seeds=[1, 2, 4])
    assert phrases.note(some) == "undertrained in 1 of 3 seeds"


@pytest.mark.repository
@pytest.mark.parametrize(
    ("study", "wanted"),
    [
        ("shape-copy", "Undecided. Undertrained: nope, t5"),
        (
            "shape-reverse",
            "On reverse nope + t5 + alibi is better than rope + sinusoidal, at 1.2 L, L = 10,"
            " learning rate 0.001, 2,000 steps, 6 seeds",
        ),
        ("pairs-copy", "Undecided. Undertrained: lowest-8"),
    ],
)
def test_the_headline_of_a_study_is_its_verdict(study, wanted):
    """Headlines of the stores; the hypothesis of a plan must not be a headline."""
    folder = Path(__file__).parents[5] / "studies" / study
    summary = summarise(store.read(folder))
    html = page.render(summary)
    (title,) = re.findall("<h1>(.*?)</h1>", html)
    assert title.startswith(wanted)
