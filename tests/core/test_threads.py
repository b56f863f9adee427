"""Held against torch's own count of threads."""

import pytest
import torch

from posenc.core.threads import threads


def test_the_caller_has_its_threads_again():
    torch.set_num_threads(2)
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def _fail():
    with threads(1):
        raise ValueError("of this test")


def test_the_caller_has_its_threads_again_after_an_error():
    torch.set_num_threads(2)
    with pytest.raises(ValueError, match="of this test"):
        _fail()
    assert torch.get_num_threads() == 2
