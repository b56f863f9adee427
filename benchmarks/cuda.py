"""Benchmark on an NVIDIA GPU: the rotation beside a copy, and attention beside torch's own kernel.

Times are medians from the events of the device; each sample calls one implementation several times
in turn with the others. Each time has the error beside it: of rotations against the formula in
float64, and of posenc's attention against the definition on a short text.

    rotation    queries and keys; the limit is a copy of both
    forward, training   attention over whole texts; the limit is torch's causal attention
    decode      one query at the end of the keys; the limit is torch's call on the cache
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from benchmarks import attention, rotation
from benchmarks.results import BenchTable, table
from benchmarks.timing import Times
from posenc.core.frequencies import frequencies
from posenc.core.positions import sequence
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import turn

GPU = torch.device("cuda")
# Shapes of queries, and of keys; the last has one token of each of 32 texts
SHAPES = ((1, 32, 8192, 128), (8, 16, 4096, 64), (32, 32, 1, 128))
LENGTHS = {"forward": (4096, 8192), "training": (4096,), "decode": (8192,)}  # tokens
FAR = "posenc FIRE, L = 512"
ENOUGH = 2e-3  # seconds of a sample; faster calls are repeated within it


def named() -> str:
    """Return the GPU's name, such as "NVIDIA H100 80GB HBM3"."""
    return torch.cuda.get_device_name(GPU)


def jobs(rounds: int) -> Iterator[tuple[str, Callable[[], BenchTable]]]:
    """Return the benchmark's tables as functions, with a name for each."""
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            yield f"rotation {shape}", partial(time_rotation, shape, dtype, rounds)
    for kind, lengths in LENGTHS.items():
        for tokens in lengths:
            yield f"{kind}, {tokens:,}", partial(time_attention, kind, tokens, rounds)


def timed(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    """Time functions on the GPU, sampled in turn; return seconds of one call."""
    repeats = {}
    for name, run in runs.items():
        run()
        seconds = min(_seconds(run, 2) for _ in range(2))
        repeats[name] = max(1, int(ENOUGH / seconds))
    seconds = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(_seconds(run, repeats[name]))
    return {
        name: Times(statistics.median(each), min(each), len(each), 0)
        for name, each in seconds.items()
    }


def _seconds(run: Callable[[], object], repeats: int) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        run()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / 1e3 / repeats


def peak(run: Callable[[], object]) -> float:
    """Return the MB that a call allocates at most, its results included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def time_rotation(shape: tuple[int, int, int, int], dtype: torch.dtype, rounds: int) -> BenchTable:
    """Time the rotation of queries and keys of the same shape."""
    q, k = (torch.randn(shape, device=GPU).to(dtype) for _ in "qk")
    pos, freqs = sequence(shape[2]).to(GPU), frequencies(shape[3]).to(GPU)
    by = turn(pos, freqs)
    cos, sin = (torch.cat((part, part), -1).to(dtype) for part in by)

    def halves(x: Tensor) -> Tensor:
        """Rotate as transformers does, whose tables have the dtype of q."""
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    compiled = torch.compile(lambda q, k: (formula(q, by, "half"), formula(k, by, "half")))
    ways: dict[str, rotation.Both] = {
        rotation.LIMIT: lambda q, k: (q.clone(), k.clone()),
        "posenc half": lambda q, k: (rotate(q, by, "half"), rotate(k, by, "half")),
        "posenc interleaved": lambda q, k: (
            rotate(q, by, "interleaved"), rotate(k, by, "interleaved"),
        ),
        "posenc half, compiled by torch": compiled,
        "formula half": lambda q, k: (formula(q, by, "half"), formula(k, by, "half")),
        "lines of transformers": lambda q, k: (halves(q), halves(k)),
    }  # fmt: skip
    errors = {}
    expected = {
        layout: formula(q.double(), turn(pos, freqs), layout) for layout in rotation.LAYOUTS
    }
    for name, run in ways.items():
        if name != rotation.LIMIT:
            want = expected["interleaved" if "interleaved" in name else "half"]
            errors[name] = ((run(q, k)[0] - want).abs().max() / want.abs().max()).item()
    del expected
    runs = {name: partial(run, q, k) for name, run in ways.items()}
    times = timed(runs, rounds)
    memory = {name: peak(run) for name, run in runs.items()}
    case = f"{shape}, {str(dtype).removeprefix('torch.')}, {named()}"
    return table("cuda", case, rotation.LIMIT, times, {}, errors, memory)


def time_attention(kind: str, tokens: int, rounds: int) -> BenchTable:
    """Time attention with every bias in bfloat16, and its usual form with a stored bias."""
    trains, queries = kind == "training", 1 if kind == "decode" else tokens
    runs, (q, k, v) = implementations(tokens, kind), inputs(queries, tokens, trains)

    def once(run: attention.Run) -> None:
        with torch.set_grad_enabled(trains):
            out = run(q, k, v)
            if trains:
                out.sum().backward()

    calls, errors, skipped = {}, {}, {}
    for name, run in runs.items():
        try:
            once(run)
            torch.cuda.synchronize()
        except Exception as error:
            # One implementation that fails must not hide the others
            skipped[name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            continue
        calls[name] = partial(once, run)
        errors[name] = difference(run, name)
    times = timed(calls, rounds)
    memory = {name: peak(run) for name, run in calls.items()}
    shown = f"1 query, {tokens:,} keys" if kind == "decode" else f"{tokens:,} tokens"
    case = f"{kind}: {shown}, {attention.HEADS} heads of {attention.DIM}, bfloat16, {named()}"
    limit_of = partial(attention._limit, kind=kind)
    return table("cuda", case, attention.LIMIT, times, skipped, errors, memory, limit_of)


def implementations(tokens: int, kind: str) -> dict[str, attention.Run]:
    """Return the implementations of attention to time, by name."""
    ways = {n: w for n, w in attention.cases(tokens).items() if "DeBERTa in" not in n and n != FAR}
    ways.pop("materialised DeBERTa", None)  # in float32 alone
    if kind == "decode":
        for name in (*attention.FROM_HIDDEN, "posenc DeBERTa", attention.LIMIT_BOTH_WAYS):
            ways.pop(name)
    ways[attention.LIMIT] = attention.torch_attention
    ways["posenc NoPE"] = attention.Candidate(attention.PLAIN)
    for run in ways.values():
        if isinstance(getattr(run, "encoding", None), torch.nn.Module):
            run.encoding.to(GPU)
    return ways


def inputs(queries: int, keys: int, trains: bool = False) -> list[Tensor]:
    return [
        x.detach().to(GPU, torch.bfloat16).requires_grad_(trains)
        for x in attention.inputs(queries, keys)
    ]


def difference(run: attention.Run, name: str, tokens: int = 256) -> float | None:
    """Return the largest difference from the definition on a short text, relative to its values."""
    if not isinstance(run, attention.Candidate):
        return None
    q, k, v = inputs(tokens, tokens)
    with torch.no_grad():
        exact = attention.Candidate(run.encoding, run.causal, "reference")
        want = exact(q.float(), k.float(), v.float())
        return ((run(q, k, v) - want).abs().max() / want.abs().max()).item()
