"""Run the benchmark's parts with a given effort, and record the machine and library versions."""

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from typing import Any

import torch

from benchmarks import (
    adapter,
    attention,
    busy,
    cuda,
    embeddings,
    rotation,
    serving,
    startup,
    study,
    training,
)
from benchmarks.results import BenchTable, Target
from posenc.lab.study.environment import processor
from posenc.support.provenance import Provenance, since

SCHEMA = 2
PARTS = (
    "rotation", "embeddings", "attention", "serving", "training", "study", "adapter", "start-up",
    "fast", "busy", "cuda",
)  # fmt: skip
BY_NAME = ("busy", "cuda")  # parts which run only if they are named
PEERS = ("transformers", "torchtune", "torchao", "rotary-embedding-torch", "x-transformers")
PEERS += ("positional-encodings", "numba")

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Effort:
    """The size of a benchmark: samples of each implementation, seconds of each table, cases."""

    rounds: int
    budget: float
    tokens: tuple[int, ...]  # lengths for attention
    compiled: tuple[str, ...]  # cases that are also compiled, half a minute each
    peers: bool  # time the start-up of other libraries
    rotated: tuple[str, ...]  # cases of `rotation.CASES`
    model: adapter.Size = adapter.FULL  # size of the adapted model
    profile: str = "cpu"  # profile of `posenc study`
    served: tuple[serving.Served, ...] = serving.FULL
    crowded: tuple[int, ...] = busy.LENGTHS  # on busy cores


LENGTHS = (512, 2048, 4096, 16384)
FULL = Effort(11, 15.0, LENGTHS, ("long", "wide"), True, tuple(rotation.CASES))
QUICK = Effort(
    5,
    2.0,
    (256, 1024),
    (),
    False,
    ("mid", "tiny"),
    adapter.QUICK,
    "smoke",
    serving.QUICK,
    (256,),
)


@dataclass(frozen=True)
class Benchmark:
    """The results of a benchmark run: its tables, the machine and the library versions."""

    tables: list[BenchTable]
    quick: bool
    processor: str
    libraries: dict[str, str]
    provenance: Provenance
    schema: int = SCHEMA
    unmeasured: tuple[str, ...] = ()  # cases that an interrupted run has not measured

    def __repr__(self) -> str:
        parts = ", ".join(dict.fromkeys(table.part for table in self.tables))
        return f"Benchmark of {len(self.tables)} tables on {self.processor}: {parts}"

    @property
    def targets(self) -> list[tuple[BenchTable, Target]]:
        return [(table, target) for table in self.tables for target in table.targets]

    def to_json(self) -> dict[str, Any]:
        tree = asdict(self)
        for table, result in zip(tree["tables"], self.tables, strict=True):
            for target, measured in zip(table["targets"], result.targets, strict=True):
                target["met"] = measured.met
        return tree


def benchmark(
    parts: Iterable[str] = (),
    quick: bool = False,
    progress: Progress = lambda doing, done, of: None,
    cases: busy.Cases | None = None,
) -> Benchmark:
    """Run the named benchmarks, by default all but those in `BY_NAME`.

    `cases` are those of the part `busy`; None: all at the lengths of the effort. If the run is
    interrupted, the finished measurements are returned. Raises LookupError for an unknown part.
    """
    wanted = list(dict.fromkeys(parts)) or [part for part in PARTS if part not in BY_NAME]
    for part in wanted:
        if part not in PARTS:
            raise LookupError(f"`parts` must be of {', '.join(PARTS)}, got {part!r}.")
    if "cuda" in wanted and not torch.cuda.is_available():
        raise LookupError(
            "`parts` must not contain 'cuda' on a machine without an NVIDIA GPU, got 'cuda'."
        )
    begun = time.time()
    effort = QUICK if quick else FULL
    cases = cases or busy.Cases(effort.crowded)
    jobs = [job for part in wanted for job in _jobs(part, effort, cases)]
    tables: list[BenchTable] = []
    unmeasured: tuple[str, ...] = ()
    for done, (name, job) in enumerate(jobs):
        progress(name, done, len(jobs))
        torch.manual_seed(0)
        try:
            # Some peers print when they are imported
            with redirect_stdout(sys.stderr):
                tables.append(job())
        except KeyboardInterrupt:
            if not done:
                raise
            unmeasured = tuple([name for name, _ in jobs[done:]])
            break
    progress("done", len(jobs), len(jobs))
    made = since(begun, seed=0)
    return Benchmark(tables, quick, processor(), libraries(), made, unmeasured=unmeasured)


def _jobs(
    part: str, effort: Effort, cases: busy.Cases
) -> Iterable[tuple[str, Callable[[], BenchTable]]]:
    rounds, budget = effort.rounds, effort.budget
    if part == "rotation":
        for case, dtype, backward in product(effort.rotated, rotation.DTYPES, (False, True)):
            yield (
                f"rotation, {case}",
                lambda c=case, d=dtype, b=backward: rotation.time_rotation(
                    c, d, b, rounds, budget, c in effort.compiled
                ),
            )
        for dtype in rotation.DTYPES:
            yield (
                f"rotation on busy cores, {dtype}",
                lambda d=dtype: rotation.time_beside_load(d, rounds, budget),
            )
    if part == "fast":
        large = [case for case in effort.rotated if case not in rotation.SMALL]
        for case, dtype, backward in product(large, rotation.DTYPES, (False, True)):
            yield (
                f"fast, {case}",
                lambda c=case, d=dtype, b=backward: rotation.time_numba(c, d, b, rounds, budget),
            )
    if part == "embeddings":
        yield part, lambda: embeddings.time_embeddings(rounds, budget)
    if part == "attention":
        for kind in attention.KINDS:
            for tokens in attention.lengths(kind, effort.tokens):
                yield (
                    f"attention, {kind}, {tokens:,}",
                    lambda n=tokens, k=kind: attention.time_attention(n, k, rounds, budget),
                )
    if part == "busy":
        for kind, tokens, condition in product(cases.kinds, cases.tokens, cases.conditions):
            yield (
                f"{kind} of {tokens:,} tokens, {condition}",
                lambda n=tokens, k=kind, c=condition: busy.time_busy(
                    n, k, c, rounds, budget, cases.names
                ),
            )
    if part == "cuda":
        yield from cuda.jobs(rounds)
    if part == "serving":
        for case in effort.served:
            yield (
                f"serving, {case}",
                lambda c=case: serving.time_serving(c, rounds, budget),
            )
    if part == "training":
        yield part, lambda: training.time_training(rounds, budget)
    if part == "study" and find_spec("safetensors"):
        yield (
            "training in the study",
            lambda: study.time_study_steps(effort.profile, rounds, 4 * budget),
        )
    if part == "adapter" and find_spec("transformers"):
        for kind in adapter.TARGETS:
            yield (
                f"adapter, {kind}",
                lambda k=kind: adapter.time_adapter(k, effort.model, rounds, budget),
            )
    if part == "start-up":
        yield part, lambda: startup.time_start_up(rounds, budget, effort.peers)


def libraries() -> dict[str, str]:
    """Return the versions of the installed libraries that posenc is compared with."""
    versions = {}
    for name in PEERS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
