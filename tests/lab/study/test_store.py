"""The store against what was put in, files that are none, and its bytes read by hand."""

import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from refusals import refused

from posenc.lab.study import store
from posenc.lab.study.cell import Cell, Result
from posenc.lab.study.store import Outcome, Record, Store, StoreError, read

FIXTURE = Path(__file__).with_name("store-format-1.db")


def result(seed, prompts=21):
    random = torch.Generator().manual_seed(seed)
    right = torch.rand(prompts, generator=random) < 0.7
    outcomes = {("generated", n): right.roll(n) for n in (10, 20, 30)}
    outcomes |= {("sliding", 64): torch.rand(prompts, generator=random)}
    return Result(outcomes, (2.5, 1 / 3), 1000 + seed, 0.01 * seed)


CELLS = [Cell("copy", name, seed) for seed in (1, 2) for name in ("nope", "rope")]


def filled(folder, cells=CELLS):
    made = Store(folder)
    made.register("d" * 64, "hypothesis = 'none'", {"torch": "2"})
    for cell in cells:
        made.add(Record.of(cell, result(cell.seed)))
        made.clock(cell=cell.digest, step=0.25, host="here")
    return made


@pytest.mark.parametrize("prompts", [1, 7, 8, 9, 500])
def test_bits_come_back_and_their_mean_is_the_share_of_right_ones(prompts):
    right = torch.rand(prompts) < 0.3
    packed = Outcome.of(right)
    assert torch.equal(packed.values, right)
    assert len(packed.data) == (prompts + 7) // 8
    assert packed.mean == pytest.approx(right.double().mean().item())
    # by hand: the first prompt is the highest bit of the first byte
    by_hand = [bool(packed.data[n // 8] >> (7 - n % 8) & 1) for n in range(prompts)]
    assert by_hand == right.tolist()


def test_numbers_come_back_to_the_bit():
    bits = torch.tensor([0.1, float("nan"), float("inf"), -0.0])
    packed = Outcome.of(bits)
    assert packed.data == struct.pack("<4f", *bits.tolist())
    assert torch.equal(packed.values.view(torch.int32), bits.view(torch.int32))
    with refused(TypeError, "bool", "float32", "int64"):
        Outcome.of(torch.ones(2, dtype=torch.long))


def test_what_was_put_in_comes_back(tmp_path):
    filled(tmp_path).close()
    held = read(tmp_path)
    assert set(held.records) == {cell.digest for cell in CELLS}
    assert held.plans == [("d" * 64, "hypothesis = 'none'")]
    record = held.records[CELLS[0].digest]
    assert record.cell == CELLS[0]
    assert (record.losses, record.parameters, record.seconds) == ((2.5, 1 / 3), 1001, 0.25)
    for place, values in result(1).outcomes.items():
        assert torch.equal(record.outcomes[place].values, values)


def test_the_order_of_cells_and_of_runs_leaves_no_trace(tmp_path):
    filled(tmp_path / "a").close()
    other = filled(tmp_path / "b", CELLS[:0:-1])
    other.close()
    again = Store(tmp_path / "b")
    again.add(Record.of(CELLS[0], result(1)))
    again.close()
    one, two = (tmp_path / name / store.RESULTS for name in "ab")
    assert one.read_bytes() == two.read_bytes()
    assert read(one).digest == read(two).digest
    left = {path.name for path in (tmp_path / "b").iterdir()}
    assert left == {store.RESULTS, store.TIMES}


def test_the_digest_of_contents_sees_a_single_prompt(tmp_path):
    one, other = filled(tmp_path / "a", CELLS[:1]), Store(tmp_path / "b")
    changed = result(1)
    changed.outcomes["generated", 10][3] ^= True
    other.register("d" * 64, "hypothesis = 'none'", {"torch": "2"})
    other.add(Record.of(CELLS[0], changed))
    assert one.contents.digest != other.contents.digest


def test_a_plan_is_registered_with_all_it_depends_on_or_not_at_all(tmp_path, monkeypatch):
    made = Store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_fill", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.register("d" * 64, "", {"torch": "2"}, "after 3 cells: all")
    assert made.contents.plans == []
    assert made.contents.sources == {}
    made.register("d" * 64, "", {"torch": "2"}, "after 3 cells: all")
    assert made.contents.deviations == ["after 3 cells: all"]
    assert made.contents.sources == {"torch": "2"}


def test_a_cell_is_in_the_store_once(tmp_path):
    made = filled(tmp_path)
    with refused(sqlite3.IntegrityError, "UNIQUE"):
        made.add(Record.of(CELLS[0], result(1)))
    assert made.finished == {cell.digest for cell in CELLS}
    assert len(made.contents.records[CELLS[0].digest].outcomes) == 4


def test_a_running_study_can_be_read_and_is_no_less_than_a_finished_one(tmp_path):
    made = filled(tmp_path)
    running = read(tmp_path)
    made.close()
    assert running == read(tmp_path)


def test_what_a_killed_process_left_is_all_there(tmp_path):
    """A copy of the files at one moment equals the state after a kill."""
    made = filled(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "a").iterdir():
        (tmp_path / "b" / path.name).write_bytes(path.read_bytes())
    made.close()
    again = Store(tmp_path / "b")
    assert again.finished == {cell.digest for cell in CELLS}
    again.close()
    one, other = (tmp_path / name / store.RESULTS for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_the_log_of_a_lost_file_is_not_read_into_the_next(tmp_path):
    made = filled(tmp_path)
    log = (tmp_path / "running.db-wal").read_bytes()
    made.close()
    (tmp_path / store.RESULTS).unlink()
    (tmp_path / "running.db-wal").write_bytes(log)
    assert Store(tmp_path).finished == set()


def test_a_failure_is_kept_with_its_reason(tmp_path):
    made = Store(tmp_path)
    made.add(Record.of(CELLS[0], Result({}, (1.0, float("nan")), 7, 0.1)))
    made.add(Record(CELLS[1], None, (), "the loss of step 5 is nan", {}))
    made.close()
    kept = read(tmp_path).records
    assert kept[CELLS[0].digest].failure == "mean loss 2 of 2 is nan"
    assert kept[CELLS[0].digest].losses[0] == 1.0
    assert (kept[CELLS[1].digest].parameters, kept[CELLS[1].digest].outcomes) == (None, {})


def test_a_line_of_times_that_was_cut_is_left_out_and_the_next_is_whole(tmp_path):
    made = filled(tmp_path)
    path = tmp_path / store.TIMES
    path.write_bytes(path.read_bytes()[:-5])
    made.clock(cell="x", step=1.5)
    assert [line["cell"] for line in store.times(tmp_path)] == [
        *(cell.digest for cell in CELLS[:-1]),
        "x",
    ]


def test_a_store_of_format_1_is_read_by_this_version():
    """The file is in the repository, and stays as it was written."""
    held = read(FIXTURE)
    assert held.digest == "8c7aaaf79c5a348d11c39696d29b856d0ecc0b6c30a7d873a7b34d6869ea6c40"
    assert len(held.records) == 4


def test_a_running_store_of_format_1_goes_on(tmp_path):
    """The last cells are in the log of a store of an earlier version."""
    running, log = tmp_path / store.RUNNING, tmp_path / "running.db-wal"
    (tmp_path / "before").write_bytes(FIXTURE.read_bytes())
    with closing(sqlite3.connect(tmp_path / "before")) as file, file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("INSERT INTO deviations (what) VALUES ('in the log')")
        file.commit()
        log.write_bytes((tmp_path / "before-wal").read_bytes())
        running.write_bytes((tmp_path / "before").read_bytes())
    deviations = [*read(FIXTURE).deviations, "in the log"]
    assert read(tmp_path).deviations == deviations
    going_on = Store(tmp_path)
    cell = Cell("copy", "rope", 99)
    going_on.add(Record.of(cell, result(1)))
    earlier = {record.cell.digest for record in read(FIXTURE).records.values()}
    assert set(read(tmp_path).records) == {*earlier, cell.digest}
    going_on.close()
    held = read(tmp_path)
    assert (len(held.records), held.deviations) == (5, deviations)
    with closing(sqlite3.connect(tmp_path / store.RESULTS)) as file:
        summed = dict(file.execute("SELECT part, sha256 FROM checksums"))
    assert summed == held.checksums
    assert len(summed) == 6


def broken(tmp_path, kind):
    path = tmp_path / "results.db"
    filled(tmp_path).close()
    if kind == "text":
        path.write_text("not a database at all " * 100)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-9000])
    else:
        with sqlite3.connect(path) as file:
            file.execute(kind)
        file.close()
    return path


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text", "file is not a database"),
        ("empty", "another database"),
        ("cut", "damaged"),
        ("PRAGMA application_id = 1", "another database"),
        ("UPDATE about SET format = 3", r"format 1 to 2, got 3\b"),
        ("UPDATE about SET format = 1", "other tables"),
        ("INSERT INTO about VALUES (1)", "got None"),
        ("DELETE FROM about", "got None"),
        ("CREATE TRIGGER t AFTER INSERT ON cells BEGIN SELECT 1; END", "other tables"),
        ("UPDATE outcomes SET data = X'00'", r"damaged: .* [0-9a-f]{16} at length 10"),
        ("UPDATE outcomes SET prompts = 'x'", "damaged"),
        ("UPDATE outcomes SET prompts = -5", "damaged"),
        ("UPDATE cells SET settings = '[]'", "damaged"),
        ("UPDATE cells SET settings = '{'", "damaged"),
        ("UPDATE cells SET losses = X'00'", "damaged"),
        ("UPDATE cells SET settings = replace(settings, 'copy', 'sort')", "has the settings of"),
    ],
)
def test_what_is_no_whole_store_is_refused_in_one_sentence(unchecked, tmp_path, kind, said):
    path = broken(tmp_path, kind)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=said) as raised:
        read(path)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == before


def test_a_store_that_is_not_there_is_said_and_none_is_made(tmp_path):
    with refused(StoreError, "results.db"):
        read(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_somebody_elses_store_is_read_without_a_right_to_write(tmp_path):
    filled(tmp_path).close()
    names = {path.name for path in tmp_path.iterdir()}
    (tmp_path / store.RESULTS).chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert len(read(tmp_path / store.RESULTS).records) == 4
        assert {path.name for path in tmp_path.iterdir()} == names
    finally:
        tmp_path.chmod(0o755)


MANY = """
import sys
from pathlib import Path
import torch
from posenc.lab.study import store
from posenc.lab.study.cell import Cell

folder, right = Path(sys.argv[1]), store.Outcome.of(torch.ones(500).bool())
outcomes = {(f"forced {n}", length): right for n in range(10) for length in range(10)}
made = store.Store(folder)
with store._transaction(made._file):
    for seed in range(1_000):
        cell = Cell("copy", "rope", seed)
        store._insert(made._file, store.Record(cell, 1, (0.5,) * 16, None, outcomes))
made.close()
calls = 0
def count(frame, event, function):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
held = store.read(folder)
shares = [one.mean for record in held.records.values() for one in record.outcomes.values()]
sys.setprofile(None)
print(len(shares), min(shares), calls)
"""


@pytest.mark.slow
def test_a_hundred_thousand_outcomes_are_read_by_few_calls_for_each(tmp_path):
    """Half a second by themselves, however busy the machine is: calls are counted, not seconds."""
    words = [sys.executable, "-c", MANY, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    read_rows, least, calls = map(float, done.stdout.split())
    assert (read_rows, least) == (100_000, 1)
    assert calls / read_rows < 20


def test_a_full_disk_is_said_and_what_was_stored_stays(tmp_path):
    made = filled(tmp_path)
    (pages,) = made._file.execute("PRAGMA page_count").fetchone()
    made._file.execute(f"PRAGMA max_page_count = {pages}")
    big = Result({("generated", n): torch.ones(50_000).bool() for n in range(9)}, (), 1, 0.1)
    with pytest.raises(OSError, match=r"full") as raised:
        made.add(Record.of(Cell("copy", "rope", 99), big))
    assert raised.value.filename == str(tmp_path / "running.db")
    made._file.execute("PRAGMA max_page_count = 1000000")
    made.close()
    assert set(read(tmp_path).records) == {cell.digest for cell in CELLS}
