"""The command `posenc arena` on a suite of one tiny study, in an empty folder.

Import the fixtures into a test file, by the names that end with `_fixture`.
"""

from pathlib import Path

import pytest
from made_suite import TOML

from posenc.commands import cli
from posenc.lab.arena import suite
from posenc.lab.study import execute, train

MINE = """from pathlib import Path
import os
from posenc import ALiBi

class Mine(ALiBi):
    def __init__(self, heads):
        Path(f"made-{os.getpid()}").touch()
        super().__init__(heads)
"""


@pytest.fixture(name="typed")
def typed_fixture(monkeypatch, capsys, tmp_path):
    """Run a command line in an empty folder: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(main, *words):
        try:
            main([str(word) for word in words])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return (code, *capsys.readouterr())

    return run


@pytest.fixture(name="arena")
def arena_fixture(typed):
    return lambda *words: typed(cli.main, "arena", *words)


@pytest.fixture(name="tiny")
def tiny_fixture(arena, monkeypatch, tmp_path):
    """A suite of one small study, in an empty folder with code of one's own."""
    (tmp_path / "suites").mkdir()
    Path("suites/tiny.toml").write_text(TOML)
    Path("mine.py").write_text(MINE)
    monkeypatch.setattr(suite, "FOLDER", tmp_path / "suites")
    whole = execute.study

    def study(*words, **named):
        return whole(*words, **named | {"runner": train.run, "start": "fork"})

    monkeypatch.setattr(execute, "study", study)
    return arena
