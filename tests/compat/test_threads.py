"""Held against torch's own count of threads."""

import threading

import pytest
import torch

from posenc.compat import private_torch
from posenc.compat.threads import alone, free_threads, spread, threads


@pytest.fixture(autouse=True)
def two():
    """The caller's threads; those of the tests that follow are as they were."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_caller_has_its_threads_again():
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def _fail():
    with threads(1):
        raise ValueError("of this test")


def test_the_caller_has_its_threads_again_after_an_error():
    with pytest.raises(ValueError, match="of this test"):
        _fail()
    assert torch.get_num_threads() == 2


def _seen(n):
    return n, threading.get_native_id(), torch.get_num_threads(), torch.is_grad_enabled()


PYTHONS = "threads of Python"
OPENMP = pytest.param(
    "threads of OpenMP",
    marks=pytest.mark.skipif(private_torch._parallel is None, reason="torch has other threads"),
)


@pytest.mark.parametrize("kind", [OPENMP, PYTHONS])
def test_items_are_computed_in_threads_that_start_no_others(kind, monkeypatch):
    """Held against a barrier, which only threads that compute at the same time can pass."""
    if kind is PYTHONS:
        monkeypatch.setattr(private_torch, "_parallel", None)
    barrier = threading.Barrier(2)

    def meet(n):
        barrier.wait(60)
        return _seen(n)

    numbers, by, counts, records = zip(*spread(meet, range(2)), strict=True)
    assert numbers == (0, 1)
    assert len({*by}) == 2
    assert counts == (1, 1)
    assert not any(records)
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(private_torch._parallel is None, reason="torch has other threads")
def test_torchs_own_threads_compute():
    """Against the system's ids: those of Python's threads would be new in each call."""
    barrier = threading.Barrier(2)

    def thread(_):
        barrier.wait(60)
        return threading.get_native_id()

    assert {*spread(thread, range(2))} == {*spread(thread, range(2))}


def test_items_that_no_other_thread_takes_are_computed(monkeypatch):
    """OpenMP may start fewer threads than items, within another region for instance."""
    monkeypatch.setattr(private_torch, "in_region", lambda f, count: f())
    assert spread(abs, [-1, -2, -3]) == [1, 2, 3]


@pytest.mark.skipif(private_torch._parallel is None, reason="torch has other threads")
def test_within_a_region_torch_starts_no_other():
    """Held against torch: a product within a region is computed by its thread alone."""
    x = torch.randn(300, 300)
    expected = x @ x
    for product in spread(lambda _: (x @ x, torch.get_num_threads()), range(2)):
        torch.testing.assert_close(product, (expected, 1))


def test_alone_leaves_the_other_threads_to_what_is_spread():
    with alone():
        assert torch.get_num_threads() == 1
        assert free_threads() == 2
        with alone():
            assert free_threads() == 2
    assert (torch.get_num_threads(), free_threads()) == (2, 1)


def test_an_error_of_a_thread_reaches_the_caller():
    def fail(n):
        if n:
            raise ValueError("of this test")

    with pytest.raises(ValueError, match="of this test"):
        spread(fail, range(2))
    assert torch.get_num_threads() == 2


def test_a_mode_that_observes_operations_observes_all():
    """Held against the threads: a mode of torch is seen in one of them only."""

    class Mode(private_torch.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        assert {by for _, by, *_ in spread(_seen, range(2))} == {threading.get_native_id()}
