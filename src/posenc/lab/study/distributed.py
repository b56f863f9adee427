"""Carry out a plan with all processes at each of its cells: one large run, on many devices.

    accelerate launch --multi_gpu -m posenc.lab.study.distributed PLAN.toml --out large
    accelerate launch --use_fsdp -m posenc.lab.study.distributed PLAN.toml --out large
    torchrun --nproc-per-node 8 -m posenc.lab.study.distributed PLAN.toml --out large --fsdp

The loop is that of `posenc study`, and each step's batch too: every process writes all of its texts
and reads its own. The loss is that of one process, to rounding, so the number of processes and the
way of sharing weights are registered beside the plan. Weights are whole in each process
(DistributedDataParallel), or, with FSDP, each holds a part of them (FSDP2, `fully_shard`). A
checkpoint holds them whole, as one process writes it, so it serves any number of processes; nodes
share the folder. The first process evaluates and writes the store.

Either launcher serves, for what they set in the environment is read and neither is imported.
Accelerate's own objects would do less: on CPUs they make DDP of FSDP, so that no test could hold
the two alike, and their checkpoints hold pickles, for as many processes as wrote them.
"""

import os
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from posenc.lab.study import execute, train
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell, Result
from posenc.lab.study.checkpoints import Refused
from posenc.lab.study.controls import draw_positions
from posenc.lab.study.execute import CELLS, Event, Executor, Runner, run_cell
from posenc.lab.study.lock import Locked
from posenc.lab.study.model import Transformer
from posenc.lab.study.own_code import CodeRefused
from posenc.lab.study.plan import Plan, PlanError
from posenc.lab.study.tasks import Batch, Task

PATIENCE = timedelta(days=7)  # time that a process waits while the first one evaluates
OFTEN = 10.0  # seconds between two lines about progress


class NotLaunched(ValueError):
    """This process cannot share a run; the message says why."""


@dataclass(frozen=True)
class Engine:
    """The processes of a launch: how they share the weights, and where this one computes."""

    sharded: bool
    device: torch.device

    @classmethod
    def begin(cls, sharded: bool = False) -> "Engine":
        """Join the processes that were launched beside this one.

        Raises NotLaunched where there are none, or for what they cannot do.
        """
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            raise NotLaunched(
                "this is begun by `accelerate launch --num_processes 8 -m"
                " posenc.lab.study.distributed …`, of `pip install accelerate`, or by torchrun; one"
                " process alone is `posenc study`."
            )
        precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        if precision != "no":
            raise NotLaunched(
                f"a study trains in float32, `--mixed_precision` is {precision!r}: leave it out."
            )
        on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
        device = torch.device("cpu")
        if torch.cuda.is_available() and not on_cpu:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        dist.init_process_group("gloo" if device.type == "cpu" else "nccl", timeout=PATIENCE)
        asked = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        return cls(sharded or asked, device)

    @property
    def made_by(self) -> dict[str, str]:
        """The settings of this launch that the rounding of numbers depends on."""
        way = "FSDP2" if self.sharded else "DDP"
        return {"processes": f"{dist.get_world_size()}, {way}, {self.device.type}"}


class Share:
    """The share of this process in each step of a cell, as `train.fit` asks for it."""

    def __init__(self, engine: Engine, model: Transformer, cell: Cell, task: Task):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.leads, self.device, self.cell = self.rank == 0, engine.device, cell
        if cell.profile.batch < self.ranks:
            raise Refused(
                f"`batch` must be at least one text for each of {self.ranks} processes, got"
                f" {cell.profile.batch}: launch fewer, or plan a larger batch."
            )
        part = _Part(model.to(engine.device), cell, task)
        if engine.sharded:
            for layer in (*model.blocks, part):
                fully_shard(layer)
            self.part_of_loss: nn.Module = part
        else:
            self.part_of_loss = DistributedDataParallel(part)

    def loss(self, batch: Batch, random: Random) -> Tensor:
        """Compute the loss of this process's texts, whose mean over processes is the batch's."""
        texts, tokens = batch.inputs.shape
        own_texts = slice(self.rank * texts // self.ranks, (self.rank + 1) * texts // self.ranks)
        # The positions of the texts before its own are drawn and left out
        draw_positions(self.cell, (own_texts.start, tokens), random)
        place = partial(torch.Tensor.to, device=self.device)
        share = Batch(
            place(batch.inputs[own_texts]),
            place(batch.targets[own_texts]),
            place(batch.answers[own_texts]),
            batch.lengths[own_texts],
            None if batch.points is None else place(batch.points),
        )
        # both engines divide what they sum of the gradients by the number of processes
        return self.part_of_loss(share, random, int(batch.answers.sum())) * self.ranks

    def mean(self, loss: Tensor) -> float:
        total = loss.detach() / self.ranks
        dist.all_reduce(total)
        return total.item()

    def any(self, flag: bool) -> bool:
        raised = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(raised, dist.ReduceOp.MAX)
        return bool(raised)

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, tensor: Tensor, like: Tensor) -> Tensor:
        tensor = tensor.to(like.device)
        if not isinstance(like, DTensor):
            return tensor
        # every process has read all of it: nothing is sent
        return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


class _Part(nn.Module):
    """A model and its loss as one forward pass, which both ways of sharing go by."""

    def __init__(self, model: Transformer, cell: Cell, task: Task):
        super().__init__()
        self.model, self.cell, self.task = model, cell, task

    def forward(self, batch: Batch, random: Random, among: int) -> Tensor:
        return train.loss_of(self.model, self.cell, self.task, batch, random, among)


def run(
    cell: Cell,
    task: Task,
    directory: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[train.Progress], None] = lambda progress: None,
    models: Path | None = None,
    *,
    engine: Engine,
) -> Result:
    """Train a cell as `train.run` does, together; all processes call this, the first evaluates.

    The others' result has no outcomes.
    """
    task, base = task.at(cell.trained, cell.tested), replace(cell, extend="")
    _same_folder(directory)
    make = partial(build, base, len(task.vocabulary), task.both_ways)
    model, share = make(), None

    def split(*of: Any) -> Share:
        nonlocal share
        share = Share(engine, *of)
        return share

    losses, seconds = train.fit(model, base, task, directory, stop, progress, split)
    assert share is not None
    weights = {name: share.whole(x).cpu() for name, x in model.state_dict().items()}
    if not share.leads:
        return Result({}, (), 0, seconds)
    full_model = make()
    full_model.load_state_dict(weights)
    return train.result_of(full_model, cell, task, losses, seconds, models)


def _same_folder(directory: Path | None) -> None:
    """Refuse checkpoints that not all processes see: each would go on from another step."""
    if directory is None:
        return
    seen_by_each: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(
        seen_by_each, sorted(path.name for path in directory.glob("*.safetensors"))
    )
    if any(seen != seen_by_each[0] for seen in seen_by_each):
        raise Refused(
            f"the processes see different checkpoints in {directory}: `--out` must be a folder that"
            " all nodes share."
        )


class Together:
    """Lead all processes through one cell at a time: this is the first, the others `follow`."""

    def __init__(self, runner: Runner, cells: Path, stop: Callable[[], bool]) -> None:
        self._runner, self._cells, self._stop = runner, cells, stop
        self._cell: Cell | None = None

    @property
    def busy(self) -> int:
        return int(self._cell is not None)

    @property
    def free(self) -> int:
        return 1 - self.busy

    def start(self, cell: Cell) -> None:
        self._cell = cell

    def wait(self, seconds: float) -> list[Event]:
        """Run the cell to its end. An error ends all processes, for nobody knows what others do."""
        cell, self._cell = self._cell, None
        if cell is None:
            return []
        dist.broadcast_object_list([cell])
        event = run_cell(cell, self._runner, self._cells, self._stop, _Lines(cell))
        if event.kind == "error":
            raise NotLaunched(f"{cell.task} {cell.name}, seed {cell.seed}: {event.value}")
        if event.kind == "stopped":
            raise KeyboardInterrupt
        return [event]

    def stop(self) -> None:
        """There is nothing to be stopped between cells."""

    def close(self) -> None:
        """There is nothing of its own to be closed."""


def follow(runner: Runner, cells: Path, stop: Callable[[], bool]) -> None:
    """Run the cells that the first process names, until it names none, or until it is to stop."""
    while True:
        received: list[Cell | None] = [None]
        dist.broadcast_object_list(received)
        if received[0] is None:
            return
        event = run_cell(received[0], runner, cells, stop, lambda progress: None)
        if event.kind == "error":
            raise NotLaunched(event.value)
        if event.kind == "stopped":
            raise KeyboardInterrupt


class _Lines:
    """Say how far a cell is, a line now and then."""

    def __init__(self, cell: Cell):
        self.name, self.said = f"{cell.task} {cell.name} {cell.seed}", time.monotonic()

    def __call__(self, far: train.Progress) -> None:
        if time.monotonic() - self.said > OFTEN:
            self.said = time.monotonic()
            print(
                f"{self.name}: step {far.step:,} of {far.steps:,}, loss {far.loss:.3f},"
                f" {far.speed:,.0f} tokens/s, {far.left:,.0f} s left",
                file=sys.stderr,
            )


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    parser = ArgumentParser(
        "posenc.lab.study.distributed", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("plan", type=Path, help="a TOML file, as `posenc study` takes it")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the results")
    parser.add_argument("--fsdp", action="store_true", help="each process holds a part of weights")
    parser.add_argument("--keep", action="store_true", help="leave the trained models there")
    parser.add_argument(
        "--allow-code", action="append", default=[], metavar="FILE:NAME",
        help="run this code, which the plan names; no other that it names is run",
    )  # fmt: skip
    parser.add_argument("--deviate", action="store_true", help="go on though something has changed")
    asked = parser.parse_args(words)
    signals: list[int] = []
    try:
        engine = Engine.begin(asked.fsdp)
    except NotLaunched as error:
        return _failed(error)
    # A launcher sends these to every process
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda number, frame: signals.append(number))
    stop, runner = lambda: bool(signals), partial(run, engine=engine)
    try:
        if dist.get_rank():
            follow(runner, asked.out / CELLS, stop)
        else:
            options = {"keep": asked.keep, "deviate": asked.deviate, "allow_code": asked.allow_code}
            _lead(asked.plan, asked.out, runner, stop, engine, **options)
    except KeyboardInterrupt:
        return 130
    except (NotLaunched, PlanError, CodeRefused, Refused, Locked, ImportError) as error:
        return _failed(error)
    finally:
        dist.destroy_process_group()
    return 0


def _lead(
    plan: Path,
    folder: Path,
    runner: Runner,
    stop: Callable[[], bool],
    engine: Engine,
    **options: Any,
) -> None:
    """Carry out the plan, and tell the others when it is done or cannot be begun."""

    def together(runner: Runner, cells: Path) -> Executor:
        return Together(runner, cells, stop)

    broken = False
    try:
        ended = execute.study(
            Plan.read(plan), folder, runner=runner, engine=together, made_by=engine.made_by,
            **options,
        )  # fmt: skip
        print(
            f"{ended.done} of {ended.of} cells are done: posenc results {folder}", file=sys.stderr
        )
    except (NotLaunched, KeyboardInterrupt):
        # The others have ended in the middle of a cell as well
        broken = True
        raise
    finally:
        if not broken:
            dist.broadcast_object_list([None])


def _failed(error: Exception) -> int:
    print(f"posenc.lab.study.distributed: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # FSDP2 keeps its process group beyond `destroy_process_group`. A thread of gloo that lets go of
    # a tensor while Python takes itself down aborts a run that is done (pytorch/pytorch#179291).
    os._exit(status)
