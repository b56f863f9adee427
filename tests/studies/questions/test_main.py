"""`python -m studies.questions` on small stores: what is printed, written and rejected."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import made_studies
import pytest
from study_runner import TINY

from posenc.lab.study import tasks
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell
from posenc.lab.study.saved_models import save_model
from posenc.lab.study.store import Store
from studies.questions.__main__ import main

NAMES = ("nope", "rope", "p-rope", "alibi", "kerple", "sinusoidal")
STUDIES = Path(__file__).parents[3] / "studies"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def asked(capsys):
    """Run the module as typed: exit status, stdout and stderr."""

    def ask(*typed):
        code = main([*map(str, typed)])
        return code, *capsys.readouterr()

    return ask


def stored(folder, names=NAMES, seeds=3):
    """A store of made outcomes."""
    plan = made_studies.plan(names, seeds=seeds)
    store = Store(Path(folder))
    store.register(plan.digest, plan.text, {})
    for record in made_studies.study(plan).records.values():
        store.add(record)
    store.close()


def test_properties_foretell_outcomes_or_not(asked):
    stored("out")
    code, said, _ = asked("properties", "out")
    assert (code, "of 4 families" in said) == (0, True)
    assert "count once" in said
    (held,) = json.loads(asked("properties", "out", "--json")[1])
    names = [name for label in held["encodings"] for name in label.split(" = ")]
    assert sorted(names) == sorted(NAMES)
    code, _, err = asked("properties", "out", "--encoding", "rope")
    assert (code, "at least 6 trained encodings" in err) == (2, True)


def test_bands_of_the_kept_models_are_swapped(asked):
    """Swaps bands of a saved model; rejects a folder without models and a file that exists."""
    Path("out").mkdir()
    code, _, err = asked("bands", "out", "bands.csv")
    assert (code, "saved model with a RoPE" in err) == (2, True)
    assert not Path("bands.csv").exists()
    profile, task = replace(TINY, width=16), tasks.find("language")
    cell = Cell("language", "rope", 1, profile=profile, trained=8)
    save_model(build(cell, len(task.vocabulary)), cell, task, Path("out/models"))
    code, said, _ = asked("bands", "out", "bands.csv")
    assert code == 0
    assert "rope at 32 tokens: " in said
    rows = [*csv.DictReader(Path("bands.csv").read_text().splitlines())]
    assert [(row["length"], row["first"], row["how"]) for row in rows] == [
        (n, first, how) for n in ("16", "32") for first in "0123" for how in ("slowed", "still")
    ]
    code, _, err = asked("bands", "out", "bands.csv")
    assert (code, "got bands.csv, which exists" in err) == (2, True)


def test_a_repetition_is_compared_with_the_first_study(asked):
    """Compares a study with itself, with one of another metric, and with none."""
    stored("out", NAMES[:2], seeds=2)
    code, said, _ = asked("repetition", "out", "out")
    assert code == 0
    assert "2 of 2 rows agree within their intervals; 4 of 4 cells" in said
    again = json.loads(asked("repetition", "out", "out", "--json")[1])
    assert [(row["encoding"], row["equal"], row["agrees"]) for row in again] == [
        ("nope", 2, True),
        ("rope", 2, True),
    ]
    code, said, err = asked("repetition", "out", STUDIES / "shape-text")
    assert (code, said) == (2, "")
    assert "'at 2.0', got 'area'" in err
    code, _, err = asked("repetition", "out", "nowhere")
    assert (code, "got nowhere" in err) == (2, True)
