"""Questions to stores and models that name code, which leaves a mark where it runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from named_code import CODE, MINE, PROFILE, TASK, kept, ran, stored
from refusals import refused

from posenc.lab.study import analysis, user_code_gate
from posenc.lab.study.cell import Cell
from posenc.lab.study.user_code_gate import CodeRefused
from studies.questions import bands, prediction, repetition

FAMILIES = ("nope", "rope", "p-rope", "alibi", "kerple", "sinusoidal")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with code in it, in which nothing has run."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)


def test_properties_of_a_stores_encodings_are_measured_of_allowed_code_alone():
    cells = [Cell("copy", name, 1, profile=PROFILE, trained=20) for name in (*FAMILIES, MINE)]
    held = replace(stored("theirs", *cells), sources=user_code_gate.digests([MINE]))
    table = analysis.analyse(held)
    with refused(CodeRefused, "mine.py"):
        prediction.predict(held, table)
    assert not ran()
    assert MINE in prediction.predict(held, table, allow_code=MINE)[0].encodings
    Path("mine.py").write_text(f"{CODE}\n# louder")
    with pytest.raises(CodeRefused, match="SHA-256"):
        prediction.predict(held, table, allow_code=MINE)


def test_bands_are_swapped_in_models_of_allowed_code_alone():
    kept()
    with pytest.raises(CodeRefused, match="names code"):
        bands.swap_saved(Path("theirs"))
    assert not ran()
    with refused(ValueError, "RoPE"):
        bands.swap_saved(Path("theirs"), allow_code=MINE)
    assert ran()


def test_bands_are_swapped_in_models_of_allowed_tasks_alone():
    kept(encoding="rope", task=TASK)
    with refused(CodeRefused, "mine.py"):
        bands.swap_saved(Path("theirs"))
    assert not ran()


def test_a_repetition_of_a_task_that_is_code_runs_nothing():
    held = stored("odd", Cell(TASK, "rope", 1, profile=PROFILE, trained=20))
    repetition.repetition(held, held)
    assert not ran()
