"""An arena suite of two tiny studies, which `study_runner` runs in a second."""

from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import study_runner
from study_runner import TINY

from posenc.lab.arena.suite import ENTRY, Suite
from posenc.lab.study import execute

ROOT = Path(__file__).parents[2]
PROFILE = {name: value for name, value in asdict(TINY).items() if name != "rate"}
STUDY = {
    "hypothesis": "The entry copies more texts than RoPE does.",
    "tasks": ["copy"],
    "trained": 10,
    "tested": [5, 10, 15, 20],
    "rates": [1e-3, 2e-3, 4e-3],
    "rate_seeds": 1,
    "seeds": 2,
    "profile": PROFILE,
    "encodings": [
        "nope",
        "rope",
        {"name": "rope in a window", "encoding": "rope", "control": "window"},
    ],
    "contrast": [[ENTRY, "nope"], [ENTRY, "rope"]],
}
SUITE = Suite("tiny", {"near": STUDY, "other": STUDY | {"tasks": ["sort"]}})
TOML = """
draft = "It has no controls."

[studies.near]
tasks = ["copy"]
trained = 10
tested = [5, 10, 15, 20]
rates = [1e-3, 2e-3, 4e-3]
rate_seeds = 1
seeds = 2
profile = { width = 8, heads = 2, layers = 1, steps = 12, batch = 4, warmup = 2, prompts = 9 }
encodings = ["nope", "rope", { name = "rope in a window", encoding = "rope", control = "window" }]
contrast = [["entry", "nope"], ["entry", "rope"]]
"""


class Here:
    """Runs each training run at once, in this process."""

    free, busy = 1, 0

    def __init__(self, runner, cells, *_):
        self.runner, self.cells, self.waiting = runner, cells, []

    def start(self, cell):
        self.waiting.append(cell)
        self.free, self.busy = 0, 1

    def wait(self, seconds):
        self.free, self.busy = 1, 0
        cell = self.waiting.pop()
        ended = execute.run_cell(cell, self.runner, self.cells, lambda: False, lambda far: None)
        return [ended]

    def stop(self):
        pass

    close = stop


def run_suite(folder, entry="alibi", suite=SUITE, runner=study_runner.run, **rest):
    for name, plan in suite.plans(entry).items():
        with patch.object(execute, "Processes", Here):
            ended = execute.study(plan, folder / name, runner=runner, pilot=True, **rest)
        assert ended.done == ended.of
