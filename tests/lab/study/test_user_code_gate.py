"""Code that files name, against a module that leaves a mark where it runs."""

import json
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import pytest
import study_runner
from named_code import CODE, MINE, PROFILE, TASK, kept, ran, stored
from refusals import refused
from study_runner import TINY

import posenc
from posenc.commands import cli
from posenc.lab.study import (
    analysis,
    execute,
    store,
    train,
    user_code_gate,
)
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell
from posenc.lab.study.plan import Plan
from posenc.lab.study.saved_models import save_model
from posenc.lab.study.store import Store
from posenc.lab.study.tasks import TASKS
from posenc.lab.study.user_code_gate import CodeRefused


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with code in it, in which nothing has run."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)


def plan(**rest):
    content = {"tasks": ["copy"], "encodings": ["nope", MINE], "profile": asdict(PROFILE)}
    return Plan.of(content | {"seeds": 1} | rest)


def test_a_name_is_run_if_it_is_typed_and_spelled_as_the_file_spells_it():
    for allowed in ((), "mine.py:Other", ["./mine.py:Mine"]):
        with refused(CodeRefused, "theirs.db", "mine.py:Mine", "`--allow-code mine.py:Mine`"):
            user_code_gate.check_allowed(["rope", MINE], allowed, "theirs.db")
    user_code_gate.check_allowed(["rope", "copy", MINE], [TASK, MINE], "theirs.db")
    user_code_gate.check_allowed([MINE], MINE, "theirs.db")


def test_all_that_is_to_be_allowed_is_said_in_one_line_that_a_shell_reads():
    named = ["pkg.mod:A", "a b.py:B", "a\n.py:C"]
    with pytest.raises(CodeRefused) as raised:
        user_code_gate.check_allowed(named, (), "a plan")
    assert "\n" not in str(raised.value)
    assert "--allow-code 'a b.py:B' --allow-code pkg.mod:A`" in str(raised.value)


def test_code_of_another_digest_than_that_of_the_file_is_refused():
    digest = sha256(CODE.encode()).hexdigest()
    assert user_code_gate.digests(["rope", MINE, "pkg.mod:A", "gone.py:A"]) == {MINE: digest}
    user_code_gate.check_allowed([MINE], MINE, "theirs.db", {MINE: digest})
    with refused(CodeRefused, "mine.py"):
        user_code_gate.check_allowed([MINE], MINE, "theirs.db", {MINE: "f" * 64})


def test_a_store_whose_task_is_code_is_read_without_running_it():
    """A study writes the length that was trained; from a store without it none is looked up."""
    held = stored("odd", Cell(TASK, "rope", 1, profile=PROFILE))
    with refused(store.StoreError, "'mine.py:task'", "`trained`"):
        analysis.analyse(held)
    assert not ran()
    held = stored("theirs", Cell(TASK, "rope", 1, profile=PROFILE, trained=20))
    assert analysis.analyse(held).rows[0].trained == 20
    assert not ran()


def test_a_kept_model_is_loaded_with_allowed_code_of_the_same_digest():
    path = kept()
    with refused(CodeRefused, "mine.py"):
        posenc.lab.study.load(path)
    assert not ran()
    assert posenc.lab.study.load(path, allow_code=MINE).cell.encoding == MINE
    Path("mine.py").write_text(f"{CODE}\n# louder")
    with pytest.raises(CodeRefused, match="SHA-256"):
        posenc.lab.study.load(path, allow_code=MINE)


def test_a_kept_model_in_the_folder_of_a_study_runs_nothing_that_its_cell_does_not_name():
    """A file named like the model that is to be extended, with the content of another."""
    cell = Cell("copy", "rope", 1, profile=PROFILE, trained=8, tested=(8,), extend="pi 2")
    base = replace(cell, extend="")
    Path("theirs/models").mkdir(parents=True)
    kept().rename(f"theirs/models/{base.digest}.safetensors")
    with pytest.raises(CodeRefused, match="names code"):
        train.run(cell, TASKS["copy"], models=Path("theirs/models"))
    assert not ran()
    other = replace(base, seed=2)
    save_model(build(other, 104), other, TASKS["copy"], Path()).rename(
        f"theirs/models/{base.digest}.safetensors"
    )
    with refused(ValueError, "`seed`", 2, 1):
        train.run(cell, TASKS["copy"], models=Path("theirs/models"))


@pytest.mark.parametrize("named", [{}, {"tasks": [TASK], "encodings": ["rope"]}])
def test_a_plan_is_carried_out_with_allowed_code_alone(named):
    planned = plan(trained=8, tested=[8, 16], **named)
    (name,) = planned.code
    with refused(CodeRefused, name):
        execute.study(planned, Path("out"), runner=study_runner.run, start="fork")
    assert not ran()
    assert not Path("out").exists()
    ended = execute.study(
        planned, Path("out"), runner=study_runner.run, start="fork", allow_code=name, pilot=True
    )
    assert (ended.done, ran()) == (ended.of, True)


def command_lines():
    """Yield the command lines that read files which name code, and whether they are rejected."""
    encodings = ("rope", MINE)
    stored("theirs", *(Cell("copy", name, 1, profile=PROFILE, trained=20) for name in encodings))
    stored("odd", Cell(TASK, MINE, 1, profile=PROFILE))
    kept()
    planned = plan(tasks=["copy", TASK])
    Path("plan.toml").write_text(planned.text)
    resumed = Store(Path("begun"))
    resumed.register(planned.digest, planned.text, {})
    resumed.close()
    for folder, rejected in (("theirs", False), ("odd", True)):
        for extra in ([], ["--out", folder], ["--json"]):
            yield rejected, ["results", folder, *extra]
        yield False, ["results", folder, "--csv", f"{folder}.csv"]
        yield False, ["results", folder, "--cells"]
        yield rejected, ["explore", "--study", folder, "--no-browser", "--force"]
    yield True, ["study", "--resume", "begun"]
    yield True, ["study", "plan.toml"]


@pytest.mark.slow
def test_no_command_runs_what_a_file_names(capsys):
    for rejected, typed in command_lines():
        code = 0
        try:
            cli.main(typed)
        except SystemExit as stop:
            code = stop.code
        last = capsys.readouterr().err.splitlines()[-1:]
        assert (code, ran()) == (2 if rejected else 0, False), (typed, last)
        assert not rejected or last[0].startswith(("error: ", '{"error": '))


def test_a_command_runs_what_is_typed_again_and_says_so_where_a_study_is_to_go_on(
    monkeypatch, capsys
):
    whole = execute.study

    def quickly(*words, **named):
        return whole(*words, **named | {"runner": study_runner.breaks, "start": "fork"})

    monkeypatch.setattr(execute, "study", quickly)
    study_runner.run(Cell("copy", "rope", 1, profile=TINY), None)
    Path("plan.toml").write_text(plan(encodings=["rope", MINE]).text)
    for words in (["plan.toml", "--pilot", "--out", "out"], ["--resume", "out"]):
        with pytest.raises(SystemExit):
            cli.main(["study", *words, "--allow-code", MINE])
        said = capsys.readouterr().err
        assert f"to continue: posenc study --resume out --allow-code {MINE}\n" in said
    assert ran()
    with pytest.raises(SystemExit):
        cli.main(["study", "--resume", "out", "--allow-code", "mine"])
    said = capsys.readouterr().err
    assert (
        "`--allow-code` must name a file and a class, as in my_module.py:Mine, got 'mine'" in said
    )


@pytest.mark.slow
def test_what_is_typed_to_a_study_needs_no_typing_again(monkeypatch, capsys):
    whole = execute.study
    quickly = lambda *words, **named: whole(  # noqa: E731
        *words, **named | {"runner": study_runner.run, "start": "fork"}
    )
    monkeypatch.setattr(execute, "study", quickly)
    study_runner.run(Cell("copy", "rope", 1, profile=TINY), None)
    cli.main(["study", "--task", TASK, "--encoding", MINE, "--out", "out", "--json"])
    assert json.loads(capsys.readouterr().out)["done"] == 1
    assert ran()
