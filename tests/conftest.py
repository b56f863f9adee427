"""Every test starts from the same seed; one small comparison of everything serves all."""

import jaxtyping
import pytest
import torch

torch.set_num_threads(1)  # tensors are small here; threads would wait for each other


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_numba(monkeypatch):
    """It cannot compile what the shape checker has wrapped; rotary/in_numba.py tests it apart."""
    monkeypatch.setattr("posenc.rotary.path._numba", lambda: None)


@pytest.fixture
def unchecked(monkeypatch):
    """The library as its users meet it: its own errors, not those of the shape checker."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def small():
    """Settings small enough to compare everything within a test."""
    from posenc.analysis.comparison import Settings

    return Settings(
        dim=16, heads=2, window=12, windows=2, sentences=3, cost_tokens=16, cost_rounds=1
    )


@pytest.fixture(scope="session")
def everything(small):
    """Every encoding on the packaged novel."""
    from posenc.analysis.comparison import compare

    return compare(settings=small)


@pytest.fixture(scope="session")
def portrait(small):
    """Four encodings of different kinds looked at closely."""
    from posenc.analysis.portrait import portray

    return portray(["sinusoidal", "rope", "alibi", "axial-rope"], settings=small)
