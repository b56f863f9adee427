"""A training run of a few steps for tests: deterministic, with checkpoints, optionally failing.

It is imported by the processes of a study, which find it by this name.
"""

import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

import torch

from posenc.lab.study import checkpoints
from posenc.lab.study.cell import Profile, Result
from posenc.lab.study.train import Progress, Stopped

TINY = Profile(width=8, heads=2, layers=1, steps=12, batch=4, warmup=2, prompts=9)
PLAN = {
    "hypothesis": "None beats any.",
    "tasks": ["copy"],
    "encodings": ["nope", "rope"],
    "profile": asdict(TINY),
    "seeds": 2,
    "trained": 10,
    "contrast": [["nope", "rope"]],
}


def run(cell, task, directory=None, stop=lambda: False, progress=lambda progress: None):
    """Train a small linear model by AdamW, with a checkpoint every 3 steps; return its result.

    With HELD=n in the environment, the run waits after n steps until `stop()` is true.
    """
    held = int(os.environ.get("HELD", "-1"))
    random = torch.Generator().manual_seed(cell.seed * 100 + len(cell.encoding))
    weight = torch.nn.Parameter(torch.randn(4, 4, generator=random))
    optimizer = torch.optim.AdamW([weight], lr=0.05)
    last = directory and checkpoints.latest(directory, cell.settings)
    losses = []
    if last:
        losses = list(last.state["losses"])
        weight.data.copy_(last.tensors["weight"])
        state = {name: last.tensors[name] for name in ("step", "exp_avg", "exp_avg_sq")}
        optimizer.load_state_dict(optimizer.state_dict() | {"state": {0: state}})

    def save():
        if directory is None:
            return
        tensors = {"weight": weight, **optimizer.state_dict()["state"].get(0, {})}
        state = {"losses": losses, "cell": cell.settings}
        if losses:
            checkpoints.save(directory, len(losses), tensors, state)

    for step in range(len(losses), cell.profile.steps):
        while step == held and not stop():
            time.sleep(0.01)
        if stop():
            save()
            raise Stopped
        batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(cell.seed * 1000 + step))
        loss = (batch @ weight - batch.flip(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        progress(Progress(step + 1, cell.profile.steps, losses[-1], 1e3, 0.0))
        if (step + 1) % 3 == 0:
            save()
    right = torch.rand(9, generator=torch.Generator().manual_seed(cell.seed)) < 1 / (1 + losses[-1])
    lengths = [n for n in (5, 10, 15, 20) if cell.seed <= 10_000 or n in cell.tested]
    outcomes = {("generated", n): right.roll(n) for n in lengths}
    return Result(outcomes, tuple(losses), 16, 0.001)


def dies_once(cell, task, directory=None, stop=lambda: False, progress=lambda progress: None):
    """Train as `run` does, but kill the first process that reaches step 7 of a run with seed 1."""

    def killed(far):
        progress(far)
        if (
            cell.seed == 1
            and far.step == 7
            and not (mark := Path(directory).parent / "died").exists()
        ):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return run(cell, task, directory, stop, killed)


def dies_always(cell, task, directory=None, stop=lambda: False, progress=lambda progress: None):
    """Train as `run` does, but kill every process that starts a run with RoPE and seed 1."""
    if cell.seed == 1 and cell.encoding == "rope":
        os.kill(os.getpid(), signal.SIGKILL)
    return run(cell, task, directory, stop, progress)


def diverges(cell, task, directory=None, stop=lambda: False, progress=lambda progress: None):
    """Train as `run` does, but raise ArithmeticError for RoPE and seed 2, as for a NaN loss."""
    if cell.seed == 2 and cell.encoding == "rope":
        raise ArithmeticError("the loss of step 5 is nan")
    return run(cell, task, directory, stop, progress)


def counted(cell, task, directory=None, stop=lambda: False, progress=lambda progress: None):
    """Train as `run` does, and append a line to a file for each trained step."""

    def said(far):
        with open(os.environ["COUNTED"], "a") as file:
            file.write(f"{cell.digest} {far.step}\n")
        progress(far)

    return run(cell, task, directory, stop, said)


def breaks(cell, task, directory=None, stop=lambda: False, progress=lambda progress: None):
    """Train as `run` does, but raise TypeError for RoPE and seed 1, as faulty code would."""
    if cell.seed == 1 and cell.encoding == "rope":
        raise TypeError("a tensor was expected")
    return run(cell, task, directory, stop, progress)


def kept(cell, task, directory=None, stop=None, progress=None, models=None):
    """Train as `run` does, and create an empty file in place of the saved model."""
    models.mkdir(exist_ok=True)
    (models / cell.digest).touch()
    return run(cell, task, directory, stop, progress)
