"""The summary of a study against the store that it is of."""

import json
from pathlib import Path

from made_studies import plan, study

from posenc.lab.study.analysis import analyse
from posenc.lab.study.store import Contents
from posenc.lab.study.summary import summarise

PLAN = plan(seeds=1, hypothesis="None.", tasks=["copy", "sort"], tested=[10, 20, 40])


def test_it_holds_the_plan_the_table_and_what_is_published_of_the_same_tasks():
    contents = study(PLAN, deviations=["after 3 cells"])
    found = summarise(contents)
    assert (found.plan, found.title) == (PLAN.text, "5 encodings on copy, sort")
    assert "None." not in found.title  # the title never contains the hypothesis
    assert found.analysis == analyse(contents)
    assert found.outcomes == contents.digest
    assert [*found.published] == ["copy"]
    tree = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert tree["registered"] == PLAN.digest
    assert tree["rows"][0]["means"].keys() == {"10", "20", "40"}


def test_commands_are_those_of_its_own_plans(tmp_path):
    own = {"plan": PLAN.digest, "begun": "now", "command": "posenc study", "commit": None}
    lines = [own | {"plan": "f" * 64}, own, {"cell": "a", "step": 0.1}]
    (tmp_path / "times.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = summarise(study(PLAN, path=tmp_path / "results.db"))
    assert [start.command for start in found.starts] == ["posenc study"]


def test_a_title_says_what_was_compared():
    assert summarise(study(plan(["nope"], seeds=1))).title == "nope on copy"
    assert summarise(Contents([], [], {}, {}, Path())).title == "A study of positional encodings"


def test_a_row_says_its_trained_length_and_its_means():
    (row, *_) = analyse(study(PLAN)).rows
    assert row.trained == 20
    assert row.means == {n: values[0] for n, values in row.curve.items()}
