"""Train one cell, from a checkpoint where there is one, and test it far beyond its length.

AdamW (β 0.9, 0.98; decay 0.1 of matrices alone), gradients of norm ≤ 1, a linear warm-up and then
half a cosine down to a tenth. The texts of step n come from (seed, n) alone, as do random
positions, so that every encoding reads the same ones, and a run goes on where it was stopped.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import cos, isfinite, pi
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from posenc.lab.study import checkpoints
from posenc.lab.study.build import build
from posenc.lab.study.cell import EXTEND, Cell, Profile, Result
from posenc.lab.study.controls import draw_positions, mask_of, oracle_targets
from posenc.lab.study.evaluate import evaluate
from posenc.lab.study.extended import extended, longer_texts
from posenc.lab.study.kept import keep, load
from posenc.lab.study.model import Transformer
from posenc.lab.study.tasks import Batch, Task

SAVED_EVERY = 20.0  # seconds
AFTER = 2**20  # added to the seed of the data for recalibration, which are others
MEAN_OF = 50  # steps whose mean loss is recorded


class Stopped(Exception):
    """A run was asked to stop, and has written a checkpoint."""


class Diverged(ArithmeticError):
    """The loss is not a number any more, or infinite."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run: steps done of all, the last loss, tokens a second, seconds left."""

    step: int
    steps: int
    loss: float
    speed: float
    left: float


def run(
    cell: Cell,
    task: Task,
    directory: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[Progress], None] = lambda progress: None,
    models: Path | None = None,
    device: str = "cpu",
) -> Result:
    """Train and evaluate. Checkpoints go to `directory`, and the run goes on from the last of them.

    With `models`, the trained model is kept in that folder: see `posenc.lab.study.kept`. It is
    trained on `device`, and tested on the CPU.

    Raises `Stopped` after a checkpoint once `stop()` is true, `Diverged` where the loss is lost.
    """
    task, base = task.at(cell.trained, cell.tested), replace(cell, extend="")
    earlier = None if models is None or not cell.extend else models / f"{base.digest}.safetensors"
    if earlier is not None and earlier.is_file():
        model, losses, seconds = _kept(earlier, base), [], 0.0
    else:
        model = build(base, len(task.vocabulary), task.both_ways)
        losses, seconds = fit(model.to(device), base, task, directory, stop, progress)
    return result_of(model.to("cpu"), cell, task, losses, seconds, models)


def _kept(path: Path, cell: Cell) -> Transformer:
    """Load the model of this cell that is kept in a file, which runs no code but the cell's."""
    kept = load(path, allow_code=cell.encoding)
    there, asked = (checkpoints.flat(one.settings) for one in (kept.cell, cell))
    if other := checkpoints.differences(there, asked):
        raise checkpoints.Refused(
            f"{path} is the model of another run: {other}. Delete it to train from the beginning."
        )
    return kept.model


def result_of(
    model: Transformer,
    cell: Cell,
    task: Task,
    losses: list[float],
    seconds: float,
    models: Path | None = None,
) -> Result:
    """Extend a trained model if the cell says so, keep it in the folder `models`, evaluate it."""
    # The stored losses are those after the extension
    if cell.extend:
        model, losses = extend(model, cell, task)
    if models is not None:
        keep(model, cell, task, models)
    return Result(
        outcomes=evaluate(model, cell, task),
        losses=means(losses),
        parameters=sum(weight.numel() for weight in model.parameters()),
        seconds=seconds,
    )


def means(losses: list[float]) -> tuple[float, ...]:
    """The mean loss of each 50 steps, as it is stored."""
    parts = [losses[n : n + MEAN_OF] for n in range(0, len(losses), MEAN_OF)]
    return tuple(sum(part) / len(part) for part in parts)


def extend(model: Transformer, cell: Cell, task: Task) -> tuple[Transformer, list[float]]:
    """Stretch the RoPE of a model as the cell says; return it, and the losses if it trains on.

    It is recalibrated on texts that are `factor` times as long, at a tenth of the rate.
    """
    method, factor, steps = EXTEND.fullmatch(cell.extend).groups()  # type: ignore[union-attr]
    model, longer = extended(model, method, float(factor), task.longest), longer_texts(cell, task)
    if longer is None:
        return model, []
    profile = replace(cell.profile, steps=int(steps), rate=cell.profile.rate / 10, warmup=10)
    after = replace(cell, profile=profile, extend="", data_seed=cell.seed + AFTER)
    return model, fit(model, after, longer)[0]


def fit(
    model: Transformer,
    cell: Cell,
    task: Task,
    directory: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> tuple[list[float], float]:
    """Train a model on its device; return the losses of all steps, and the median time of one."""
    profile, optimizer = cell.profile, adamw(model, cell.profile)
    losses, times = _resumed(model, optimizer, cell, directory), []
    saved = time.monotonic()
    model.train()
    for step in range(len(losses), profile.steps):
        if stop():
            _save(model, optimizer, losses, cell, directory)
            raise Stopped
        begun = time.perf_counter()
        loss, tokens = take_step(step, model, optimizer, cell, task)
        losses.append(loss)
        times.append(time.perf_counter() - begun)
        if time.monotonic() - saved > SAVED_EVERY:
            _save(model, optimizer, losses, cell, directory)
            saved = time.monotonic()
        if (step + 1) % MEAN_OF == 0 or step + 1 == profile.steps:
            pace = median(times[-MEAN_OF:])
            speed, left = tokens / pace, pace * (profile.steps - step - 1)
            progress(Progress(step + 1, profile.steps, losses[-1], speed, left))
    _save(model, optimizer, losses, cell, directory)
    return losses, median(times) if times else 0.0


def take_step(
    step: int,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    cell: Cell,
    task: Task,
) -> tuple[float, int]:
    """Take one step of training, counted from 0; return the loss before it and the tokens read.

    Raises `Diverged` where the loss is not finite; the weights are left as they were.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate(step, cell.profile)
    seed = cell.seed if cell.data_seed is None else cell.data_seed
    batch = task.training(cell.profile.batch, Random(f"{task.name} {seed} {step}"))
    loss = loss_of(model, cell, task, batch, Random(f"positions {seed} {step}"))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    mean = loss.item()
    if not isfinite(mean):
        raise Diverged(f"the loss of step {step + 1} is {mean}")
    optimizer.step()
    return mean, batch.inputs.numel()


def loss_of(model: Transformer, cell: Cell, task: Task, batch: Batch, random: Random) -> Tensor:
    """Return the mean cross-entropy of the answers of a batch, nats, on the model's device."""
    batch = batch.to(next(model.parameters()).device)
    pos = draw_positions(cell, batch.inputs.shape, random)
    hidden = model.hidden(
        batch.inputs,
        None if pos is None else pos.to(batch.inputs.device),
        mask_of(cell, task, batch),
        oracle_targets=oracle_targets(cell, batch),
        points=batch.points,
    )
    return cross_entropy(model.head(hidden[batch.answers]), batch.targets[batch.answers])


def rate(step: int, profile: Profile) -> float:
    """The learning rate of a step: up in a line, then down along half a cosine to a tenth."""
    if step < profile.warmup:
        return profile.rate * (step + 1) / profile.warmup
    done = (step - profile.warmup) / max(1, profile.steps - profile.warmup)
    return profile.rate * (0.1 + 0.45 * (1 + cos(pi * done)))


def adamw(model: Transformer, profile: Profile) -> torch.optim.AdamW:
    """Make the optimiser: weights of linear maps decay, all others do not (norms, encodings …)."""
    maps = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Linear)}
    shared = {id(weight) for weight in model.shared.values()}
    weights = [*model.parameters()]
    decays = [weight for weight in weights if id(weight) in maps & shared]
    others = [weight for weight in weights if id(weight) not in maps & shared]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=profile.rate, betas=(0.9, 0.98), fused=True)


def _save(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    losses: list[float],
    cell: Cell,
    directory: Path | None,
) -> None:
    if directory is None:
        return
    tensors = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in moments.items()}
    tensors = dict(sorted(tensors.items()))
    checkpoints.save(directory, len(losses), tensors, {"cell": cell.settings, "losses": losses})


def _resumed(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    cell: Cell,
    directory: Path | None,
) -> list[float]:
    """Load the last checkpoint, if there is one; return the losses so far."""
    last = None if directory is None else checkpoints.latest(directory, cell.settings)
    if last is None:
        return []
    model.load_state_dict(_below(last.tensors, "model."))
    moments: dict[int, dict[str, Any]] = {}
    for name, value in _below(last.tensors, "optimizer.").items():
        number, _, moment = name.partition(".")
        moments.setdefault(int(number), {})[moment] = value
    # Moments go where their weights are
    optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})
    return list(last.state["losses"])


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)}
