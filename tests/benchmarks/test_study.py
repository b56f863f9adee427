"""Steps of a study, few samples, against the steps that a study takes."""

from dataclasses import replace

import pytest
import torch

from benchmarks import study
from posenc.catalog import CATALOG, find
from posenc.lab.study import cell, tasks, train
from posenc.lab.study.build import build

TINY = cell.Profile(width=16, heads=2, layers=1, batch=2, warmup=0)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(cell.PROFILES, "smoke", TINY)
    monkeypatch.setattr(tasks, "find", lambda name: TASK)


TASK = replace(tasks.find("copy").at(4), name="language")
SPEEDS = {
    "sinusoidal": 0.9, "learned": 0.9, "rope": 0.9, "xpos": 0.9, "alibi": 0.67, "t5": 0.67,
    "nope": None, "fox": None, "path": None, "shaw": None, "selective-rope": None,
}  # fmt: skip


def test_each_row_is_a_ratio_to_nope_and_each_target_a_speed():
    """A target of 0.9 of the tokens a second is one of 1 / 0.9 of the time."""
    table = study.time_study_steps("smoke", 1, 0.0, [find(name) for name in SPEEDS])
    nope = table.row("NoPE")
    assert nope.ratio == 1
    assert not nope.ours
    assert len(table.rows) == len(SPEEDS) + 1
    rounded = table.row("posenc NoPE, bfloat16")
    (target,) = [one for one in table.targets if one.what == "NoPE in bfloat16, step / NoPE's"]
    assert (target.found, target.most) == (rounded.ratio, 0.6)
    for name, speed in SPEEDS.items():
        title = find(name).name
        (target,) = [one for one in table.targets if one.what.startswith(f"{title},")] or [None]
        assert (target is None) == (speed is None)
        if target is not None and speed is not None:
            row = table.row(f"posenc {title}")
            assert target.found == row.ratio == row.times.median / nope.times.median
            assert target.most == pytest.approx(1 / speed)


def test_every_encoding_of_the_catalogue_takes_a_step():
    torch.manual_seed(0)
    for card in CATALOG:
        study._step(cell.Cell(TASK.name, card.slug, 1, profile=TINY), TASK)()


def test_a_step_is_that_of_a_study(monkeypatch):
    """Weights after two steps at a constant rate, of the same texts."""
    one = cell.Cell("language", "rope", 1, profile=replace(TINY, steps=2))
    texts = lambda self, number, random: TASK.batch([3, 4], type(random)(7))  # noqa: E731
    monkeypatch.setattr(tasks.Task, "training", texts)
    monkeypatch.setattr(train, "rate", lambda step, profile: profile.rate)
    model, timed = (build(one, len(TASK.vocabulary)) for _ in range(2))
    train.fit(model, one, TASK)
    monkeypatch.setattr(study, "build", lambda *of: timed)
    step = study._step(one, TASK)
    step(), step()
    for ours, theirs in zip(timed.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
