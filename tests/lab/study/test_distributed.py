"""Runs that several processes share against the same run in one process, over gloo."""

import os
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest
import ranks
import torch
from thorough import some
from torch.distributed import TCPStore

import posenc.lab.study
from posenc.lab.study import distributed, execute, store, tasks, train
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell, Profile
from posenc.lab.study.controls import draw_positions
from posenc.lab.study.plan import Plan

pytestmark = pytest.mark.slow
# 5 texts: not as many for each of two processes
SMALL = Profile(width=16, heads=2, layers=2, steps=6, batch=5, rate=1e-2, warmup=2, prompts=5)
COPY = tasks.find("copy").at(5, (5, 8))
CELLS = (
    Cell("copy", "rope", 0),
    Cell("copy", "t5", 0, positions="random 64"),
    Cell("copy", "fire", 0, control="window"),
    Cell("copy", "learned", 0, control="oracle"),
    Cell("copy", "shaw", 0, control="shuffled"),
    Cell("copy", "fox", 0),
    Cell("masked", "t5", 0),  # read both ways, so that filling is hidden
)
RANKS = 2


def task_of(cell):
    if cell.task == "copy":
        return COPY
    words = [f"w{n % 7}" for n in range(400)]
    return replace(tasks.masked(words, trained=6), least=2)


def fitted(cell, directory=None, stop=lambda: False, split=train.Alone):
    """Losses and whole weights of a training run."""
    shares, task = [], task_of(cell)
    model = build(cell, len(task.vocabulary), task.both_ways)

    def noted(*of):
        shares.append(split(*of))
        return shares[-1]

    losses, _ = train.fit(model, cell, task, directory, stop, split=noted)
    weights = {name: shares[0].whole(x).detach() for name, x in model.state_dict().items()}
    return losses, weights


def one_of_two(folder):
    """The work of one process of two: cells together and alone, stopped and continued."""
    torch.set_num_threads(1)
    engine = distributed.Engine.begin()
    rank = torch.distributed.get_rank()

    def together(*of):
        return distributed.Share(engine, *of)

    # In float64, or the noise of gradients that should be 0 is all that AdamW sees of them
    torch.set_default_dtype(torch.float64)
    for cell in CELLS:
        cell = replace(cell, profile=SMALL)
        losses, weights = fitted(cell)
        shared_losses, shared = fitted(cell, split=together)
        for name, weight in weights.items():
            torch.testing.assert_close(shared[name], weight, rtol=1e-5, atol=1e-7, msg=name)
        torch.testing.assert_close(shared_losses, losses, rtol=1e-7, atol=0)
    torch.set_default_dtype(torch.float32)
    cell = Cell("copy", "rope", 0, options={"learned": True}, profile=SMALL)
    losses, weights = fitted(cell, split=together)
    torch.testing.assert_close(losses, fitted(cell)[0], rtol=1e-4, atol=0)
    asked = iter(range(10))
    try:  # one of the two is asked to stop, before the fourth step
        fitted(cell, folder, lambda: next(asked) == 3 and rank == 1, together)
    except train.Stopped:
        torch.distributed.barrier()
    assert len([*folder.iterdir()]) == 1
    resumed_losses, resumed = fitted(cell, folder, split=together)
    assert resumed_losses == losses
    assert all(torch.equal(resumed[name], weight) for name, weight in weights.items())
    torch.distributed.barrier()
    if rank == 0:  # what two have written, one can read
        assert fitted(cell, folder)[0] == losses
    print("alike")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.fixture
def launched():
    """Processes of one launch, with what a launcher sets in their environment.

    They meet at a port that the system gives and that is held from then on, as torchrun does it.
    """
    stores = []

    def begin(folder, *words, **more):
        stores.append(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        shared = {
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(stores[-1].port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": "1",
        }
        each = ((words, {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(RANKS))
        return ranks.begin(each, folder, shared | more)

    return begin


def said(processes):
    return [(*process.communicate(timeout=300), process.returncode) for process in processes]


@pytest.mark.parametrize("fsdp", ["false", "true"])
def test_two_processes_train_as_one(tmp_path, fsdp, launched):
    """Losses and weights; a run that is stopped goes on to the same bits, in one process too."""
    both = said(launched(tmp_path, __file__, tmp_path / "checkpoints", ACCELERATE_USE_FSDP=fsdp))
    assert [(out, status) for out, _, status in both] == [("alike\n", 0)] * 2, both


def plan_in(folder, **changes):
    profile = ", ".join(f"{k} = {v}" for k, v in asdict(replace(SMALL, **changes)).items())
    path = folder / "plan.toml"
    path.write_text(
        f'tasks = ["copy"]\nseeds = 1\ntrained = 5\ntested = [5, 8]\nprofile = {{ {profile} }}\n'
        f'encodings = ["t5", {{ name = "far", encoding = "rope", extend = "yarn 2 after 3" }}]\n'
    )
    return path


WAYS = ("--use_fsdp", "FSDP2"), ("--multi_gpu", "DDP")


@pytest.mark.parametrize(("how", "way"), some(WAYS, 2))
def test_a_plan_is_launched_by_accelerate(tmp_path, how, way):
    """The table is that of `posenc study`, but for the rounding of losses."""
    plan, out = plan_in(tmp_path), tmp_path / "out"
    begin = [sys.executable, "-m", "accelerate.commands.launch", how]
    begin += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    begin += ["--dynamo_backend", "no", "--main_process_port"]
    study = ["-m", "posenc.lab.study.distributed", plan, "--out", out, "--keep"]
    environment = os.environ | {"PYTHONPATH": str(Path(execute.__file__).parents[3])}
    # At a port that is taken accelerate lets its processes meet at one that the system gives
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [*begin, str(taken.getsockname()[1]), *study]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"2 of 2 cells are done: posenc results {out}" in done.stderr
    ours = store.read(out)
    assert ours.sources["processes"] == f"2, {way}, cpu"
    execute.study(Plan.read(plan), tmp_path / "alone", workers=1, start="fork")
    alone = store.read(tmp_path / "alone")
    assert ours.records.keys() == alone.records.keys()
    for digest, record in alone.records.items():
        assert ours.records[digest].outcomes.keys() == record.outcomes.keys()
        assert ours.records[digest].losses == pytest.approx(record.losses, rel=1e-4)
        kept = posenc.lab.study.load(out / "models" / f"{digest}.safetensors")
        assert kept.cell.digest == digest
        assert len(kept.say(["w1", "<sep>"], 2)) <= 2
    with pytest.raises(execute.PlanError, match=f"`processes` is '2, {way}, cpu' there and None"):
        execute.study(Plan.read(plan), out)


SIGNALLED = """
import os, signal
from posenc.lab.study import distributed
loss, steps = distributed.Share.loss, []
def counted(self, *of):
    steps.append(of)
    if len(steps) == 5 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGTERM)
    return loss(self, *of)
distributed.Share.loss = counted
os._exit(distributed.main())
"""


def test_one_signal_stops_all_and_the_same_command_goes_on(tmp_path, launched):
    """In the fifth step of the six of the first cell, to one of two processes."""
    plan, out = plan_in(tmp_path), tmp_path / "out"
    first = said(launched(tmp_path, "-c", SIGNALLED, plan, "--out", out))
    assert [status for *_, status in first] == [130, 130], first
    assert [*(out / execute.CELLS).glob("*/*.safetensors")]
    assert not store.read(out).records
    again = said(launched(tmp_path, "-m", "posenc.lab.study.distributed", plan, "--out", out))
    assert [status for *_, status in again] == [0, 0], again
    assert len(store.read(out).records) == 2


def test_what_cannot_be_launched_is_said(tmp_path, monkeypatch, capsys):
    words = [str(plan_in(tmp_path)), "--out", str(tmp_path / "out")]
    monkeypatch.delenv("RANK", raising=False)
    assert distributed.main(words) == 1
    assert "one process alone is `posenc study`" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert distributed.main(words) == 1
    assert "a study trains in float32, `--mixed_precision` is 'bf16'" in capsys.readouterr().err


def test_an_error_of_one_ends_all(tmp_path, launched):
    """More processes than texts, and a plan that is none."""
    plan, out = plan_in(tmp_path, batch=1), tmp_path / "out"
    both = said(launched(tmp_path, "-m", "posenc.lab.study.distributed", plan, "--out", out))
    assert [status for *_, status in both] == [1, 1]
    for _, error, _ in both:
        assert "`batch` must be at least one text for each of 2 processes, got 1" in error
    plan.write_text("tasks = 3")
    both = said(
        launched(tmp_path, "-m", "posenc.lab.study.distributed", plan, "--out", tmp_path / "other")
    )
    assert [status for *_, status in both] == [1, 0]
    assert "posenc.lab.study.distributed: plan.toml" in both[0][1]


def test_checkpoints_that_not_all_see_are_refused(tmp_path, monkeypatch):
    (tmp_path / "step-1.safetensors").touch()

    def others(every, own):
        every[:] = [own, []]

    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed.dist, "all_gather_object", others)
    with pytest.raises(distributed.Refused, match="`--out` must be a folder that all nodes share"):
        distributed._same_folder(tmp_path)


def test_what_happens_while_python_ends_does_not_change_the_status():
    """A thread of gloo has aborted runs that were done; here a function for the end does."""
    code = "import atexit, os, runpy; atexit.register(os.abort);"
    code += "runpy.run_module('posenc.lab.study.distributed', run_name='__main__')"
    environment = {name: x for name, x in os.environ.items() if name != "RANK"}
    done = subprocess.run(
        [sys.executable, "-c", code, "plan.toml", "--out", "out"],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1
    assert "this is begun by `accelerate launch" in done.stderr


def test_shares_are_the_batch(monkeypatch):
    """Rows, positions and answers of three processes, side by side, are those of one."""
    cell = replace(CELLS[1], profile=SMALL)
    batch, shares = COPY.training(5, Random(3)), []
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 3)
    monkeypatch.setattr(distributed, "DistributedDataParallel", lambda part: part)

    def noted(model, cell, task, batch, random, among):
        shares.append((batch, draw_positions(cell, batch.inputs.shape, random), among))
        return torch.zeros(())

    monkeypatch.setattr(train, "loss_of", noted)
    for rank in range(3):
        monkeypatch.setattr(distributed.dist, "get_rank", lambda rank=rank: rank)
        engine = distributed.Engine(False, torch.device("cpu"))
        share = distributed.Share(engine, build(cell, len(COPY.vocabulary)), cell, COPY)
        share.loss(batch, Random("positions"))
    parts, positions, among = zip(*shares, strict=True)
    for place in range(3):
        assert torch.equal(torch.cat([part[place] for part in parts]), batch[place])
    assert [n for part in parts for n in part.lengths] == batch.lengths
    whole = draw_positions(cell, batch.inputs.shape, Random("positions"))
    assert torch.equal(torch.cat(positions), whole)
    assert among == (int(batch.answers.sum()),) * 3


if __name__ == "__main__":
    one_of_two(Path(sys.argv[1]))
