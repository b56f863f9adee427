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
    return n, threading.current_thread(), torch.get_num_threads(), torch.is_grad_enabled()


def test_items_are_computed_in_threads_that_start_no_others():
    numbers, by, counts, records = zip(*spread(_seen, range(3)), strict=True)
    assert numbers == (0, 1, 2)
    assert len({*by}) == 3
    assert counts == (1, 1, 1)
    assert not any(records)
    assert torch.get_num_threads() == 2


def test_alone_leaves_the_other_threads_to_what_is_spread():
    with alone():
        assert torch.get_num_threads() == 1
        assert free_threads() == 2
        with alone():
            assert free_threads() == 2
    assert torch.get_num_threads() == free_threads() == 2


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
        assert {by for _, by, *_ in spread(_seen, range(2))} == {threading.current_thread()}
