"""Held against torch's own count of threads."""

import pytest
import torch

from posenc.core.threads import threads


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
