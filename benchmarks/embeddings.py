"""Benchmark of adding sinusoids to embeddings by several libraries; the limit is a copy."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks import memory
from benchmarks.results import BenchTable, table
from benchmarks.timing import timed
from posenc.core.positions import sequence
from posenc.encodings.additive.sinusoidal import Sinusoidal

LIMIT = "a copy"
SHAPE = (8, 2048, 512)  # batch, token, channel


def time_embeddings(rounds: int, budget: float) -> BenchTable:
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    runs, skipped = _implementations()
    errors = {name: _error(name, run, x) for name, run in runs.items()}
    with torch.no_grad():
        times = timed({name: lambda run=run: run(x) for name, run in runs.items()}, rounds, budget)
    peak_memory, case = memory.peaks("embeddings"), f"{SHAPE}, float32, forward"
    return table("embeddings", case, LIMIT, times, skipped, errors, peak_memory)


def peaks() -> dict[str, float]:
    """Measure the peak memory of one call in MB, including the result."""
    x, peak_of = torch.randn(SHAPE), {}
    with torch.no_grad():
        for name, run in _implementations()[0].items():
            run(x[:1, :8])
            peak_of[name] = memory.peak(lambda run=run: run(x))
    return peak_of


def _implementations() -> tuple[dict[str, Callable[[Tensor], Tensor]], dict[str, str]]:
    sinusoidal, dim = Sinusoidal(SHAPE[-1]), SHAPE[-1]
    at = sinusoidal.prepare(sequence(SHAPE[1]))
    first: Callable[[int], Any] = lambda tokens: at.slice_tokens(slice(tokens))  # noqa: E731
    runs: dict[str, Callable[[Tensor], Tensor]] = {
        LIMIT: lambda x: x.clone(),
        "posenc, rows made once a forward": lambda x: sinusoidal.on_embeddings(
            x, first(x.shape[1])
        ),
        "posenc, rows made anew": lambda x: sinusoidal(x),
    }
    try:
        library = importlib.import_module("positional_encodings.torch_encodings")
        summer = library.Summer(library.PositionalEncoding1D(dim))
        runs["positional-encodings, rows kept"] = summer
    except ImportError as error:
        return runs, {"positional-encodings": f"not installed ({error.name})"}
    return runs, {}


def _error(name: str, run: Callable[[Tensor], Tensor], x: Tensor) -> float | None:
    """Measure the error of position vectors against float64 sines and cosines of angles."""
    if name == LIMIT:
        return None
    tokens, dim = x.shape[1:]
    angle = torch.arange(tokens).double().unsqueeze(-1) * 10_000 ** -(
        torch.arange(0, dim, 2).double() / dim
    )
    exact = torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)
    with torch.no_grad():
        error = (run(torch.zeros_like(x))[0] - exact).abs().max().item()
    if name.startswith("posenc"):
        assert error < 1e-6, f"{name} is {error} off"
    return error
