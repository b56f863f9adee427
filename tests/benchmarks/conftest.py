"""Benchmarks without other processes and other libraries."""

from dataclasses import replace
from itertools import product

import pytest

from benchmarks import rotation
from benchmarks.results import BenchTable, Target, TimedRow
from benchmarks.run import Benchmark
from benchmarks.timing import Times
from posenc.support.provenance import since


@pytest.fixture
def few_others(monkeypatch):
    """No other process, and of the libraries those that the tests install."""
    monkeypatch.setattr("benchmarks.memory.peaks", lambda *words: {})
    installed = rotation._transformers, rotation._written_out
    monkeypatch.setattr("benchmarks.rotation.LIBRARIES", installed)


@pytest.fixture(scope="session")
def benchmarked():
    """Benchmarks made up; the name of one way to do it, and why another is missing, are hostile."""

    hostile = '</script><script>alert("x")</script>'
    rows = [
        TimedRow("a copy", Times(0.00123, 0.00121, 21, 2), 1.0),
        TimedRow("posenc half: blocks", Times(0.00297, 0.00291, 19, 4), 2.41, 8.1e-8, 48.2),
        TimedRow(f"others {hostile}", Times(0.0153, 0.0147, 20, 3), 12.4, 1.7e-4, 96.9),
    ]
    targets = [Target("half / a copy", 2.41, 2.8), Target("half, MB", 48.2, 30.0)]
    tables = [
        BenchTable(part, case, "a copy", rows, {"torchtune": hostile}, "warm", 2, targets)
        for part, case in product(("rotation", "attention"), ("long", "short"))
    ]
    libraries = {"transformers": "5.23.0"}
    made = replace(since(0.0, seed=0), seconds=83.0)
    return Benchmark(tables, True, "A processor, AVX2", libraries, made)
