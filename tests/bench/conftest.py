"""Benchmarks without other processes and other libraries."""

import pytest

from posenc.bench import rotation


@pytest.fixture
def few_others(monkeypatch):
    """No other process, and of the libraries those that the tests install."""
    monkeypatch.setattr("posenc.bench.memory.peaks", lambda *words: {})
    installed = rotation._transformers, rotation._written_out
    monkeypatch.setattr("posenc.bench.rotation.LIBRARIES", installed)
