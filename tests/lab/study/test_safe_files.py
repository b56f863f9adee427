"""The folder of a study in which links lead elsewhere, against the bytes of what they lead to."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import study_runner
from refusals import refused
from study_runner import TINY

from posenc.commands import cli
from posenc.lab.study import checkpoints, execute, safe_files, store
from posenc.lab.study.cell import Cell
from posenc.lab.study.lock import locked
from posenc.lab.study.plan import Plan
from posenc.lab.study.safe_files import NotRegular
from posenc.lab.study.store import Record, Store

CONTENT = {"tasks": ["copy"], "encodings": ["rope"], "seeds": 1, "profile": {"steps": 12}}
CONTENT |= {"trained": 5, "tested": [5, 10]}
FILES = ("lock", "times.jsonl", "running.db", "running.db-wal", "running.db-shm", "results.db")


@pytest.fixture
def folder(tmp_path):
    """A folder whose study is half done, and beside it a file and a folder of somebody's own."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    running = Store(tmp_path / "theirs")
    running.add(Record(Cell("copy", "nope", 1, profile=TINY, trained=5), 1, (0.5,), None, {}))
    running._file.close()
    return tmp_path / "theirs"


def linked(folder, name, to):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(to)


def study(folder, **rest):
    return execute.study(
        Plan.of(CONTENT), folder, runner=study_runner.run, start="fork", pilot=True, **rest
    )


@pytest.mark.parametrize("name", FILES)
def test_a_study_writes_over_nothing_that_a_link_leads_to(folder, name):
    linked(folder, name, folder.parent / "mine")
    with refused(NotRegular, f"theirs/{name}", "a link"):
        study(folder)
    assert (folder.parent / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["cells", "models", "cells/inner"])
def test_a_study_writes_into_no_folder_that_a_link_leads_to(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    linked(folder, name, folder.parent / "elsewhere")
    with refused(NotRegular, name):
        study(folder)
    assert not [*(folder.parent / "elsewhere").iterdir()]


@pytest.mark.parametrize("name", FILES[:2])
def test_a_pipe_is_not_waited_for(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with refused(NotRegular, name):
        study(folder)


def test_a_store_that_is_only_read_is_not_followed_either(folder):
    """SQLite makes the files beside a running store, and would write through a link."""
    assert len(store.read(folder).records) == 1
    for name in reversed(FILES[2:5]):
        linked(folder, name, folder.parent / "mine")
        with refused(NotRegular, name):
            store.read(folder)
        (folder / name).unlink()
    assert (folder.parent / "mine").read_text() == "mine"


def test_a_database_of_another_program_is_refused_before_anything_is_written(folder):
    """Opening it as a store to write made it one with a log, which is written in its header."""
    other = folder / "running.db"
    other.unlink()
    with closing(sqlite3.connect(other)) as file, file:
        file.execute("CREATE TABLE history (url TEXT)")
    before = other.read_bytes()
    with refused(store.StoreError, other, "database"):
        study(folder)
    assert other.read_bytes() == before


CHECKPOINT = "cells/x/step-00000001-0123456789abcdef.safetensors"


@pytest.mark.parametrize("name", ["times.jsonl", CHECKPOINT])
def test_what_is_read_beside_a_store_is_no_link_or_pipe(folder, name):
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    os.mkfifo(folder / name)
    assert store.times(folder) == []
    assert checkpoints.latest(folder / "cells/x") is None


HOSTILE = [
    '{"cell": "c", "step": 1' + "0" * 400 + "}",
    '{"cell": ' + "[" * 100_000 + "}",
    '{"plan": [1], "begun": {}, "commit": 3, "command": [2]}',
    '{"cell": {}, "step": NaN, "wall": Infinity}',
    '{"cell": "c", "step": true, "wall": 1' + "0" * 400 + "}",
    "x" * 1_000_000,
]


def test_times_that_make_no_sense_are_left_out(folder, monkeypatch, capsys):
    Store(folder).close()
    (folder / store.TIMES).write_text("\n".join([*HOSTILE, '{"cell": "c", "step": 2}']))
    assert store.times(folder)[-1] == {"cell": "c", "step": 2}
    monkeypatch.chdir(folder.parent)
    cli.main(["results", "theirs", "--out", "page"])
    assert "Traceback" not in capsys.readouterr().err


def test_a_plain_folder_is_no_hindrance(tmp_path):
    study(tmp_path)
    with locked(tmp_path):
        safe_files.check_files(tmp_path / "lock", tmp_path / "results.db", tmp_path / "not there")
        safe_files.check_folders(tmp_path, Path("not there"))
    with refused(NotRegular, tmp_path / "lock", "folder"):
        safe_files.check_folders(tmp_path / "lock")
    assert len(store.read(tmp_path).records) == 1
