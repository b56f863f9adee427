"""The command line in a test: what is printed, and the exit code."""

from pathlib import Path

import pytest
import study_runner
from study_runner import PLAN

from posenc.commands import cli
from posenc.lab.compare import comparison, portrait
from posenc.lab.study import execute
from posenc.lab.study.plan import Plan


@pytest.fixture
def posenc(monkeypatch, capsys, small, tmp_path):
    """posenc("show", "rope") -> (exit code, stdout, stderr), in an empty folder; all is small."""
    monkeypatch.setattr(comparison, "Settings", lambda: small)
    monkeypatch.setattr(portrait, "Settings", lambda: small)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        try:
            cli.main([str(word) for word in words])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def fast(monkeypatch):
    """Studies with a runner of a few steps, in processes that are forked."""
    monkeypatch.setenv("COLUMNS", "120")
    whole = execute.study

    def study(*words, **named):
        return whole(*words, **named | {"runner": study_runner.run, "start": "fork"})

    monkeypatch.setattr(execute, "study", study)
    study_runner.run(Plan.of(PLAN).cells()[0], None)


@pytest.fixture
def out(posenc, fast):
    """A study that is done, in the folder `out`."""
    Path("plan.toml").write_text(Plan.of(PLAN).text)
    code, said, err = posenc("study", "plan.toml", "--pilot", "--out", "out")
    assert (code, "Traceback" in err) == (0, False)
    return said
