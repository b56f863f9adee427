"""`posenc results`, as a person types it."""

import csv
import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from study_runner import PLAN, TINY

from posenc.lab.study import analysis, store, tasks
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell
from posenc.lab.study.kept import keep
from posenc.lab.study.plan import Plan

FIXTURE = Path(__file__).parents[1] / "lab/study/store-format-1.db"


def test_results_print_the_same_table_again(out, posenc):
    assert posenc("results", "out")[:2] == (0, out)
    assert posenc("results", "out/results.db")[1] == out
    assert posenc("results", "--from", "out")[1] == out


def test_results_write_a_page_and_replace_only_one_of_their_own(out, posenc):
    before = Path("out/results.db").read_bytes()
    code, said, _ = posenc("results", "out", "--out", "page", "--task", "copy")
    assert (code, said.startswith(out.rstrip())) == (0, True)
    assert "The page: page/index.html" in said
    assert json.loads(Path("page/results.json").read_text())["plan"] == Plan.of(PLAN).text
    assert posenc("results", "out", "--out", "out", "--csv", "all.csv")[0] == 0
    assert posenc("results", "out", "--out", "page")[0] == 0
    assert Path("out/results.db").read_bytes() == before
    Path("out/index.html").write_text("mine")
    refused = "error: --out: out holds index.html, which is not an earlier report"
    for words in (["results", "out", "--out", "out"], ["study", "--resume", "out"]):
        code, _, err = posenc(*words)
        assert (code, refused in err) == (2, True)
    assert Path("out/index.html").read_text() == "mine"


def test_results_as_json_hold_every_seed(out, posenc):
    held = json.loads(posenc("results", "out", "--json")[1])
    assert [row["encoding"] for row in held["rows"]] == ["nope", "rope"]
    assert all(len(row["by_seed"]) == 2 for row in held["rows"])
    assert held["registered"] == Plan.of(PLAN).digest
    cells = json.loads(posenc("results", "out", "--cells", "--json")[1])
    assert len(cells) == 4
    assert {len(cell["means"]) for cell in cells} == {4}


def test_results_are_chosen_by_task_and_encoding(out, posenc):
    _, table, _ = posenc("results", "out", "--encoding", "rope", "--cells")
    assert table.count("rope") == 2
    assert "nope" not in table
    _, table, _ = posenc("results", "out", "--encoding", "rope")
    assert "nope" not in table
    code, _, err = posenc("results", "out", "--task", "sort")
    assert (code, err) == (2, "error: the store has no task 'sort': it has copy.\n")


def test_outcomes_are_exported_prompt_by_prompt(out, posenc):
    assert posenc("results", "out", "--csv", "all.csv")[0] == 0
    with open("all.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == 4 * 4
    held = store.read(Path("out")).records
    for row in rows:
        outcome = held[row["cell"]].outcomes[row["protocol"], int(row["length"])]
        assert row["outcomes"] == "".join(str(int(bit)) for bit in outcome.values)
        assert float(row["mean"]) == row["outcomes"].count("1") / len(row["outcomes"])
    held = json.loads(posenc("results", "out", "--csv", "twice.csv", "--json")[1])
    assert (len(held["rows"]), Path("twice.csv").exists()) == (2, True)
    code, _, err = posenc("results", "out", "--csv", "all.csv")
    assert (code, err) == (2, "error: all.csv exists already: name a new file.\n")


def test_numbers_and_failures_are_exported_too(posenc):
    shutil.copy(FIXTURE, "results.db")
    code, _, err = posenc("results", "results.db", "--csv", "x.csv")
    assert (code, "format 1, which holds no checksums" in err) == (0, True)
    with open("x.csv", newline="") as file:
        numbers = [row for row in csv.DictReader(file) if row["kind"] == "float32"]
    assert all(len(row["outcomes"].split()) == int(row["prompts"]) for row in numbers)
    assert numbers


def test_parquet_needs_pyarrow_and_says_so(out, posenc):
    if find_spec("pyarrow"):
        from pyarrow import parquet

        assert posenc("results", "out", "--parquet", "all.parquet")[0] == 0
        table = parquet.read_table("all.parquet").to_pylist()
        assert len(table) == 16
        assert all(sum(row["outcomes"]) / len(row["outcomes"]) == row["mean"] for row in table)
        return
    code, _, err = posenc("results", "out", "--parquet", "all.parquet")
    assert code == 2
    assert "pyarrow, which is not installed: export CSV, or python -m pip install" in err
    assert '".[parquet]" in ' in err
    assert not Path("all.parquet").exists()


def test_somebody_elses_store_has_a_table_and_a_page(out, posenc, tmp_path):
    """Its file alone, that nobody may write: without times, checkpoints or the folder."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    shutil.move("out/results.db", theirs / "renamed.db")
    (theirs / "renamed.db").chmod(0o444)
    code, said, err = posenc("results", "--from", "theirs/renamed.db", "--out", "page")
    assert code == 0, err
    assert Plan.of(PLAN).digest in said
    assert "The page: page/index.html" in said
    assert len(json.loads(Path("page/results.json").read_text())["rows"]) == 2
    assert [path.name for path in theirs.iterdir()] == ["renamed.db"]


def test_two_tasks_have_a_table_over_both(posenc, fast):
    Path("plan.toml").write_text(Plan.of(PLAN | {"tasks": ["copy", "sort"]}).text)
    code, said, _ = posenc("study", "plan.toml", "--pilot", "--out", "out")
    assert code == 0
    assert "over tasks copy, sort, L…2L" in said
    assert "interquartile mean" in said
    held = json.loads(posenc("results", "out", "--json")[1])["overall"]
    assert [(one["encoding"], one["runs"]) for one in held] == [("nope", 4), ("rope", 4)]
    assert "Over all tasks" in Path("out/index.html").read_text()


def test_whether_properties_foretell_the_outcomes_is_asked(posenc, fast, monkeypatch):
    # twelve steps train nothing, and all come out alike
    monkeypatch.setattr(analysis, "RANGE", 0.0)
    monkeypatch.setattr("posenc.lab.study.prediction.ALIKE", 0.0)
    names = ["nope", "rope", "p-rope", "alibi", "kerple", "sinusoidal"]
    Path("plan.toml").write_text(Plan.of(PLAN | {"encodings": names}).text)
    posenc("study", "plan.toml", "--pilot", "--out", "out")
    code, said, _ = posenc("results", "out", "--properties")
    assert (code, "Of 6 encodings of 4 families" in said) == (0, True)
    assert "decaying" in said
    (held,) = json.loads(posenc("results", "out", "--properties", "--json")[1])["properties"]
    assert held["encodings"] == names
    assert "not told from chance" in said or held["p"] < 0.05
    assert "count once" in said
    code, _, err = posenc("results", "out", "--properties", "--encoding", "rope")
    assert (code, err.startswith("error: To predict by properties takes 6")) == (2, True)


def test_bands_of_the_kept_models_are_swapped(out, posenc):
    """Of a model in the study's folder; none there, and a file that is there, are refused."""
    code, _, err = posenc("results", "out", "--bands", "bands.csv")
    assert (code, "kept no model with a RoPE whose pairs all turn" in err) == (2, True)
    assert not Path("bands.csv").exists()
    profile, task = replace(TINY, width=16), tasks.find("language")
    cell = Cell("language", "rope", 1, profile=profile, trained=8)
    keep(build(cell, len(task.vocabulary)), cell, task, Path("out/models"))
    code, said, _ = posenc("results", "out", "--bands", "bands.csv")
    assert code == 0
    assert "rope at 32 tokens: what its bands of pairs bring back" in said
    rows = [*csv.DictReader(Path("bands.csv").read_text().splitlines())]
    assert [(row["length"], row["first"], row["how"]) for row in rows] == [
        (n, first, how) for n in ("16", "32") for first in "0123" for how in ("slowed", "still")
    ]
    code, _, err = posenc("results", "out", "--bands", "bands.csv")
    assert (code, "bands.csv exists already: name a new file" in err) == (2, True)


@pytest.mark.repository
def test_a_repetition_is_held_against_the_first_study(out, posenc):
    """Of itself, of a part of itself, and of what measures something else."""
    code, said, _ = posenc("results", "out", "--against", "out")
    assert code == 0
    assert "2 of 2 rows agree within their intervals; 4 of 4 cells of" in said
    again = json.loads(posenc("results", "out", "--against", "out", "--json")[1])["repetition"]
    assert [(row["encoding"], row["equal"], row["agrees"]) for row in again] == [
        ("nope", 2, True),
        ("rope", 2, True),
    ]
    other = str(Path(__file__).parents[2] / "studies/shape-text")
    code, said, err = posenc("results", "out", "--against", other)
    assert (code, said) == (2, "")
    assert "--against: a repetition has the metric of the first, 'at 2.0', got 'area'" in err
    code, _, err = posenc("results", "out", "--against", "nowhere")
    assert (code, "nowhere does not exist" in err) == (2, True)
