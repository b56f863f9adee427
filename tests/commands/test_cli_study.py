"""`posenc study` and `posenc results`, as a person types them."""

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import study_runner
from study_runner import TINY

from posenc.commands import cli
from posenc.lab.study import analysis, execute, store, tasks, train
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell
from posenc.lab.study.kept import keep
from posenc.lab.study.lock import locked
from posenc.lab.study.plan import Plan

FIXTURE = Path(__file__).parents[1] / "lab/study/store-format-1.db"
PLAN = {
    "hypothesis": "None beats any.",
    "tasks": ["copy"],
    "encodings": ["nope", "rope"],
    "profile": asdict(TINY),
    "seeds": 2,
    "trained": 10,
    "contrast": [["nope", "rope"]],
}


@pytest.fixture
def posenc(monkeypatch, capsys, tmp_path):
    """posenc("results", "out") -> (exit code, stdout, stderr), in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words):
        try:
            cli.main([str(word) for word in words])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def fast(monkeypatch):
    """Studies with a runner of a few steps, in processes that are forked."""
    whole = execute.study

    def study(*words, **named):
        return whole(*words, **named | {"runner": study_runner.run, "start": "fork"})

    monkeypatch.setattr(execute, "study", study)
    study_runner.run(Plan.of(PLAN).cells()[0], None)


@pytest.fixture
def out(posenc, fast):
    """A study that is done, in the folder `out`."""
    Path("plan.toml").write_text(Plan.of(PLAN).text)
    code, said, err = posenc("study", "plan.toml", "--out", "out")
    assert (code, "Traceback" in err) == (0, False)
    return said


def test_a_study_prints_its_table_with_hypothesis_hash_and_stamp(out):
    assert "hypothesis, as registered: None beats any." in out
    where = f"learning rate {TINY.rate:g}, {TINY.steps} steps, 2 seeds"
    assert f"outcomes hold over L…2L, L = 10, {where}" in out
    assert Plan.of(PLAN).digest in out
    assert "4 of 4 cells" in out
    assert "copy generated: texts all right, %" in out
    assert "2 seeds: no ranking claims" in out
    assert "nope − rope" in out
    assert "undertrained: nope, rope" in " ".join(out.split())


def test_results_print_the_same_table_again(out, posenc):
    assert posenc("results", "out")[:2] == (0, out)
    assert posenc("results", "out/results.db")[1] == out
    assert posenc("results", "--from", "out")[1] == out


def test_a_finished_study_is_not_run_again(out, posenc, monkeypatch):
    before = Path("out/results.db").read_bytes()
    monkeypatch.setattr(execute.Processes, "start", lambda *_: 1 / 0)
    assert posenc("study", "--resume", "out")[:2] == (0, out)
    assert Path("out/results.db").read_bytes() == before


def test_a_study_leaves_its_page_beside_the_store(out):
    held = json.loads(Path("out/results.json").read_text())
    assert held["registered"] == Plan.of(PLAN).digest
    assert held["starts"][0]["command"] == "posenc study plan.toml --out out"
    assert "None beats any." in Path("out/index.html").read_text()


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


def test_without_the_extra_for_pages_a_study_says_how_to_get_one(posenc, fast, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "posenc.show.report.page", raising=False)
    monkeypatch.delattr("posenc.show.report.page", raising=False)
    Path("plan.toml").write_text(Plan.of(PLAN).text)
    code, _, err = posenc("study", "plan.toml", "--out", "out")
    assert (code, Path("out/index.html").exists()) == (0, False)
    assert "no page: it needs the extra `report` (jinja2 is missing)" in err


def test_without_the_extra_for_studies_nothing_is_trained(posenc, fast, monkeypatch):
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(execute.Processes, "start", lambda *_: 1 / 0)
    code, _, err = posenc("study", "--out", "out")
    assert (code, Path("out/results.db").exists()) == (2, False)
    wanted = 'error: this needs the extra `study`: python -m pip install -e ".[study]" in '
    assert err.splitlines()[-1].startswith(wanted)


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
    code, _, err = posenc("results", "out", "--csv", "all.csv")
    assert (code, err) == (2, "error: all.csv exists already: name a new file.\n")


def test_numbers_and_failures_are_exported_too(posenc):
    shutil.copy(FIXTURE, "results.db")
    assert posenc("results", "results.db", "--csv", "x.csv")[0] == 0
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["results"], "name one store: the folder of a study"),
        (["results", "a", "--from", "b"], "name one store"),
        (["results", "nowhere"], "nowhere does not exist: name the folder of a study"),
        (["results", __file__], "is no store of a study, or damaged"),
        (["study", "--task", "copi"], "no task is called 'copi': did you mean copy?"),
        (["study", "--encoding", "ropy"], "encodings: ropy: "),
        (["study", "--profile", "tiny"], "profile: 'tiny' is not known: known are smoke, cpu, gpu"),
        (["study", "--seeds", "0"], "seeds: must be a whole number from 1"),
        (["study", "nowhere.toml"], "nowhere.toml cannot be read: No such file"),
        (["study", "nowhere.toml", "--seeds", "3"], "leave out what else you named of it"),
        (["study", "--resume", "x", "--seeds", "3"], "name nothing beside it"),
        (["study", "--resume", "nowhere"], "does not exist: name the folder of a study"),
        (["study", "--workers", "0"], "Must be >= 1"),
        (["study", "--max-minutes", "-1"], "Must be > 0"),
        (["study", "--task", "language", "--text", "gone.txt"], "gone.txt cannot be read"),
        (["study", "--encoding", "gone.py:Mine"], "there is no file gone.py"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(posenc, fast, words, said):
    code, out, err = posenc(*words)
    assert (code, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


def test_options_make_the_plan_and_nothing_is_needed(posenc, monkeypatch):
    made = []

    def study(plan, folder, *_, **__):
        made.append((plan, folder))
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "study", study)
    code, _, err = posenc("study")
    assert code == 130
    assert f"to go on: posenc study --resume {made[0][1]}" in err
    posenc("study", "--task", "copy", "sort", "--encoding", "rope", "--profile", "cpu")
    (smoke, folder), (cpu, _) = made
    assert (smoke.tasks, smoke.seeds, smoke.smoke) == (("copy",), 1, True)
    assert smoke.labels == ("nope", "rope", "sinusoidal", "alibi", "t5")
    assert folder == Path(f"study-{smoke.digest[:8]}")
    assert (cpu.tasks, cpu.labels, cpu.seeds) == (("copy", "sort"), ("rope",), 6)


def test_what_is_not_done_is_named_and_the_exit_code_says_so(posenc, fast, monkeypatch):
    missing = [(Plan.of(PLAN).cells()[0], "TypeError: no tensor")]

    def ended(plan, folder, *_, **__):
        store.Store(folder).close()
        return execute.Ended(3, 4, missing, None)

    monkeypatch.setattr(execute, "study", ended)
    Path("plan.toml").write_text(Plan.of(PLAN).text)
    code, _, err = posenc("study", "plan.toml", "--out", "out")
    assert code == 1
    assert "not done: copy nope, seed 1: TypeError: no tensor" in err
    assert "to go on: posenc study --resume out" in err
    assert err.splitlines()[-1] == "error: 1 of 4 cells could not be done."


REFUSED = """
import sys
from posenc.commands import cli
try:
    cli.main(["study", "plan.toml", "--out", "."])
except SystemExit as stop:
    print(stop.code, "torch" in sys.modules)
"""


def test_a_second_process_is_refused_before_torch_is_loaded(posenc, tmp_path):
    """Within a second, that is: torch alone takes longer to load."""
    with locked(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", REFUSED], capture_output=True, text=True, cwd=tmp_path
        )
    assert done.stdout == "2 False\n"
    assert "is in use by process" in done.stderr


@pytest.fixture
def trained_here(monkeypatch):
    """Studies that train as they are, in this process."""

    class Here:
        free, busy = 1, 0

        def __init__(self, runner, cells):
            self.done, self.place = [], (runner, cells)

        def start(self, cell):
            event = execute.run_cell(cell, *self.place, lambda: False, lambda progress: None)
            self.done.append(event)
            self.busy = 1

        def wait(self, seconds):
            events, self.done, self.busy = self.done, [], 0
            return events

        def stop(self):
            pass

        close = stop

    whole = execute.study
    monkeypatch.setattr(
        execute, "study", lambda *words, **named: whole(*words, **named | {"engine": Here})
    )


@pytest.mark.parametrize(
    ("task", "encodings", "trained", "protocols", "unit"),
    [
        ("masked", ("rope", "learned"), 8, {"apart"}, "apart: bits per word, less is better"),
        ("sentences", ("rope", "learned"), None, {"forced"}, "forced: sentences all right, %"),
        ("images", ("axial-rope", "nope"), None, {"forced"}, "forced: pictures all right, %"),
    ],
)
def test_texts_and_pictures_that_are_read_both_ways(
    posenc, trained_here, task, encodings, trained, protocols, unit
):
    """A few steps of training, on files of one's own; the store is read by another command."""
    import numpy

    felt = (("good", "well "), ("bad", "ill "))
    lines = [f"{felt[n % 2][0]}\t{felt[n % 2][1] * (18 + n % 5)}" for n in range(600)]
    Path("sentences.tsv").write_text("\n".join(lines))
    pictures = numpy.random.default_rng(0).integers(0, 16, (40, 4, 4))
    numpy.savez("pictures.npz", pictures=pictures, labels=numpy.arange(40) % 2)
    content = PLAN | {"tasks": [task], "encodings": [*encodings], "seeds": 1, "contrast": []}
    content |= {"profile": asdict(TINY) | {"width": 16, "steps": 3, "prompts": 4}}
    del content["trained"]
    content |= {"trained": trained, "tested": [trained, 2 * trained]} if trained else {}
    content |= {"sentences": {"text": "sentences.tsv"}, "images": {"images": "pictures.npz"}}.get(
        task, {}
    )
    Path("plan.toml").write_text(Plan.of(content).text)
    code, said, err = posenc("study", "plan.toml", "--out", "out")
    assert code == 0, err
    assert unit in said
    held = store.read(Path("out")).records
    assert {record.failure for record in held.values()} == {None}
    assert {name for record in held.values() for name, _ in record.outcomes} >= protocols
    assert posenc("results", "--from", "out")[1] == said


def test_without_scikit_learn_the_digits_say_how_to_get_it(posenc, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    code, _, err = posenc("study", "--task", "images", "--out", "out")
    assert code == 2
    assert "give pictures of your own" in err
    assert 'python -m pip install -e ".[images]" in ' in err


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
    code, said, _ = posenc("study", "plan.toml", "--out", "out")
    assert code == 0
    assert "over tasks copy, sort, L…2L" in said
    assert "interquartile mean" in said
    held = json.loads(posenc("results", "out", "--json")[1])["overall"]
    assert [(one["encoding"], one["runs"]) for one in held] == [("nope", 4), ("rope", 4)]
    assert "Over all tasks" in Path("out/index.html").read_text()


def test_whether_properties_foretell_the_outcomes_is_asked(posenc, fast, monkeypatch):
    monkeypatch.setattr(analysis, "RANGE", 0.0)  # twelve steps train nothing
    names = ["nope", "rope", "p-rope", "alibi", "kerple", "sinusoidal"]
    Path("plan.toml").write_text(Plan.of(PLAN | {"encodings": names}).text)
    posenc("study", "plan.toml", "--out", "out")
    code, said, _ = posenc("results", "out", "--properties")
    assert (code, "Of 6 encodings of 4 families" in said) == (0, True)
    assert "decaying" in said
    (held,) = json.loads(posenc("results", "out", "--properties", "--json")[1])["properties"]
    assert held["encodings"] == names
    assert "not told from chance" in said or held["p"] < 0.05
    assert "near-doubles among them count twice" in said
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


@pytest.mark.slow
def test_the_whole_way_with_training(posenc, tmp_path):
    """The command as it is, its processes started from nothing, with every kind of encoding."""
    content = {"tasks": ["copy"], "encodings": ["nope", "rope", "alibi"], "seeds": 1}
    content["profile"] = asdict(TINY) | {"width": 16, "steps": 60, "prompts": 20}
    Path("plan.toml").write_text(Plan.of(content).text)
    code, out, err = posenc("study", "plan.toml", "--out", "out")
    assert code == 0, err
    assert "1 seeds: no ranking claims" in out
    held = store.read(Path("out")).records
    cell = execute.resolved(Plan.of(content))[1]
    alone = train.run(cell, execute.tasks.find("copy"))
    assert held[cell.digest].losses == alone.losses
    for place, values in alone.outcomes.items():
        assert held[cell.digest].outcomes[place].values.equal(values)
