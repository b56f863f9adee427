"""The board of the arena, against stores of a tiny suite, some of them forged."""

import json
import os
import shutil
import sqlite3
from dataclasses import replace

import made_suite
import pytest
import torch
from made_suite import SUITE, run_suite
from refusals import refused

from posenc.lab.study import analysis, environment, evaluate, store, train
from posenc.lab.study.store import Outcome, Store, StoreError
from posenc.lab.study.user_code_gate import CodeRefused
from studies.arena import board, training
from studies.arena.board import BoardError


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena")
    run_suite(folder, runner=train.run)
    return folder


@pytest.fixture
def copied(done, tmp_path):
    return shutil.copytree(done, tmp_path / "arena")


def rewritten(folder, change=lambda record: record, **changes):
    """Rewrite a store with right checksums, as a forger could."""
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


def here(cells, progress=lambda *_: None):
    """Train cells in this process, as another one would, and grade what they predict."""
    return [training.graded(cell, training.train_again(cell)) for cell in cells]


def answered(record, right):
    """Forge the graded answers of a cell: every `right`th is right."""
    outcomes = dict(record.outcomes)
    for place, x in record.outcomes.items():
        if x.kind == store.BITS:
            outcomes[place] = Outcome.of(torch.arange(x.prompts) % right == 0)
    return replace(record, outcomes=outcomes)


def is_entry(record):
    return record.cell.name == "entry" and record.cell.seed <= 10_000


@pytest.fixture(scope="module")
def honest(done):
    """A row of a board, of stores that came out equal."""
    stores = board.verify(done, SUITE)
    return board.board_row(SUITE, stores, board.repeat(stores, [], train_again=here))


def spread(row, value):
    """The same row with another difference between the seeds of its baselines."""
    row = json.loads(json.dumps(row))
    for study in row["studies"].values():
        for one in study["rows"]:
            one["spread"] = dict.fromkeys(one["curve"], value)
    return row


def test_whole_stores_are_verified_repeated_and_added(done, honest, tmp_path):
    assert honest["repeat"]["processor"] == environment.processor()
    assert [one["equal"] for one in honest["repeat"]["cells"]] == [True] * 4
    page = board.add(tmp_path / "board", SUITE, honest)
    (held,) = board.read(tmp_path / "board/tiny.json", SUITE)
    assert held == json.loads(json.dumps(honest))
    assert page.read_text("utf-8") == board.as_page(SUITE, [held])
    with pytest.raises(BoardError, match="must not have these outcomes yet"):
        board.add(tmp_path / "board", SUITE, honest)


def test_the_stores_alone_choose_what_is_trained_again(done, copied):
    """Two of the entry's cells beyond L among four; other outcomes, another choice."""
    stores = board.verify(done, SUITE)
    chosen = board.to_repeat(stores)
    assert chosen == board.to_repeat(board.verify(copied, SUITE))
    cells = [stores[study].records[digest].cell for study, digest in chosen]
    assert len({*chosen}) == 4
    for cell in cells[:2]:
        assert cell.name == "entry"
        assert max(cell.tested) > 10
    assert len({*board.to_repeat(stores, 40)}) == 40
    others = set()
    for number in range(6):
        rewritten(copied / "near", lambda one: one, sources={"note": str(number)})
        others.add(tuple(board.to_repeat({n: store.read(copied / n) for n in SUITE.studies})))
    assert len(others) > 1


def test_a_row_says_what_its_stores_hold(done, honest):
    stores, row = board.verify(done, SUITE), honest
    found = analysis.analyse(stores["near"])
    rows = {one["name"]: one for one in row["studies"]["near"]["rows"]}
    names = ["nope", "rope", "rope in a window", "entry"]
    assert [*rows] == [*names, *(f"{name} cropped" for name in names)]
    for one in found.rows:
        said = rows[one.encoding]
        assert said["area"]["value"] == one.value.value
        assert said["curve"] == {str(n): mean for n, mean in one.means.items()}
        assert said["spread"] == {str(n): max(seeds) - min(seeds) for n, seeds in one.curve.items()}
        held = [x for x in stores["near"].records.values() if x.cell.name == one.encoding]
        assert {said["parameters"]} == {x.parameters for x in held}
        assert said["milliseconds"] == 1_000 * one.seconds
        assert said["rate"] == one.rate in (1e-3, 2e-3, 4e-3)
        assert said["untrained"] == [
            seed for seed, share in zip(one.seeds, one.curve[10], strict=True) if share < 0.95
        ]
    page = board.as_page(SUITE, [row])
    assert row["studies"]["near"]["hypothesis"] == found.hypothesis
    assert f"- alibi, hypothesis, as registered: *{found.hypothesis}*" in page
    assert f"| alibi | entry | {100 * rows['entry']['area']['value']:.1f} [" in page
    assert f" | {rows['entry']['parameters']:,} | {rows['entry']['milliseconds']:.1f} | " in page
    assert row["made_by"]["processor"] == environment.processor()
    assert all(contents.digest[:12] in page for contents in stores.values())


def test_a_flipped_bit_is_found_by_its_checksum(copied):
    near = copied / "near"
    held = store.read(near)
    cell = next(name for name, one in held.records.items() if one.cell.name == "entry")
    data = bytearray((near / store.RESULTS).read_bytes())
    parts = (outcome.data for outcome in held.records[cell].outcomes.values())
    data[data.index(next(part for part in parts if data.count(part) == 1))] ^= 128
    (near / store.RESULTS).write_bytes(bytes(data))
    with pytest.raises(StoreError, match="damaged"):
        board.verify(copied, SUITE)


def test_one_trained_cell_does_not_cover_the_forged_ones(copied):
    """All cells of the entry but one are forged, with checksums that are right."""
    kept = next(x for x, one in store.read(copied / "near").records.items() if is_entry(one))
    for study in SUITE.studies:
        rewritten(
            copied / study,
            lambda one: answered(one, 1) if is_entry(one) and one.cell.digest != kept else one,
        )
    with pytest.raises(BoardError, match="equal outcomes with the same code"):
        board.repeat(board.verify(copied, SUITE), [], train_again=here)


def test_equal_outcomes_with_other_losses_are_refused(copied):
    """Losses of another run, off in their last bit."""

    def other(record):
        losses = tuple(torch.tensor(record.losses, dtype=torch.float64).mul(1 + 1e-15).tolist())
        assert losses != record.losses
        return replace(record, losses=losses)

    for study in SUITE.studies:
        rewritten(copied / study, lambda one: other(one) if is_entry(one) else one)
    with pytest.raises(BoardError, match="equal losses with the same code"):
        board.repeat(board.verify(copied, SUITE), [], train_again=here)


def test_what_cannot_be_trained_again_is_refused(done):
    def breaks(cells, progress):
        raise training.TrainingFailed("copy entry, seed 1 could not be trained again")

    with pytest.raises(BoardError, match="could not be trained again"):
        board.repeat(board.verify(done, SUITE), [], train_again=breaks)


CLAIMS = [{"processor": "an abacus"}, {"device": "cuda, a GPU"}]


@pytest.mark.slow
@pytest.mark.parametrize("sources", CLAIMS)
@pytest.mark.parametrize("second", [1, 2], ids=["all right", "seeds far apart"])
def test_a_claim_of_another_machine_hides_no_forgery(copied, honest, sources, second):
    """All right is stored; with `second` 2, the other seed is far off, to widen its own row."""
    for study in SUITE.studies:
        rewritten(
            copied / study,
            lambda one: (
                answered(one, 1 if one.cell.seed == 1 else second) if is_entry(one) else one
            ),
            sources=sources,
        )
    stores = board.verify(copied, SUITE)
    with pytest.raises(BoardError, match="the board has no baselines at n = "):
        board.repeat(stores, [], train_again=here)
    with pytest.raises(BoardError, match="must differ by at most"):
        board.repeat(stores, [honest], train_again=here)


@pytest.mark.parametrize("sources", CLAIMS)
def test_elsewhere_a_cell_may_differ_as_seeds_of_the_board_do(copied, honest, sources):
    """One of nine prompts is another, at one length; sums are formed in another order there."""

    def nearly(record):
        if not is_entry(record):
            return record
        values = record.outcomes["generated", 20].values
        values[0] = ~values[0]
        return replace(record, outcomes={**record.outcomes, ("generated", 20): Outcome.of(values)})

    for study in SUITE.studies:
        rewritten(copied / study, nearly, sources=sources)
    stores = board.verify(copied, SUITE)
    again = board.repeat(stores, [spread(honest, 0.12)], train_again=here)
    assert [one.equal for one in again.cells[:2]] == [False, False]
    assert [one.apart for one in again.cells[:2]] == [pytest.approx(1 / 9)] * 2
    with refused(BoardError, "0.1111", 20, "0.1000"):
        board.repeat(stores, [spread(honest, 0.1)], train_again=here)
    page = board.as_page(SUITE, [board.board_row(SUITE, stores, again)])
    assert next(iter(sources.values())) in page


def test_rows_that_were_not_equal_give_no_tolerance(honest):
    row = spread(honest, 0.5)
    assert board._spread([row], "near", "copy")[20] == 0.5
    row["repeat"]["cells"][3]["equal"] = False
    assert board._spread([row], "near", "copy") == {}


def test_only_the_spread_of_baselines_that_read_all_gives_tolerance(honest):
    """Seeds of an entry at either rate, or of a cropped baseline, may lie far apart."""
    row = spread(honest, 0.1)
    near = row["studies"]["near"]["rows"]
    near.append({**near[-1], "name": "entry 1e-3"})
    for one in near:
        if one["name"] not in ("nope", "rope", "rope in a window"):
            one["spread"] = dict.fromkeys(one["curve"], 0.9)
    assert board._spread([row], "near", "copy")[20] == 0.1


def test_a_store_without_checksums_is_refused(copied):
    """Format 1, as an earlier version wrote it, and as a forger may."""
    with sqlite3.connect(copied / "near" / store.RESULTS) as file:
        file.execute("DROP TABLE checksums")
        file.execute("UPDATE about SET format = 1")
    assert not store.read(copied / "near").checked
    with refused(BoardError, 1):
        board.verify(copied, SUITE)


CHEAT = """
import os
from pathlib import Path
import torch
from posenc import ALiBi
from posenc.lab.study import evaluate

Path(f"imported-{os.getpid()}-{torch.get_num_threads()}").touch()
graded = evaluate._right

def right(*words):
    return {name: torch.ones_like(x) for name, x in graded(*words).items()}

evaluate._right = right
evaluate._grade = lambda task, batch, outputs: right(task, batch, outputs)

class Mine(ALiBi):
    pass
"""


@pytest.mark.slow
def test_an_entry_that_replaces_the_grader_is_refused(tmp_path, monkeypatch):
    """The entry's process stores 100 % after a few steps; ours grades and never imports it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CHEAT)
    named, kept = "mine.py:Mine", (evaluate._right, evaluate._grade)
    try:
        run_suite(tmp_path / "arena", named, runner=train.run, allow_code=named)
    finally:
        evaluate._right, evaluate._grade = kept
    for mark in tmp_path.glob("imported-*"):
        mark.unlink()
    stores = board.verify(tmp_path / "arena", SUITE, named)
    entries = [one for one in stores["near"].records.values() if is_entry(one)]
    assert all(one.outcomes["generated", 20].mean == 1 for one in entries)
    with pytest.raises(BoardError, match="equal outcomes with the same code"):
        board.repeat(stores, [])
    (mark,) = tmp_path.glob("imported-*")
    _, process, thread = mark.name.split("-")
    assert process != str(os.getpid())
    assert thread == "1"


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
    refused("near must have 8 cells, got 7")
    rewritten(near, lambda one: None if one.cell.digest == trial else one)
    refused(f"near .*got too few for {records[trial].cell.name}")
    rewritten(near, deviations=["after 3 cells: `torch` is '1' there and '2' here"])
    refused("near .*got after 3 cells: `torch`")
    rewritten(near, sources={"code": "0" * 64})
    refused("other must be made with .*: `code`")
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
    with pytest.raises(BoardError, match="must have only cells of its plan"):
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
    with pytest.raises(BoardError, match="must have outcomes of all lengths and prompts"):
        board.verify(copied, SUITE)


def test_another_plan_is_refused(done, tmp_path):
    longer = {name: {**study, "seeds": 3} for name, study in SUITE.studies.items()}
    with pytest.raises(BoardError, match="near must have the plan of the suite for alibi"):
        board.verify(done, made_suite.Suite("tiny", longer))
    run_suite(tmp_path, "kerple")
    shutil.rmtree(tmp_path / "other")
    shutil.copytree(done / "other", tmp_path / "other")
    with pytest.raises(BoardError, match="other must have the plan of the suite for kerple"):
        board.verify(tmp_path, SUITE)


@pytest.mark.slow
def test_code_of_an_entry_is_run_where_it_is_allowed_and_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text("from posenc import ALiBi\n\nclass Mine(ALiBi):\n    pass\n")
    named = "mine.py:Mine"
    run_suite(tmp_path / "arena", named, runner=train.run, allow_code=named)
    with refused(CodeRefused, "mine.py"):
        board.verify(tmp_path / "arena", SUITE)
    stores = board.verify(tmp_path / "arena", SUITE, named)
    row = board.board_row(SUITE, stores, board.repeat(stores, []))
    assert row["entry_digest"] == stores["near"].sources[named]
    mine.write_text(mine.read_text() + "\n__import__('pathlib').Path('ran').touch()\n")
    with pytest.raises(CodeRefused, match="names code"):
        board.verify(tmp_path / "arena", SUITE)
    with pytest.raises(CodeRefused, match="SHA-256"):
        board.verify(tmp_path / "arena", SUITE, named)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_board_of_this_suite_is_refused(tmp_path):
    path = tmp_path / "tiny.json"
    assert board.read(path, SUITE) == []
    row = f'{{"suite_digest": "{SUITE.digest}", "rows": [%s]}}'
    rows = [row % one for one in ("1", "[]", "{}", '{"made_by": 1, "repeat": 2}')]
    for text in ("{", "[]", '{"suite_digest": 1}', '{"suite_digest": 1, "rows": {}}', *rows):
        path.write_text(text)
        with pytest.raises(BoardError, match="must be a board"):
            board.read(path, SUITE)
    path.write_text('{"suite_digest": "00", "rows": []}')
    with refused(BoardError, "'00'"):
        board.read(path, SUITE)


def test_names_draw_nothing_on_the_page():
    assert board._plain("a|b<script>\x1b") == "a\\|b&lt;script>\\x1b"


@pytest.mark.repository
@pytest.mark.parametrize("name", ["v2", "v2-gpu"])
def test_the_board_that_is_kept_is_as_its_rows_say(name):
    folder = made_suite.ROOT / "studies/board"
    suite = made_suite.Suite.named(name)
    rows = board.read(folder / f"{name}.json", suite)
    assert (folder / f"{name}.json").read_text("utf-8") == board.as_json(suite, rows)
    assert (folder / f"{name}.md").read_text("utf-8") == board.as_page(suite, rows)


def test_numbers_are_those_of_bits_and_of_shares():
    assert board._number(0.5, "share", "+") == "+50.0"
    assert board._number(2.34567, "bits") == "2.346"
    assert board._number(None, "bits") == ""


def test_the_board_of_a_draft_says_so():
    named = made_suite.Suite.named()
    assert named.draft
    assert f"{named.name} is a draft" in board.as_page(named, [])
