"""Benchmark of the rotation of queries and keys by several libraries; the limit is a copy of both.

Before it is timed, each is compared with the formula in float64. Ours must equal the formula up to
the last bit; the errors of others are listed. transformers and the code copied from other libraries
receive posenc's tables of cosines and sines, so their errors are those of the rotation only.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from benchmarks import memory
from benchmarks.results import BenchTable, Target, table
from benchmarks.timing import timed
from posenc.compat.threads import threads
from posenc.core.frequencies import Layout, frequencies
from posenc.core.positions import sequence
from posenc.rotation.kernels import kernel_for
from posenc.rotation.rotate import ON_CPU, _Rotation, formula, rotate
from posenc.rotation.table import Turn, turn

Both = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
LIMIT = "a copy"
FIRST = 7  # position of the first token
LAYOUTS: tuple[Layout, ...] = ("interleaved", "half")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Shapes:
    """The shapes of a case's queries and keys: (batch, head, token, channel)."""

    q: tuple[int, int, int, int]
    k: tuple[int, int, int, int]
    strided: bool = False  # memory order (batch, token, head, channel), as after a projection

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        qk = []
        for batch, heads, tokens, channels in (self.q, self.k):
            shape = (
                (batch, tokens, heads, channels)
                if self.strided
                else (batch, heads, tokens, channels)
            )
            x = torch.randn(shape, generator=generator).to(dtype)
            qk.append(x.transpose(1, 2) if self.strided else x)
        return qk[0], qk[1]


CASES = {
    "long": Shapes((1, 32, 4096, 128), (1, 32, 4096, 128)),
    "wide": Shapes((8, 12, 2048, 64), (8, 12, 2048, 64)),
    "mid": Shapes((8, 12, 512, 64), (8, 12, 512, 64)),
    "grouped": Shapes((1, 32, 4096, 128), (1, 8, 4096, 128)),
    "strided": Shapes((1, 32, 4096, 128), (1, 32, 4096, 128), strided=True),
    "decode": Shapes((32, 32, 1, 128), (32, 32, 1, 128)),
    "tiny": Shapes((1, 32, 1, 128), (1, 8, 1, 128)),
}
SMALL = ("decode", "tiny")  # cases in which the overhead of calls dominates
LARGE = 8 * 2**20  # least size of the queries in bytes for which there are targets


def time_rotation(
    name: str, dtype: str, backward: bool, rounds: int, budget: float, compiled: bool = True
) -> BenchTable:
    """Time every implementation but Numba, whose threads would disturb the others."""
    q, k = CASES[name].tensors(DTYPES[dtype])
    ways, skipped = candidates(q, k, compiled)
    return _timed("rotation", name, dtype, backward, ways, skipped, rounds, budget)


def time_numba(name: str, dtype: str, backward: bool, rounds: int, budget: float) -> BenchTable:
    """Time rotations in the half layout by Numba's kernel, which the extra `fast` installs."""
    q = CASES[name].tensors(DTYPES[dtype])[0]
    by = turn(sequence(q.shape[2], FIRST), frequencies(q.shape[-1]))
    ways: dict[str, Both] = {LIMIT: _copy, "posenc half: halves": _halves(by)}
    skipped = {}
    if kernel_for(q, by, "half") == "numba":
        ways["posenc half: numba"] = _both(by, "half")
    else:
        skipped["posenc half: numba"] = "not installed (numba)"
    return _timed("fast", name, dtype, backward, ways, skipped, rounds, budget)


def time_beside_load(dtype: str, rounds: int, budget: float) -> BenchTable:
    """Time rotations in the half layout on all cores, while two other processes are busy.

    A thread without a core is late, and in each parallel region all others wait for it.
    """
    q, k = CASES["long"].tensors(DTYPES[dtype])
    pos, dim = sequence(q.shape[2], FIRST), q.shape[-1]
    by = turn(pos, frequencies(dim))
    ways: dict[str, Both] = {LIMIT: _copy, "posenc half: halves": _halves(by)}
    if kernel_for(q, by, "half") == "numba":
        ways["posenc half: numba"] = _both(by, "half")
    skipped = {}
    try:
        ways |= _transformers(pos, dim, q.dtype)
    except ImportError as error:
        skipped["transformers"] = f"not installed ({error.name})"
    with threads(os.cpu_count() or 1), busy_processes(2):
        runs = {who: _run(who, run, q, k, False) for who, run in ways.items()}
        times = timed(runs, rounds, budget, busy=True)
        case = f"long, beside two busy processes: {tuple(q.shape)}, {dtype}, forward"
        result = table("rotation", case, LIMIT, times, skipped)
    half, other = result.row("posenc half: halves"), result.row("transformers")
    if half and other:
        ratio = half.times.median / other.times.median
        result.targets.append(Target("posenc half: halves / transformers", ratio, 1.0))
    return result


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    begun = [
        subprocess.Popen([sys.executable, "-P", "-c", "while True: pass"]) for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in begun:
            process.kill()
            process.wait()


def _timed(
    part: str,
    name: str,
    dtype: str,
    backward: bool,
    ways: dict[str, Both],
    skipped: dict[str, str],
    rounds: int,
    budget: float,
) -> BenchTable:
    q, k = CASES[name].tensors(DTYPES[dtype])
    errors = {who: _error(who, run, q, k) for who, run in ways.items()}
    times = timed(
        {who: _run(who, run, q, k, backward) for who, run in ways.items()}, rounds, budget
    )
    measured = part == "rotation" and not backward and name not in SMALL
    peak_memory = memory.peaks("rotation", name, dtype) if measured else {}
    shown = " and ".join(f"{tuple(x.shape)}" for x in ((q,) if q.shape == k.shape else (q, k)))
    what = "forward and backward, of two copies" if backward else "forward"
    result = table(
        part, f"{name}: {shown}, {dtype}, {what}", LIMIT, times, skipped, errors, peak_memory
    )
    result.targets.extend(_targets(result, name, dtype, backward))
    return result


def peaks(name: str, dtype: str) -> dict[str, float]:
    """Measure the peak memory of one forward call in MB, including the results."""
    q, k = CASES[name].tensors(DTYPES[dtype])
    first_tokens = q[:, :, :8].contiguous(), k[:, :, :8].contiguous()
    warm = candidates(*first_tokens, compiled=False)[0]
    peak_of = {}
    with torch.no_grad():
        for who, run in candidates(q, k, compiled=False)[0].items():
            if who in warm:
                warm[who](*first_tokens)
            peak_of[who] = memory.peak(lambda run=run: run(q, k))
    return peak_of


def candidates(q: Tensor, k: Tensor, compiled: bool) -> tuple[dict[str, Both], dict[str, str]]:
    """Return the implementations by name, and the reasons why others are missing."""
    pos, dim, dtype = sequence(q.shape[2], FIRST), q.shape[-1], q.dtype
    ways: dict[str, Both] = {LIMIT: _copy}
    if compiled:
        # torch compiles the same code for only a few shapes
        torch.compiler.reset()
    skipped = {}
    for layout in LAYOUTS:
        by = turn(pos, frequencies(dim))
        both = _both(by, layout)
        # `time_numba` measures the Numba kernel
        if kernel_for(q, by, layout) == "numba":
            ways["posenc half: halves"] = _halves(by)
        else:
            ways[f"posenc {layout}: {kernel_for(q, by, layout)}"] = both
        if compiled:
            try:
                run = torch.compile(both, dynamic=False)
                run(q, k)
                ways[f"posenc {layout}, compiled"] = run
            except Exception as error:
                # Compilation may fail for any reason, such as a missing compiler
                skipped[f"posenc {layout}, compiled"] = str(error).strip().splitlines()[0]
    for library in LIBRARIES:
        try:
            ways |= library(pos, dim, dtype)
        except ImportError as error:
            skipped[library.__name__.strip("_").replace("_", "-")] = f"not installed ({error.name})"
    return ways, skipped


def _copy(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q.clone(), k.clone()


def _both(by: Turn, layout: Layout) -> Both:
    return lambda q, k: (rotate(q, by, layout), rotate(k, by, layout))


def _halves(by: Turn) -> Both:
    """Return a function that rotates with torch's kernel, even if Numba is installed."""

    def turned(x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            return _Rotation.apply("halves", "half", None, *by, x)
        return ON_CPU["halves"](x, by)

    return lambda q, k: (turned(q), turned(k))


def _run(who: str, run: Both, q: Tensor, k: Tensor, backward: bool) -> Callable[[], object]:
    if not backward:
        if q.numel() > 1 << 20:
            return torch.no_grad()(lambda: run(q, k))
        # Without no_grad, whose overhead would equal that of a call
        return lambda: run(q, k)
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    grads = torch.randn_like(q), torch.randn_like(k)
    # Two copies, because the gradient of a copy copies nothing
    if who == LIMIT:
        return torch.no_grad()(lambda: (run(q, k), run(*grads)))
    return lambda: torch.autograd.grad(run(q, k), (q, k), grads)


def _error(who: str, run: Both, q: Tensor, k: Tensor) -> float | None:
    if who == LIMIT:
        return None
    layout: Layout = "interleaved" if "interleaved" in who else "half"
    by = turn(sequence(q.shape[2], FIRST), frequencies(q.shape[-1]))
    worst = 0.0
    with torch.no_grad():
        for x, turned in zip((q, k), run(q, k), strict=True):
            exact = formula(x.double(), by, layout)
            worst = max(worst, ((turned - exact).abs().max() / exact.abs().max()).item())
            if who.startswith("posenc"):
                # In 16 bits the last bit may differ
                rtol = 0 if x.dtype == torch.float32 else 2**-7
                torch.testing.assert_close(turned, formula(x, by, layout), rtol=rtol, atol=1e-6)
    return worst


def _targets(table: BenchTable, name: str, dtype: str, backward: bool) -> Iterator[Target]:
    def over(ours: str, other: str, most: float) -> Iterator[Target]:
        ours_row, other_row = table.row(ours), table.row(other)
        # Only if the peer is installed, or was compiled
        if ours_row and other_row:
            yield Target(
                f"{ours_row.name} / {other_row.name}",
                ours_row.times.median / other_row.times.median,
                most,
            )

    half, interleaved = "posenc half: halves", "posenc interleaved:"
    if name == "tiny" and dtype == "float32" and not backward:
        yield from over(interleaved, "transformers", 1.0)
    if prod(CASES[name].q) * DTYPES[dtype].itemsize < LARGE:
        return
    if table.part == "fast":
        if not backward:
            yield from over("posenc half: numba", LIMIT, 1.3 if dtype == "float32" else 1.9)
    elif backward:
        if dtype == "float32":
            yield from over(half, LIMIT, 2.8)
            yield from over(interleaved, LIMIT, 1.6)
    elif dtype == "float32":
        yield from over(half, LIMIT, 2.8)
        yield from over(interleaved, LIMIT, 1.4)
        for other in ("transformers", "vLLM native", "flash-attn torch"):
            yield from over(half, other, 1 / 2)
        yield from over("posenc half, compiled", LIMIT, 1.3)
    else:
        yield from over(half, LIMIT, 5.5)
        yield from over(half, "transformers", 1 / 1.4)
        yield from over("posenc half, compiled", LIMIT, 1.9)


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
    rope = library.RotaryEmbedding(dim, cache_max_seq_len=len(pos) + FIRST)
    for parameter in rope.parameters():
        parameter.requires_grad_(False)
    turned = lambda x: rope.rotate_queries_or_keys(x, offset=FIRST)  # noqa: E731
    return {"rotary-embedding-torch (interleaved)": lambda q, k: (turned(q), turned(k))}


def _x_transformers(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    library = importlib.import_module("x_transformers.x_transformers")
    freqs, scale = library.RotaryEmbedding(dim)(pos)
    turned = lambda x: library.apply_rotary_pos_emb(x, freqs, scale)  # noqa: E731
    return {"x-transformers (interleaved)": lambda q, k: (turned(q), turned(k))}


def _torchtune(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    library = importlib.import_module("torchtune.modules")
    rope = library.RotaryPositionalEmbeddings(dim, max_seq_len=len(pos) + FIRST + 1)

    def turned(x: Tensor) -> Tensor:  # (batch, token, head, channel)
        return rope(x.transpose(1, 2), input_pos=pos).transpose(1, 2)

    return {"torchtune (interleaved)": lambda q, k: (turned(q), turned(k))}


def _written_out(pos: Tensor, dim: int, dtype: torch.dtype) -> dict[str, Both]:
    """Return copies of the rotations of libraries that cannot be installed without a GPU."""
    cos, sin = _tables(pos, dim)
    cis = torch.complex(cos, sin)

    # vLLM's RotaryEmbedding.forward_native
    def vllm(x: Tensor) -> Tensor:
        (a, b), c, s = x.chunk(2, -1), cos.to(x.dtype), sin.to(x.dtype)
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    # flash-attn's apply_rotary_emb_torch
    def flash_attn(x: Tensor) -> Tensor:
        c, s = (t.to(x.dtype).repeat(1, 2) for t in (cos, sin))
        a, b = x.chunk(2, -1)
        return torch.cat((x[..., :dim] * c + torch.cat((-b, a), -1) * s, x[..., dim:]), -1)

    # Meta's apply_rotary_emb for Llama
    def meta(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * cis).flatten(3).type_as(x)

    named = {"vLLM native": vllm, "flash-attn torch": flash_attn, "Meta (interleaved)": meta}
    return {name: lambda q, k, f=f: (f(q), f(k)) for name, f in named.items()}


LIBRARIES = (_transformers, _rotary_embedding_torch, _x_transformers, _torchtune, _written_out)
