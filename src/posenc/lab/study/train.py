"""Training and evaluation of one run, with checkpoints from which it can resume.

AdamW (β 0.9, 0.98; weight decay 0.1, on matrices only), gradient norms clipped to 1, a linear
warm-up and then half a cosine down to a tenth. The texts and random positions of step n depend on
(seed, n) alone, so every encoding reads the same texts, and a stopped run resumes with the same
bits.
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
from posenc.lab.study.context_extension import extend_rope, longer_texts
from posenc.lab.study.controls import draw_positions, mask_of
from posenc.lab.study.evaluate import evaluate
from posenc.lab.study.model import Transformer
from posenc.lab.study.saved_models import load, save_model
from posenc.lab.study.tasks import Batch, Task

SAVED_EVERY = 20.0  # seconds between two checkpoints
AFTER = 2**20  # added to the data seed for training after an extension, which reads other texts
MEAN_OF = 50  # number of steps whose mean loss is recorded


class Stopped(Exception):
    """Raised when a run stops on request, after it has written a checkpoint."""


class Diverged(ArithmeticError):
    """Raised when the loss is NaN or infinite."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run: steps done, all steps, last loss, tokens a second, seconds left."""

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
    """Train and evaluate the model of one training run, given as a `Cell`.

    - `cell`: the cell
    - `task`: its task
    - `directory`: folder of its checkpoints, from the last of which it resumes; None: none
    - `stop`: function that returns True to stop the run
    - `progress`: function that receives a `Progress` after each 50 steps
    - `models`: folder in which the trained model is saved; None: it is not saved
    - `device`: torch device for training; evaluation runs on the CPU

    Raises `Stopped` after a checkpoint once `stop()` is true, and `Diverged` if the loss is not
    finite.
    """
    task, base = task.at(cell.trained, cell.tested), replace(cell, extend="")
    earlier = None if models is None or not cell.extend else models / f"{base.digest}.safetensors"
    if earlier is not None and earlier.is_file():
        model, losses, seconds = _saved(earlier, base), [], 0.0
    else:
        model = build(base, len(task.vocabulary), task.both_ways)
        losses, seconds = fit(model.to(device), base, task, directory, stop, progress)
    return result_of(model.to("cpu"), cell, task, losses, seconds, models)


def _saved(path: Path, cell: Cell) -> Transformer:
    """Load a run's saved model. The only user code that may be executed is the run's encoding."""
    saved = load(path, allow_code=cell.encoding)
    there, here = (checkpoints.flat(one.settings) for one in (saved.cell, cell))
    if other := checkpoints.differences(there, here):
        raise checkpoints.Refused(
            f"{path} is the saved model of another training run: {other}. Delete this file to"
            " train from the beginning."
        )
    return saved.model


def result_of(
    model: Transformer,
    cell: Cell,
    task: Task,
    losses: list[float],
    seconds: float,
    models: Path | None = None,
) -> Result:
    """Apply a run's context extension, if any, to its model; save and evaluate the model."""
    # For an extended model, the losses of the training after the extension are stored
    if cell.extend:
        model, losses = extend(model, cell, task)
    if models is not None:
        save_model(model, cell, task, models)
    return Result(
        outcomes=evaluate(model, cell, task),
        losses=means(losses),
        parameters=sum(weight.numel() for weight in model.parameters()),
        seconds=seconds,
    )


def means(losses: list[float]) -> tuple[float, ...]:
    """Return the mean loss of each group of 50 steps, which is stored instead of all losses."""
    parts = [losses[n : n + MEAN_OF] for n in range(0, len(losses), MEAN_OF)]
    return tuple(sum(part) / len(part) for part in parts)


def extend(model: Transformer, cell: Cell, task: Task) -> tuple[Transformer, list[float]]:
    """Extend the RoPE of a trained model, and train the model further if the run requires it.

    Returns the model, and the losses of the further training.

    If the cell has further steps, the model is trained on texts that are `factor` times as long, at
    a tenth of the learning rate.
    """
    method, factor, steps = EXTEND.fullmatch(cell.extend).groups()  # type: ignore[union-attr]
    model = extend_rope(model, method, float(factor), task.longest)
    longer = longer_texts(cell, task)
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
    """Train a model on its device; return the losses of all steps, and the median step time."""
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
    """Run one training step; return the loss before the update, and the number of tokens read.

    - `step`: number of the step, from 0

    Raises `Diverged` if the loss is not finite, without changing the weights.
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
    """Return the mean cross-entropy of a batch's answers in nats, on the model's device."""
    batch = batch.to(next(model.parameters()).device)
    pos = draw_positions(cell, batch.inputs.shape, random)
    hidden = model.hidden(
        batch.inputs,
        None if pos is None else pos.to(batch.inputs.device),
        mask_of(cell, task, batch),
        points=batch.points,
    )
    return cross_entropy(model.head(hidden[batch.answers]), batch.targets[batch.answers])


def rate(step: int, profile: Profile) -> float:
    """Return the learning rate of a step: linear warm-up, then cosine decay to a tenth."""
    if step < profile.warmup:
        return profile.rate * (step + 1) / profile.warmup
    done = (step - profile.warmup) / max(1, profile.steps - profile.warmup)
    return profile.rate * (0.1 + 0.45 * (1 + cos(pi * done)))


def adamw(model: Transformer, profile: Profile) -> torch.optim.AdamW:
    """Make the AdamW optimiser; only linear layers outside of encodings have weight decay."""
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
    # `load_state_dict` moves the moments to the device of their weights
    optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})
    return list(last.state["losses"])


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)}
