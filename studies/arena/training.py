"""Repetition of training runs in a separate process, which alone imports an entry's code.

That process writes the predictions of its models as tensors, in a safetensors file for each cell.
The grading process reads these files, which are data, so the code of an entry cannot change its own
grades. A process is not a sandbox: run the code of strangers in a container.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from posenc.lab.study import execute, tasks, train
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell, Result
from posenc.lab.study.evaluate import grade, predict
from posenc.lab.study.store import Record
from posenc.support.text import printable

KEY = "posenc"  # key of the metadata of a file
Progress = Callable[[int, int, int], None]  # cell, step, steps


class TrainingFailed(RuntimeError):
    """Raised if a training run could not be repeated; the message has the reason."""


@dataclass(frozen=True)
class Predictions:
    """The outputs of a trained model on all test texts of its run, and its training losses."""

    outputs: dict[str, Tensor]
    losses: tuple[float, ...]
    parameters: int | None
    seconds: float | None  # median time of a step
    failure: str | None  # reason of a failed training

    def save(self, path: Path) -> None:
        """Write a safetensors file."""
        from safetensors.torch import save_file

        about = [self.losses, self.parameters, self.seconds, self.failure]
        outputs = {name: x.contiguous() for name, x in self.outputs.items()}
        save_file(outputs, path, {KEY: json.dumps(about)})

    @classmethod
    def read(cls, path: Path) -> "Predictions":
        """Read a file that `save` has written. Raises ValueError for any other file."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                losses, parameters, seconds, failure = json.loads(file.metadata()[KEY])
                outputs = {name: file.get_tensor(name) for name in file.keys()}
            losses = tuple(map(float, losses))
        except (SafetensorError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{path.name} must have predictions of `save`: {error}") from None
        return cls(outputs, losses, parameters, seconds, failure)


def train_again(cell: Cell, progress: Callable[[int, int], None] = lambda *_: None) -> Predictions:
    """Repeat a training run in this process, and return its predictions."""
    task = tasks.find(cell.task, execute.file_of(cell)).at(cell.trained, cell.tested)
    model = build(cell, len(task.vocabulary), task.both_ways)
    try:
        losses, seconds = train.fit(
            model, cell, task, progress=lambda now: progress(now.step, now.steps)
        )
    except ArithmeticError as error:
        return Predictions({}, (), None, None, str(error))
    parameters = sum(weight.numel() for weight in model.parameters())
    return Predictions(predict(model, cell, task), train.means(losses), parameters, seconds, None)


def graded(cell: Cell, predictions: Predictions) -> Record:
    """Grade predictions, and return a record. Raises ValueError if they are of another run."""
    if predictions.failure is not None:
        return Record(cell, None, (), predictions.failure, {})
    task = tasks.find(cell.task, execute.file_of(cell)).at(cell.trained, cell.tested)
    outcomes = grade(predictions.outputs, cell, task)
    parameters, seconds = predictions.parameters or 0, predictions.seconds or 0.0
    return Record.of(cell, Result(outcomes, predictions.losses, parameters, seconds))


def train_separately(cells: Sequence[Cell], progress: Progress = lambda *_: None) -> list[Record]:
    """Repeat training runs in another process, and grade the predictions in this process.

    Raises TrainingFailed if the process ends early or writes invalid files.
    """
    with TemporaryDirectory() as folder:
        jobs = [{"settings": x.settings, "label": x.label, "source": x.source} for x in cells]
        words = [sys.executable, "-P", __file__, folder]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(jobs))
            process.stdin.close()
            for line in process.stdout:
                words = line.split()
                if len(words) == 3 and all(x.isdecimal() and len(x) < 10 for x in words):
                    progress(*map(int, words))
        records = []
        for place, cell in enumerate(cells):
            try:
                records.append(graded(cell, Predictions.read(_file(folder, place))))
            except (OSError, ValueError) as error:
                why = printable(" ".join(str(error).split()), 200)
                raise TrainingFailed(
                    f"{cell.task} {cell.name}, seed {cell.seed} could not be trained again (exit"
                    f" status {process.returncode}): {why}"
                ) from None
        return records


def _file(folder: str, place: int) -> Path:
    return Path(folder) / f"{place}.safetensors"


def main(folder: str, jobs: Sequence[dict[str, Any]]) -> None:
    """Repeat training runs, and write their predictions into a folder."""
    torch.set_num_threads(1)  # as in the first training, so that bits can be equal
    for place, job in enumerate(jobs):
        cell = Cell.of(job["settings"], job["label"], job["source"])

        def report(step: int, steps: int, place: int = place) -> None:
            print(place, step, steps, flush=True)

        train_again(cell, report).save(_file(folder, place))


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin))
