"""The board of the arena, against stores of a tiny suite, some of them forged."""

import json
import shutil
from dataclasses import replace
from random import Random

import made_suite
import pytest
import study_runner
import torch
from made_suite import SUITE, run_suite

from posenc.core.threads import threads
from posenc.lab.arena import board
from posenc.lab.arena.board import BoardError
from posenc.lab.study import analysis, origin, store
from posenc.lab.study.own_code import CodeRefused
from posenc.lab.study.store import Outcome, Store, StoreError


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena")
    run_suite(folder)
    return folder


@pytest.fixture
def copied(done, tmp_path):
    return shutil.copytree(done, tmp_path / "arena")


def rewritten(folder, change=lambda record: record, **changes):
    """Write a store anew, with checksums that are right: what a forger would do."""
    held = store.read(folder)
    (folder / store.RESULTS).unlink()
    writer = Store(folder)
    for digest, text in held.plans:
        writer.register(digest, text, {**held.sources, **changes.get("sources", {})})
    for deviation in changes.get("deviations", ()):
        writer.register(*held.plans[-1], {}, deviation)
    for record in held.records.values():
        if (kept := change(record)) is not None:
            writer.add(kept)
    writer.close()


def seed_of(stores, study, cell):
    """A number that draws this cell, by drawing as the board says it does."""
    everything = [(name, x) for name in sorted(stores) for x in sorted(stores[name].records)]
    return next(n for n in range(10_000) if Random(n).choice(everything) == (study, cell))


def turned(record):
    """All answers the other way round."""
    data = {place: Outcome.of(~x.values) for place, x in record.outcomes.items()}
    return replace(record, outcomes=data)


def test_whole_stores_are_verified_repeated_and_added(done, tmp_path):
    stores = board.verify(done, SUITE)
    again = board.repeat(stores, 7, study_runner.run)
    assert again.equal
    assert again.processor == origin.processor()
    row = board.board_row(SUITE, stores, again)
    page = board.add(tmp_path / "board", SUITE, row)
    (held,) = board.read(tmp_path / "board/tiny.json", SUITE)
    assert held == json.loads(json.dumps(row))
    assert page.read_text("utf-8") == board.as_page(SUITE, [held])
    with pytest.raises(BoardError, match="has these outcomes already"):
        board.add(tmp_path / "board", SUITE, row)


def test_a_row_says_what_its_stores_hold(done):
    stores = board.verify(done, SUITE)
    row = board.board_row(SUITE, stores, board.repeat(stores, 3, study_runner.run))
    found = analysis.analyse(stores["near"])
    rows = {one["name"]: one for one in row["studies"]["near"]["rows"]}
    assert [*rows] == ["nope", "rope", "rope in a window", "entry"]
    for one in found.rows:
        said = rows[one.encoding]
        assert said["area"]["value"] == one.value.value
        assert said["curve"] == {str(n): mean for n, mean in one.means.items()}
        assert said["rate"] == one.rate in (1e-3, 2e-3, 4e-3)
        assert said["untrained"] == [
            seed for seed, share in zip(one.seeds, one.curve[10], strict=True) if share < 0.95
        ]
    page = board.as_page(SUITE, [row])
    assert f"| alibi | entry | {100 * rows['entry']['area']['value']:.1f} [" in page
    assert row["made_by"]["processor"] == origin.processor()
    assert all(contents.digest[:12] in page for contents in stores.values())


@pytest.mark.parametrize("forge", ["bit", "checked", "kept"])
def test_an_outcome_that_was_changed_is_found(copied, forge):
    """By its checksum; by training the cell again, where that was made to fit."""
    near = copied / "near"
    held = store.read(near)
    cell = next(name for name, one in held.records.items() if one.cell.name == "entry")
    if forge == "bit":
        data = bytearray((near / store.RESULTS).read_bytes())
        place = data.rindex(held.records[cell].outcomes["generated", 20].data)
        data[place] ^= 128
        (near / store.RESULTS).write_bytes(bytes(data))
        with pytest.raises(StoreError, match="damaged"):
            board.verify(copied, SUITE)
        return
    rewritten(near, lambda one: turned(one) if one.cell.digest == cell else one)
    stores = board.verify(copied, SUITE)
    draw = seed_of(stores, "near", cell)
    if forge == "checked":
        with pytest.raises(BoardError, match="the same code on the same processor: the store is"):
            board.repeat(stores, draw, study_runner.run)
    else:
        with pytest.raises(BoardError, match="could not be trained again: TypeError: a tensor"):
            board.repeat(stores, draw, breaks)


def breaks(*words, **named):
    raise TypeError("a tensor was expected")


def test_elsewhere_a_cell_may_differ_as_its_seeds_do_and_no_more(copied):
    """On another processor, whose sums are formed in another order."""
    near = copied / "near"
    held = store.read(near)
    entries = [one for one in held.records.values()
               if one.cell.name == "entry" and one.cell.seed <= 10_000]  # fmt: skip
    cell, twin = (one.cell.digest for one in entries)
    other = {"processor": "an abacus"}

    def nearly(record):
        """One prompt of one length is another; the other seed is far away."""
        if record.cell.digest != cell:
            return turned(record) if record.cell.digest == twin else record
        values = record.outcomes["generated", 20].values
        values[0] = ~values[0]
        return replace(record, outcomes={**record.outcomes, ("generated", 20): Outcome.of(values)})

    for study in SUITE.studies:
        rewritten(copied / study, nearly, sources=other)
    stores = board.verify(copied, SUITE)
    draw = seed_of(stores, "near", cell)
    again = board.repeat(stores, draw, study_runner.run)
    assert not again.equal
    assert abs(again.again - again.stored) == pytest.approx(1 / 36)
    rewritten(near, lambda one: turned(held.records[cell]) if one.cell.digest == cell else one)
    with pytest.raises(BoardError, match=r"farther apart than .* the store is refused"):
        board.repeat(board.verify(copied, SUITE), draw, study_runner.run)


def test_a_cell_is_trained_again_with_one_thread_as_it_was(done):
    """Several would form its sums in another order."""
    seen = []

    def runner(*words):
        seen.append(torch.get_num_threads())
        return study_runner.run(*words)

    with threads(2):
        board.repeat(board.verify(done, SUITE), 3, runner)
        assert (seen, torch.get_num_threads()) == ([1], 2)


def test_what_a_gpu_trained_is_not_held_to_the_bits_of_a_cpu(copied):
    near = copied / "near"
    held = store.read(near)
    cell = next(x for x, one in held.records.items() if one.cell.name == "entry")

    def nearly(record):
        if record.cell.digest != cell:
            return record
        values = record.outcomes["generated", 20].values
        values[:] = values.roll(1)
        return replace(record, outcomes={**record.outcomes, ("generated", 20): Outcome.of(values)})

    for study in SUITE.studies:
        rewritten(copied / study, nearly, sources={"device": "cuda, a GPU"})
    stores = board.verify(copied, SUITE)
    again = board.repeat(stores, seed_of(stores, "near", cell), study_runner.run)
    assert not again.equal
    assert again.again == again.stored
    page = board.as_page(SUITE, [board.board_row(SUITE, stores, again)])
    assert f"| {origin.processor()}, trained on cuda, a GPU |" in page


def test_what_is_not_whole_or_departs_is_refused(copied):
    near = copied / "near"
    records = store.read(near).records
    last = next(name for name, one in records.items() if one.cell.seed == 2)
    trial = next(name for name, one in records.items() if one.cell.seed > 10_000)
    kept = shutil.copytree(near, copied / "kept")

    def refused(said):
        with pytest.raises(BoardError, match=said):
            board.verify(copied, SUITE)
        shutil.rmtree(near)
        shutil.copytree(kept, near)

    rewritten(near, lambda one: None if one.cell.digest == last else one)
    refused("near has 7 of 8 cells: the same `posenc arena` goes on")
    rewritten(near, lambda one: None if one.cell.digest == trial else one)
    refused(f"near lacks trials of the rate of {records[trial].cell.name}")
    rewritten(near, deviations=["after 3 cells: `torch` is '1' there and '2' here"])
    refused("near departs from its plan: after 3 cells: `torch`")
    rewritten(near, sources={"code": "0" * 64})
    refused("other was made otherwise than the other studies: `code`")
    shutil.rmtree(copied / "other")
    with pytest.raises(StoreError, match="does not exist"):
        board.verify(copied, SUITE)


def test_cells_that_no_plan_has_are_refused(copied):
    """One of all cells is drawn: thousands of cheap ones would keep the draw from the rest."""
    held = store.read(copied / "near")
    record = next(iter(held.records.values()))
    cheap = replace(record.cell.profile, steps=1)
    writer = Store(copied / "near")
    writer.add(replace(record, cell=replace(record.cell, profile=cheap)))
    writer.close()
    with pytest.raises(BoardError, match="which is no cell of its plan: leave it out"):
        board.verify(copied, SUITE)


@pytest.mark.parametrize("kept", ["lengths", "prompts"])
def test_outcomes_that_were_left_out_are_found(copied, kept):
    """A curve that ends where the entry fails, or few prompts."""

    def fewer(record):
        outcomes = {
            place: x if kept == "lengths" else Outcome.of(x.values[:2])
            for place, x in record.outcomes.items()
            if kept == "prompts" or place[1] <= 10
        }
        return replace(record, outcomes=outcomes)

    rewritten(copied / "near", fewer)
    with pytest.raises(BoardError, match="lacks outcomes of some lengths or prompts"):
        board.verify(copied, SUITE)


def test_another_plan_is_refused(done, tmp_path):
    longer = {name: {**study, "seeds": 3} for name, study in SUITE.studies.items()}
    with pytest.raises(BoardError, match="near is of another plan than suite tiny has for alibi"):
        board.verify(done, made_suite.Suite("tiny", longer))
    run_suite(tmp_path, "kerple")
    shutil.rmtree(tmp_path / "other")
    shutil.copytree(done / "other", tmp_path / "other")
    with pytest.raises(BoardError, match="other is of another plan than suite tiny has for kerple"):
        board.verify(tmp_path, SUITE)


def test_code_of_an_entry_is_run_where_it_is_allowed_and_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text("from posenc import ALiBi\n\nclass Mine(ALiBi):\n    pass\n")
    named = "mine.py:Mine"
    run_suite(tmp_path / "arena", named, allow_code=named)
    with pytest.raises(CodeRefused, match=r"names code, mine\.py:Mine"):
        board.verify(tmp_path / "arena", SUITE)
    stores = board.verify(tmp_path / "arena", SUITE, named)
    row = board.board_row(SUITE, stores, board.repeat(stores, 1, study_runner.run))
    assert row["entry_digest"] == stores["near"].sources[named]
    mine.write_text(mine.read_text() + "\n__import__('pathlib').Path('ran').touch()\n")
    with pytest.raises(CodeRefused, match="names code"):
        board.verify(tmp_path / "arena", SUITE)
    with pytest.raises(CodeRefused, match="is not the code"):
        board.verify(tmp_path / "arena", SUITE, named)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_board_of_this_suite_is_refused(tmp_path):
    path = tmp_path / "tiny.json"
    assert board.read(path, SUITE) == []
    row = f'{{"suite_digest": "{SUITE.digest}", "rows": [%s]}}'
    rows = [row % one for one in ("1", "[]", "{}", '{"made_by": 1, "repeat": 2}')]
    for text in ("{", "[]", '{"suite_digest": 1}', '{"suite_digest": 1, "rows": {}}', *rows):
        path.write_text(text)
        with pytest.raises(BoardError, match="is no board"):
            board.read(path, SUITE)
    path.write_text('{"suite_digest": "00", "rows": []}')
    with pytest.raises(BoardError, match="is the board of another suite, '00'"):
        board.read(path, SUITE)


def test_names_draw_nothing_on_the_page():
    assert board._plain("a|b<script>\x1b") == "a\\|b&lt;script>\\x1b"


@pytest.mark.repository
def test_the_board_that_is_kept_is_as_its_rows_say():
    folder = made_suite.ROOT / "studies/board"
    suite = made_suite.Suite.named()
    rows = board.read(folder / "v1.json", suite)
    assert (folder / "v1.json").read_text("utf-8") == board.as_json(suite, rows)
    assert (folder / "v1.md").read_text("utf-8") == board.as_page(suite, rows)


def test_numbers_are_those_of_bits_and_of_shares():
    assert board._number(0.5, "share", "+") == "+50.0"
    assert board._number(2.34567, "bits") == "2.346"
    assert board._number(None, "bits") == ""
