"""Outcomes for other programs, read back by the csv module, against those that went in."""

import csv

import pytest
from made_studies import PROMPTS, plan, study
from refusals import refused

from posenc.lab.study import export


@pytest.fixture(scope="module")
def contents():
    """Right answers in `copy`, bits per character in `language`; one cell failed."""
    return study(plan(("nope", "rope"), ("copy", "language"), 2), failures=[("rope", 1)])


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def test_every_outcome_is_in_the_file_to_the_bit(contents, tmp_path):
    path = tmp_path / "all.csv"
    count = export.write_csv(contents, path)
    rows = read(path)
    assert count == len(rows) == sum(len(x.outcomes) or 1 for x in contents.records.values())
    written = {(row["cell"], row["protocol"], row["length"]): row for row in rows}
    for digest, record in contents.records.items():
        for (protocol, length), outcome in record.outcomes.items():
            row = written[digest, protocol, str(length)]
            said = row["outcomes"]
            values = [*map(float, said if row["kind"] == "bits" else said.split(" "))]
            assert values == outcome.values.tolist()
            assert len(values) == int(row["prompts"]) == PROMPTS
            assert float(row["mean"]) == pytest.approx(sum(values) / PROMPTS, rel=1e-6)
            assert (row["task"], row["seed"]) == (record.cell.task, str(record.cell.seed))


def test_a_cell_that_failed_has_one_row_that_says_why(contents, tmp_path):
    export.write_csv(contents, tmp_path / "all.csv")
    failed = [row for row in read(tmp_path / "all.csv") if row["failure"]]
    assert {row["encoding"] for row in failed} == {"rope"}
    for row in failed:
        assert row["failure"] == "mean loss 3 of 16 is nan"
        assert row["protocol"] == row["length"] == row["outcomes"] == ""
    assert len(failed) == 2  # tasks


def test_a_file_that_is_there_is_left_as_it_is(contents, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("my own work")
    with pytest.raises(FileExistsError):
        export.write_csv(contents, path)
    assert path.read_text() == "my own work"


def test_of_what_is_chosen_all_is_left_and_nothing_else(contents):
    some = export.chosen(contents, {"task": ["copy"], "encoding": ["nope"]})
    assert {(x.cell.task, x.cell.encoding) for x in some.records.values()} == {("copy", "nope")}
    assert len(some.records) == 2  # seeds
    assert export.chosen(contents, {"task": [], "encoding": []}).records == contents.records


def test_a_name_that_no_cell_has_is_refused_with_those_that_are_there(contents):
    with refused(LookupError, "'sort'"):
        export.chosen(contents, {"task": ["sort"]})
