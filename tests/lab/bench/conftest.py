"""Benchmarks without other processes and other libraries."""

import pytest

from posenc.lab.bench import rotation


@pytest.fixture
def few_others(monkeypatch):
    """No other process, and of the libraries those that the tests install."""
    monkeypatch.setattr("posenc.lab.bench.memory.peaks", lambda *words: {})
    installed = rotation._transformers, rotation._written_out
    monkeypatch.setattr("posenc.lab.bench.rotation.LIBRARIES", installed)
