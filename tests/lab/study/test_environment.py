"""The environment of outcomes, with changed files and stores continued on other machines."""

import os
import shutil
from pathlib import Path

import study_runner
from refusals import refused

from posenc.lab.study import environment, execute
from posenc.lab.study.plan import Plan, PlanError
from posenc.lab.study.store import read


def study(folder, **rest):
    return execute.study(
        Plan.of(study_runner.PLAN), folder, 1, study_runner.run, start="fork", pilot=True, **rest
    )


def test_the_digest_is_of_code_that_outcomes_come_of(tmp_path, monkeypatch):
    copied = tmp_path / "posenc"
    shutil.copytree(environment.PACKAGE, copied, ignore=shutil.ignore_patterns("*.js", "*.json"))
    monkeypatch.setattr(environment, "PACKAGE", copied)
    before = environment.code()
    shown = copied / "show" / "plot.py"
    shown.write_text(shown.read_text() + "\n# changed\n")
    assert environment.code() == before
    lab = copied / "lab" / "study" / "train.py"
    lab.write_text(lab.read_text() + "\n# changed\n")
    assert environment.code() != before


def test_a_study_that_goes_on_with_other_code_says_so(tmp_path, monkeypatch):
    study(tmp_path)
    held = read(tmp_path)
    assert {"code", "commit", "processor", "posenc", "torch"} <= held.sources.keys()
    monkeypatch.setattr(environment, "code", lambda: "another")
    with refused(PlanError, "`code`", "'another'"):
        study(tmp_path)
    study(tmp_path, deviate=True)
    assert "`code` is" in read(tmp_path).deviations[0]


def test_other_commits_and_processors_are_listed_and_leave_the_digest(tmp_path, monkeypatch):
    study(tmp_path)
    before = read(tmp_path)
    monkeypatch.setattr(environment, "processor", lambda: "another, AVX2")
    study(tmp_path)
    after = read(tmp_path)
    assert after.sources["processor"] == f"{before.sources['processor']}; another, AVX2"
    assert (after.deviations, after.digest) == ([], before.digest)


def test_a_processor_is_named():
    if Path("/proc/cpuinfo").exists():
        assert environment.processor().rpartition(", ")[0]


def run_there(cell, task, directory, stop, progress, device="cpu"):
    assert device == os.environ.get("THERE", "cpu")
    return study_runner.run(cell, task, directory, stop, progress)


def test_another_device_is_a_source_of_the_outcomes(tmp_path, monkeypatch):
    """`meta` is one that every torch has; nothing is trained on it here."""
    monkeypatch.setenv("THERE", "meta")
    whole = Plan.of(study_runner.PLAN)
    execute.study(whole, tmp_path, 1, run_there, start="fork", device="meta", pilot=True)
    assert read(tmp_path).sources["device"] == "meta"
    with refused(PlanError, "`device`", "'meta'"):
        study(tmp_path)
    study(tmp_path / "here")
    assert "device" not in read(tmp_path / "here").sources


def test_a_device_that_there_is_not_is_refused_before_anything_is_written(tmp_path):
    with refused(PlanError, "device", "'cuda:77'"):
        study(tmp_path / "none", device="cuda:77")
    with refused(PlanError, "device", "'gpu'"):
        study(tmp_path / "none", device="gpu")
    assert not (tmp_path / "none").exists()
