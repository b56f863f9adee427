"""`posenc bench`: all tables of one run, with the machine they were measured on."""

import platform
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch

from posenc.bench import adapter, attention, embeddings, growth, rotation, startup, training
from posenc.bench.record import Growth, Table, Target
from posenc.provenance import Provenance, since

SCHEMA = 1
PARTS = ("rotation", "embeddings", "attention", "training", "adapter", "start-up", "fast")
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
    compiled: tuple[str, ...]  # cases that are compiled too, which takes half a minute each
    peers: bool  # their start-up
    rotated: tuple[str, ...]  # cases of `rotation.CASES`
    model: adapter.Size = adapter.FULL  # that encodings are plugged into


LENGTHS = (256, 1024, 4096, 16384)
FULL = Effort(11, 15.0, LENGTHS, 131_072, ("long", "wide"), True, tuple(rotation.CASES))
QUICK = Effort(5, 2.0, LENGTHS[:2], 16_384, (), False, ("mid", "tiny"), adapter.QUICK)


@dataclass(frozen=True)
class Benchmark:
    tables: list[Table]
    growth: list[Growth]
    quick: bool
    processor: str
    libraries: dict[str, str]
    provenance: Provenance
    schema: int = SCHEMA

    @property
    def targets(self) -> list[tuple[Table, Target]]:
        return [(table, target) for table in self.tables for target in table.targets]

    def to_json(self) -> dict[str, Any]:
        tree = asdict(self)
        for table, found in zip(tree["tables"], self.tables, strict=True):
            for target, one in zip(table["targets"], found.targets, strict=True):
                target["met"] = one.met
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
    begun = time.time()
    effort = QUICK if quick else FULL
    jobs = [job for part in wanted for job in _jobs(part, effort)]
    tables: list[Table] = []
    grown: list[Growth] = []
    for done, (name, job) in enumerate(jobs):
        progress(name, done, len(jobs))
        torch.manual_seed(0)
        with redirect_stdout(sys.stderr):  # some peers print when they are imported
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
    return Benchmark(tables, grown, quick, processor(), libraries(), since(begun, seed=0))


def _jobs(part: str, effort: Effort) -> Iterable[tuple[str, Callable[[], Table | list[Growth]]]]:
    rounds, budget = effort.rounds, effort.budget
    if part == "rotation":
        for case, dtype, backward in product(effort.rotated, rotation.DTYPES, (False, True)):
            yield (
                f"rotation, {case}",
                lambda c=case, d=dtype, b=backward: rotation.benchmark(
                    c, d, b, rounds, budget, c in effort.compiled
                ),
            )
        yield "rotation, growth", lambda: growth.rotations(rounds, budget / 4, effort.longest)
    if part == "fast":
        large = [case for case in effort.rotated if case not in rotation.SMALL]
        for case, dtype, backward in product(large, rotation.DTYPES, (False, True)):
            yield (
                f"fast, {case}",
                lambda c=case, d=dtype, b=backward: rotation.fast(c, d, b, rounds, budget),
            )
    if part == "embeddings":
        yield part, lambda: embeddings.benchmark(rounds, budget)
    if part == "attention":
        for kind in attention.KINDS:
            for tokens in attention.lengths(kind, effort.tokens):
                yield (
                    f"attention, {kind}, {tokens:,}",
                    lambda n=tokens, k=kind: attention.benchmark(n, k, rounds, budget),
                )
    if part == "training":
        yield part, lambda: training.benchmark(rounds, budget)
    if part == "adapter" and find_spec("transformers"):
        for kind in adapter.MOST:
            yield (
                f"adapter, {kind}",
                lambda k=kind: adapter.benchmark(k, effort.model, rounds, budget),
            )
    if part == "start-up":
        yield part, lambda: startup.benchmark(rounds, budget, effort.peers)


def processor() -> str:
    """Its model, and what of its instructions torch uses."""
    path, name = Path("/proc/cpuinfo"), platform.processor()
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name or 'unknown'}, {torch.backends.cpu.get_cpu_capability()}"


def libraries() -> dict[str, str]:
    """The peers that are installed, and their versions."""
    found = {}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
