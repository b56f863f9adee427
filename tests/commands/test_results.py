"""`posenc results`, as a person types it."""

import csv
import json
import shutil
from importlib.util import find_spec
from pathlib import Path

from study_runner import PLAN

from posenc.lab.study import store
from posenc.lab.study.plan import Plan

FIXTURE = Path(__file__).parents[1] / "lab/study/store-format-1.db"


def test_results_print_the_same_table_again(out, posenc):
    assert posenc("results", "out")[:2] == (0, out)
    assert posenc("results", "out/results.db")[1] == out


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
    assert (code, err) == (
        2,
        "error: task must be in the results, which have copy, got 'sort'. Name one of these.\n",
    )


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
    assert (code, err.count("\n"), "all.csv must be a new file" in err) == (2, 1, True)


def test_numbers_and_failures_are_exported_too(posenc):
    shutil.copy(FIXTURE, "results.db")
    code, _, err = posenc("results", "results.db", "--csv", "x.csv")
    assert (code, "format 1, which has no checksums" in err) == (0, True)
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
    assert "pyarrow, which is not installed. Export CSV, or python -m pip install" in err
    assert '".[parquet]" in ' in err
    assert not Path("all.parquet").exists()


def test_somebody_elses_store_has_a_table_and_a_page(out, posenc, tmp_path):
    """A read-only file alone, without times, checkpoints or the folder."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    shutil.move("out/results.db", theirs / "renamed.db")
    (theirs / "renamed.db").chmod(0o444)
    code, said, err = posenc("results", "theirs/renamed.db", "--out", "page")
    assert code == 0, err
    assert Plan.of(PLAN).digest in said
    assert "The page: page/index.html" in said
    assert len(json.loads(Path("page/results.json").read_text())["rows"]) == 2
    assert [path.name for path in theirs.iterdir()] == ["renamed.db"]
