"""`posenc bench`: all tables of one run, with the machine they were measured on."""

import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from posenc import __version__
from posenc.bench import attention, embeddings, growth, rotation, startup, training
from posenc.bench.record import Growth, Table, Target

SCHEMA = 1
PARTS = ("rotation", "embeddings", "attention", "training", "start-up")
PEERS = ("transformers", "torchtune", "torchao", "rotary-embedding-torch", "x-transformers")
PEERS += ("positional-encodings", "numba")

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Effort:
    """How long it may take: samples of each way, and seconds of each table."""

    rounds: int
    budget: float
    tokens: tuple[int, ...]  # of attention
    longest: int  # of the rotation's growth
    compiled: bool
    rotated: tuple[str, ...]  # cases of `rotation.CASES`


FULL = Effort(21, 60.0, (256, 1024, 4096, 16384), 131_072, True, tuple(rotation.CASES))
QUICK = Effort(7, 4.0, (256, 1024), 16_384, False, ("mid", "tiny"))


@dataclass(frozen=True)
class Benchmark:
    tables: list[Table]
    growth: list[Growth]
    quick: bool
    started: str  # local time, ISO 8601
    seconds: float
    machine: dict[str, str]
    versions: dict[str, str]
    schema: int = SCHEMA

    @property
    def targets(self) -> list[tuple[Table, Target]]:
        return [(table, target) for table in self.tables for target in table.targets]

    def to_json(self) -> dict[str, Any]:
        tree = asdict(self)
        for table in tree["tables"]:
            for target in table["targets"]:
                target["met"] = target["found"] <= target["most"]
        return tree


def benchmark(
    parts: Iterable[str] = (),
    quick: bool = False,
    progress: Progress = lambda doing, done, of: None,
) -> Benchmark:
    """Measure the parts named, or all. Raises LookupError for one that there is not."""
    wanted = list(dict.fromkeys(parts)) or list(PARTS)
    for part in wanted:
        if part not in PARTS:
            raise LookupError(f"there is no part {part!r}: name some of {', '.join(PARTS)}.")
    begun, started = perf_counter(), datetime.now().astimezone().isoformat(" ", "minutes")
    effort = QUICK if quick else FULL
    jobs = [job for part in wanted for job in _jobs(part, effort)]
    tables: list[Table] = []
    grown: list[Growth] = []
    for done, (name, job) in enumerate(jobs):
        progress(name, done, len(jobs))
        torch.manual_seed(0)
        found = job()
        if isinstance(found, Table):
            tables.append(found)
        else:
            grown += found
    if "attention" in wanted:
        lengths = list(effort.tokens)
        forward = [t for t in tables if t.part == "attention" and t.case.startswith("forward")]
        grown += growth.attentions(forward, lengths)
    progress("done", len(jobs), len(jobs))
    return Benchmark(tables, grown, quick, started, perf_counter() - begun, machine(), versions())


def _jobs(part: str, effort: Effort) -> Iterable[tuple[str, Callable[[], Table | list[Growth]]]]:
    rounds, budget = effort.rounds, effort.budget
    if part == "rotation":
        for case, dtype, backward in product(effort.rotated, rotation.DTYPES, (False, True)):
            yield (
                f"rotation, {case}",
                lambda c=case, d=dtype, b=backward: rotation.benchmark(
                    c, d, b, rounds, budget, effort.compiled
                ),
            )
        yield "rotation, growth", lambda: growth.rotations(rounds, budget / 4, effort.longest)
    if part == "embeddings":
        yield part, lambda: embeddings.benchmark(rounds, budget)
    if part == "attention":
        for tokens, kind in product(effort.tokens, attention.KINDS):
            if kind != "training" or tokens <= attention.LONGEST_TRAINED:
                yield (
                    f"attention, {tokens:,}",
                    lambda n=tokens, k=kind: attention.benchmark(n, k, rounds, budget),
                )
    if part == "training":
        yield part, lambda: training.benchmark(rounds, budget)
    if part == "start-up":
        yield part, lambda: startup.benchmark(rounds, budget)


def machine() -> dict[str, str]:
    """What it ran on."""
    names = (
        line.partition(":")[2].strip()
        for path in (Path("/proc/cpuinfo"),)
        if path.exists()
        for line in path.read_text().splitlines()
        if line.startswith("model name")
    )
    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": next(names, platform.processor() or "unknown"),
        "threads": str(torch.get_num_threads()),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    found = {"posenc": __version__, "torch": torch.__version__, "python": platform.python_version()}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
