"""Rotation of q and k side by side with other libraries, in one run; the limit is a copy of both.

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 python benchmarks/rotation.py decode mid

All take turns in a new order each round. A sample counts if our threads hardly waited for a core;
figures are medians, and ratios to the limit of the same case. Before it is timed, each is held
against the formula in float64. Without the two variables glibc hands large tensors back to the
system and clears them anew each time, which is most of the time of a copy: all ratios look better.
"""

import gc
import importlib
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from posenc import frequencies, positions
from posenc.rotary.path import path_of
from posenc.rotary.rotate import formula, rotate, rotate_both
from posenc.rotary.turn import turn
from posenc.theta import Layout

Both = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
LIMIT = "clone"


@dataclass(frozen=True)
class Case:
    """Shapes (batch, head, token, channel); `strided`: as a projection leaves them."""

    name: str
    q: tuple[int, int, int, int]
    k: tuple[int, int, int, int]
    strided: bool = False


CASES = {
    case.name: case
    for case in (
        Case("long", (1, 32, 4096, 128), (1, 32, 4096, 128)),
        Case("mid", (8, 12, 512, 64), (8, 12, 512, 64)),
        Case("wide", (8, 12, 2048, 64), (8, 12, 2048, 64)),
        Case("grouped", (1, 32, 4096, 128), (1, 8, 4096, 128)),
        Case("strided", (1, 32, 4096, 128), (1, 32, 4096, 128), strided=True),
        Case("decode", (32, 32, 1, 128), (32, 32, 1, 128)),
        Case("tiny", (1, 32, 1, 128), (1, 8, 1, 128)),
    )
}


@dataclass(frozen=True)
class Record:
    case: str
    dtype: str
    backward: bool
    name: str
    seconds: float  # median
    least: float
    ratio: float  # to the limit, of medians
    samples: int
    disturbed: int  # samples dropped
    error: float  # largest difference to the formula in float64, over the largest number
    malloc: str
    threads: int


def benchmark(
    case: Case, dtype: torch.dtype, backward: bool = False, rounds: int = 21, budget: float = 60.0
) -> tuple[list[Record], dict[str, str]]:
    """Measured, and who was left out and why."""
    q, k = (_made(shape, case.strided, dtype) for shape in (case.q, case.k))
    candidates, skipped = _candidates(case, dtype)
    errors = {name: _error(name, run, q, k) for name, run in candidates.items()}
    runs = {name: _timed(name, run, q, k, backward) for name, run in candidates.items()}
    kept, dropped = sample(runs, rounds, budget)
    limit = statistics.median(kept[LIMIT])
    records = [
        Record(
            case=case.name,
            dtype=str(dtype).removeprefix("torch."),
            backward=backward,
            name=name,
            seconds=statistics.median(times),
            least=min(times),
            ratio=statistics.median(times) / limit,
            samples=len(times),
            disturbed=dropped[name],
            error=errors[name],
            malloc=malloc(),
            threads=torch.get_num_threads(),
        )
        for name, times in kept.items()
    ]
    return sorted(records, key=lambda record: record.ratio), skipped


def sample(
    runs: dict[str, Callable[[], object]], rounds: int, budget: float, tolerance: float = 0.05
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of undisturbed calls of each, until all have `rounds` or the `budget` is spent."""
    shuffled, repeats = random.Random(0), {}
    for name, run in runs.items():
        for _ in range(3):
            run()
        repeats[name] = max(1, int(4e-3 / _seconds(run, 3)[0]))
    clean: dict[str, list[float]] = {name: [] for name in runs}
    others: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.disable()
    stop = time.perf_counter() + budget
    while time.perf_counter() < stop and min(map(len, clean.values())) < rounds:
        for name in shuffled.sample(sorted(runs), len(runs)):
            each, waited = _seconds(runs[name], repeats[name])
            calm = waited < tolerance * each * repeats[name]
            (clean if calm else others)[name].append(each)
    gc.enable()
    kept = {name: clean[name] if len(clean[name]) >= 3 else others[name] for name in runs}
    return kept, {name: len(others[name]) for name in runs}


def malloc() -> str:
    return "warm" if os.environ.get("MALLOC_MMAP_MAX_") == "0" else "default"


def _seconds(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Of one call; and how long our threads waited for a core meanwhile."""
    waited, start = _waited(), time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats, _waited() - waited


def _waited() -> float:
    total = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[1])
        except OSError:
            pass
    return total * 1e-9


def _timed(name: str, run: Both, q: Tensor, k: Tensor, backward: bool) -> Callable[[], object]:
    if not backward:
        return torch.no_grad()(lambda: run(q, k)) if q.numel() > 1 << 20 else _bare(run, q, k)
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    grads = torch.randn_like(q), torch.randn_like(k)
    if name == LIMIT:  # the gradient of a copy copies nothing
        return torch.no_grad()(lambda: (run(q, k), run(*grads)))
    return lambda: torch.autograd.grad(run(q, k), (q, k), grads)


def _bare(run: Both, q: Tensor, k: Tensor) -> Callable[[], object]:
    return lambda: run(q, k)  # nothing needs gradients; a context would cost as much as a call


def _made(shape: tuple[int, ...], strided: bool, dtype: torch.dtype) -> Tensor:
    batch, heads, tokens, channels = shape
    if strided:
        return torch.randn(batch, tokens, heads, channels).to(dtype).transpose(1, 2)
    return torch.randn(shape).to(dtype)


def _candidates(case: Case, dtype: torch.dtype) -> tuple[dict[str, Both], dict[str, str]]:
    pos, dim = positions.sequence(case.q[2], 7), case.q[-1]
    found: dict[str, Both] = {LIMIT: lambda q, k: (q.clone(), k.clone())}
    layouts: tuple[Layout, ...] = ("interleaved", "half")
    for layout in layouts:
        by = turn(pos, frequencies(dim), 1.0, layout)
        both = lambda q, k, by=by, at=layout: (rotate(q, by, at), rotate(k, by, at))  # noqa: E731
        path = path_of(_made(case.q, case.strided, dtype), by, layout)
        found[f"posenc {layout}: {path}"] = both
        once = lambda q, k, by=by, at=layout: rotate_both(q, k, by, at)  # noqa: E731
        found[f"posenc {layout}: {path}, both at once"] = once
        found[f"posenc {layout}: compiled"] = torch.compile(both, dynamic=False)
    found |= _written_out(pos, dim, dtype)
    skipped = {}
    for library in (_transformers, _rotary_embedding_torch, _x_transformers, _torchtune):
        try:
            found |= library(pos, dim, dtype)
        except ImportError as error:
            skipped[library.__name__.strip("_")] = str(error)
    return found, skipped


def _error(name: str, run: Both, q: Tensor, k: Tensor) -> float:
    """Ours must give the bits of the formula, but for the last of float32; others are measured."""
    if name == LIMIT:
        return 0.0
    layout: Layout = "interleaved" if "interleaved" in name else "half"
    by = turn(positions.sequence(q.shape[2], 7), frequencies(q.shape[-1]))
    worst = 0.0
    for x, made in zip((q, k), run(q, k), strict=True):
        exact = formula(x.double(), by, layout)
        worst = max(worst, ((made - exact).abs().max() / exact.abs().max()).item())
        if name.startswith("posenc"):
            close = 1e-6 if x.dtype == torch.float32 else 0.0
            torch.testing.assert_close(made, formula(x, by, layout), rtol=0, atol=close)
    return worst


# Other libraries


def _tables(pos: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    cos, sin = turn(pos, frequencies(dim))
    return cos[0], sin[0]


def _transformers(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    cos, sin = (torch.cat((x, x), -1).to(dtype).unsqueeze(0) for x in _tables(pos, dim))
    return {"transformers": lambda q, k: llama.apply_rotary_pos_emb(q, k, cos, sin)}


def _rotary_embedding_torch(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    library = importlib.import_module("rotary_embedding_torch")
    rope = library.RotaryEmbedding(dim, cache_max_seq_len=len(pos) + 7)
    for parameter in rope.parameters():
        parameter.requires_grad_(False)
    one = lambda x: rope.rotate_queries_or_keys(x, offset=7)  # noqa: E731
    return {"rotary-embedding-torch (interleaved)": lambda q, k: (one(q), one(k))}


def _x_transformers(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    library = importlib.import_module("x_transformers.x_transformers")
    freqs, scale = library.RotaryEmbedding(dim)(pos)
    one = lambda x: library.apply_rotary_pos_emb(x, freqs, scale)  # noqa: E731
    return {"x-transformers (interleaved)": lambda q, k: (one(q), one(k))}


def _torchtune(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    library = importlib.import_module("torchtune.modules")
    rope = library.RotaryPositionalEmbeddings(dim, max_seq_len=len(pos) + 8)

    def one(x: Tensor) -> Tensor:  # (batch, token, head, channel)
        return rope(x.transpose(1, 2), input_pos=pos).transpose(1, 2)

    return {"torchtune (interleaved)": lambda q, k: (one(q), one(k))}


def _written_out(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    """Code of libraries that need a GPU to be installed, as they define it."""
    cos, sin = _tables(pos, dim)
    cis = torch.complex(cos, sin)

    def vllm(x: Tensor) -> Tensor:  # RotaryEmbedding.forward_native
        (a, b), c, s = x.chunk(2, -1), cos.to(x.dtype), sin.to(x.dtype)
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    def flash_attn(x: Tensor) -> Tensor:  # apply_rotary_emb_torch
        c, s = (t.to(x.dtype).repeat(1, 2) for t in (cos, sin))
        a, b = x.chunk(2, -1)
        return torch.cat((x[..., :dim] * c + torch.cat((-b, a), -1) * s, x[..., dim:]), -1)

    def meta(x: Tensor) -> Tensor:  # llama's apply_rotary_emb
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * cis).flatten(3).type_as(x)

    named = {"vLLM native": vllm, "flash-attn torch": flash_attn, "Meta (interleaved)": meta}
    return {name: lambda q, k, f=f: (f(q), f(k)) for name, f in named.items()}


def table(records: list[Record]) -> Iterator[str]:
    yield f"{'':40} {'µs':>9} {'least':>9} {'× copy':>7} {'error':>8}  samples"
    for r in records:
        yield (
            f"{r.name:40} {r.seconds * 1e6:9.1f} {r.least * 1e6:9.1f} {r.ratio:7.2f} {r.error:8.1e}"
            f"  {r.samples} ({r.disturbed} dropped)"
        )


def main(names: list[str]) -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    for case, dtype in product(names or CASES, (torch.float32, torch.bfloat16)):
        for backward in (False, True):
            torch._dynamo.reset()
            torch.manual_seed(0)
            records, skipped = benchmark(CASES[case], dtype, backward)
            what = "forward and backward" if backward else "forward"
            print(f"\n{case}, {records[0].dtype}, {what}; malloc {malloc()}; skipped: {skipped}")
            print(*table(records), sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
