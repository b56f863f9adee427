"""Stores in which bits, bytes and types were changed, against the store as it was written.

A store returns the written contents, or raises an error of one sentence. Format 1 has no checksums,
so its contents may differ; but no command ends in a traceback.
"""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import made_studies
import pytest
from thorough import THOROUGH, some

from posenc.commands import cli
from posenc.lab.study import analysis, export, store
from posenc.lab.study.store import Store
from posenc.show.explorer import explore

FLIPS = 5_000 if THOROUGH else 600
PLAN = made_studies.plan(("nope", "rope"), ("copy", "language"), 2, contrast=[["nope", "rope"]])
VALUES = (
    "NULL", "0", "-1", "1", "40", "4611686018427387904", "1.5", "9e999", "'x'", "''", "X'00'",
    "X'ffffffff'", "CAST(X'ff' AS TEXT)", "'[1]'", "'{\"format\": 1}'", "'rope'", "'a:b'",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that is done, and one that was written before there were checksums."""
    folder = tmp_path_factory.mktemp("whole")
    made = made_studies.study(PLAN, failures=[("rope", 2)])
    written = Store(folder / "now")
    written.register(PLAN.digest, PLAN.text, {"torch": "2", "mine.txt": "0" * 64}, "on a Sunday")
    for record in made.records.values():
        written.add(record)
    written.close()
    (folder / "before").mkdir()
    before = folder / "before" / store.RESULTS
    before.write_bytes((folder / "now" / store.RESULTS).read_bytes())
    with closing(sqlite3.connect(before)) as file, file:
        file.execute("DROP TABLE checksums")
        file.execute("UPDATE about SET format = 1")
    with closing(sqlite3.connect(before)) as file:
        file.execute("VACUUM")
    return folder


def flips(data, seed):
    """Copies of the bytes with a bit flipped, some bytes drawn anew, or without their end."""
    draw = random.Random(seed)
    for _ in range(FLIPS):
        changed = bytearray(data)
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        yield bytes(changed)
    for _ in range(FLIPS // 10):
        size, place = draw.choice((1, 4, 64)), draw.randrange(len(data))
        yield data[:place] + draw.randbytes(size) + data[place + size :]
        yield data[: draw.randrange(len(data))]


def changes(path):
    """Statements that put each of the values into each of the columns, of one row or of all."""
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE sql > ''")]
        columns = [(t, row[1]) for t in tables for row in file.execute(f"PRAGMA table_info({t})")]
    for table, column in columns:
        for value in VALUES:
            for rows in ("", f" WHERE rowid = (SELECT max(rowid) FROM {table})"):
                yield f"UPDATE OR IGNORE {table} SET {column} = {value}{rows}"


def changed(path, tmp_path, statement):
    """A copy of the store after the statement; None where SQLite refuses it."""
    copy = tmp_path / "changed.db"
    copy.write_bytes(path.read_bytes())
    try:
        with closing(sqlite3.connect(copy)) as file, file:
            file.execute(statement)
    except sqlite3.IntegrityError:
        return None
    return copy


def attempted(call, *words):
    """Return the result of a call, or None after an error with our message."""
    said = ""
    try:
        return call(*words)
    except ValueError as error:
        kind, said = type(error).__module__, str(error)
    assert kind.startswith("posenc.lab.study")
    assert "\n" not in said
    return None


def same_or_refused(path, expected):
    """Test whether a store returns the written contents or raises an error with our message."""
    held = attempted(store.read, path)
    assert held in (None, expected)
    return held is not None


def test_a_flipped_bit_is_no_other_result(whole, tmp_path):
    path, copy = whole / "now" / store.RESULTS, tmp_path / "flipped.db"
    expected, outcomes = store.read(path), []
    for data in flips(path.read_bytes(), 1):
        copy.write_bytes(data)
        outcomes.append(same_or_refused(copy, expected))
    # some flips are within what is stored; most are in bytes that no page uses
    assert 0.1 < outcomes.count(False) / len(outcomes) < 1


@pytest.mark.slow
def test_a_value_of_another_type_is_no_other_result(whole, tmp_path):
    path = whole / "now" / store.RESULTS
    expected, refused = store.read(path), 0
    for statement in changes(path):
        if (copy := changed(path, tmp_path, statement)) is not None:
            refused += not same_or_refused(copy, expected)
    assert refused > 300


def all_that_is_said(path, capsys):
    """Make everything that is made of a store; what cannot be ends in a sentence."""
    for words in (
        ["--json", "--csv", "new.csv", "--out", "page"],
        ["--cells"],
    ):
        Path("new.csv").unlink(missing_ok=True)
        code = 0
        try:
            cli.main(["results", str(path), *map(str, words)])
        except SystemExit as stop:
            code = stop.code
        err = capsys.readouterr().err.splitlines()
        assert code in (0, 2)
        # With --json an error is a document
        one_line = ("error: ", "note: ", "new.csv: ", '{"error": ')
        assert all(line.startswith(one_line) for line in err), err
    attempted(explore.results, path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_commands_end_in_no_traceback(whole, tmp_path, monkeypatch, capsys, part):
    """A store without checksums, in which a changed number is not detected."""
    monkeypatch.chdir(tmp_path)
    path = whole / "before" / store.RESULTS
    for statement in some([*changes(path)][part::2], every=4):
        if (copy := changed(path, tmp_path, statement)) is not None:
            all_that_is_said(copy, capsys)


@pytest.mark.slow
def test_flipped_bits_of_a_store_without_checksums_end_in_no_traceback(whole, tmp_path):
    path, copy = whole / "before" / store.RESULTS, tmp_path / "flipped.db"
    for n, data in enumerate(flips(path.read_bytes(), 2)):
        copy.write_bytes(data)
        held = attempted(store.read, copy)
        if held is not None:
            assert all(export.rows(held))
        if held is not None and n % 5 == 0:
            attempted(analysis.analyse, held)


NONSENSE = [
    "UPDATE outcomes SET length = 9 WHERE rowid = 1",
    "DELETE FROM outcomes WHERE rowid = 1",
    "DELETE FROM outcomes WHERE length > 20",
    "DELETE FROM cells WHERE rowid = 1",
    "UPDATE outcomes SET kind = 'float32', data = zeroblob(4 * prompts) WHERE rowid = 1",
    "UPDATE outcomes SET kind = 'float32', data = zeroblob(4 * prompts)",
    "UPDATE outcomes SET prompts = 1, data = X'80' WHERE kind = 'bits' AND rowid < 9",
    "UPDATE outcomes SET prompts = 1, data = X'0000807F' WHERE kind = 'float32'",
    "UPDATE outcomes SET prompts = 1, data = X'0000C07F' WHERE kind = 'float32' AND rowid > 40",
    "UPDATE OR REPLACE outcomes SET protocol = 'forced' WHERE rowid < 20",
    "UPDATE OR REPLACE outcomes SET protocol = 'sliding'",
    "UPDATE cells SET failure = 'none' WHERE rowid < 3",
    "UPDATE cells SET losses = X'000000000000F07F'",
    "UPDATE cells SET label = 'a' || char(10) || 'b'",
    "UPDATE plans SET text = replace(text, 'nope', 'no.py:A')",
    "UPDATE plans SET text = replace(text, '20', '10')",
    "UPDATE plans SET text = 'x = ' || replace(hex(zeroblob(5000)), '0', '[')",
    "INSERT INTO deviations (what) VALUES (char(27) || '[2J')",
    "UPDATE outcomes SET prompts = 1, data = X'0000C07F' WHERE protocol = 'cropped'",
    "DELETE FROM outcomes WHERE protocol = 'cropped' AND rowid % 2",
    "UPDATE outcomes SET prompts = 1, data = X'00000000' WHERE protocol = 'cropped' AND rowid % 2",
    "DELETE FROM plans",
]


@pytest.mark.parametrize("statement", NONSENSE)
def test_what_no_study_has_written_ends_in_no_traceback(
    whole, tmp_path, monkeypatch, capsys, statement
):
    monkeypatch.chdir(tmp_path)
    for statements in ("", "DELETE FROM plans"):
        path = changed(whole / "before" / store.RESULTS, tmp_path, statement)
        assert path is not None
        if statements:
            with closing(sqlite3.connect(path)) as file, file:
                file.execute(statements)
        all_that_is_said(path, capsys)
