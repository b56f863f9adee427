"""User code that creates a file when it runs, and stores and saved models that name this code."""

from dataclasses import replace
from pathlib import Path

import torch
from study_runner import TINY

from posenc.lab.study import store
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell
from posenc.lab.study.saved_models import save_model
from posenc.lab.study.store import Outcome, Record, Store
from posenc.lab.study.tasks import TASKS

CODE = """
from dataclasses import replace
from pathlib import Path
from posenc import RoPE
from posenc.lab.study.tasks import TASKS

Path("ran").touch()
task = replace(TASKS["copy"], name="mine.py:task")

class Mine(RoPE):
    def __init__(self, dim):
        super().__init__(dim)
"""
MINE, TASK = "mine.py:Mine", "mine.py:task"
PROFILE = replace(TINY, width=16)


def ran():
    return Path("ran").exists()


def stored(folder, *cells):
    """Write a store that contains a finished run of each cell, and return its contents."""
    right, written = Outcome.of(torch.ones(9).bool()), Store(Path(folder))
    for cell in cells:
        places = {("generated", n): right for n in (10, 20, 30, 40)}
        written.add(Record(cell, 1, (0.5,), None, places))
    written.close()
    return store.read(Path(folder))


def kept(**changes):
    """Save a model whose file names user code, without running that code; return the path."""
    cell = Cell("copy", "rope", 1, profile=PROFILE, trained=8)
    model = build(cell, len(TASKS["copy"].vocabulary))
    named = replace(cell, **{"encoding": MINE, **changes})
    return save_model(model, named, TASKS["copy"], Path("theirs/models"))
