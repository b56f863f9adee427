"""Cells that are trained in a process of their own, and what a hostile one can leave behind."""

from dataclasses import asdict, replace

import pytest
import torch
from made_suite import SUITE
from refusals import refused
from safetensors.torch import save_file

from posenc.lab.study import execute, tasks, train
from studies.arena import training
from studies.arena.training import Predictions, TrainingFailed

CELL = execute.cells_of(SUITE.plans("alibi")["near"])[-1]


def test_predictions_are_read_as_they_were_saved(tmp_path):
    made = training.train_again(CELL)
    made.save(tmp_path / "0.safetensors")
    read = Predictions.read(tmp_path / "0.safetensors")
    assert {*read.outputs} == {*made.outputs}
    for name, values in made.outputs.items():
        assert torch.equal(read.outputs[name], values)
    assert (asdict(replace(read, outputs={}))) == asdict(replace(made, outputs={}))


def test_what_is_graded_is_what_a_study_stores():
    task = tasks.find(CELL.task)
    expected = train.run(CELL, task)
    record = training.graded(CELL, training.train_again(CELL))
    assert record.losses == expected.losses
    assert record.parameters == expected.parameters
    assert {*record.outcomes} == {*expected.outcomes}
    for place, values in expected.outcomes.items():
        assert torch.equal(record.outcomes[place].values, values)


def test_a_lost_loss_is_the_outcome_of_a_cell():
    record = training.graded(CELL, Predictions({}, (), None, None, "the loss of step 5 is nan"))
    assert record.failure == "the loss of step 5 is nan"
    assert record.outcomes == {}


def test_files_of_something_else_are_refused(tmp_path):
    path = tmp_path / "0.safetensors"
    path.write_bytes(b"cos\nsystem\n(S'true'\ntR.")  # a pickle, which nothing here reads
    with pytest.raises(ValueError, match="must have predictions"):
        Predictions.read(path)
    for about in (None, {"posenc": "{"}, {"posenc": "[1, 2, 3, 4]"}, {"posenc": "[[1], 2]"}):
        save_file({"x": torch.zeros(1)}, path, about)
        with pytest.raises(ValueError, match="must have predictions"):
            Predictions.read(path)


def test_a_process_that_leaves_nothing_is_named_with_its_cell(tmp_path, monkeypatch):
    """Code of an entry that ends the process as it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import os\n\nos._exit(7)\n")
    with refused(TrainingFailed, 2, 7):
        training.train_separately([replace(CELL, encoding="mine.py:Mine")])
