"""Every path of attention, against the interface that `Path` requires."""

import pytest
import torch

from posenc import NoPE, attend
from posenc.attention.dispatch import PATHS, chosen
from posenc.attention.inputs import validate
from posenc.attention.path import Path


def call():
    q = torch.randn(1, 2, 5, 8)
    return validate(q, q, q, NoPE(), None, None, None, None)


@pytest.mark.parametrize("name", PATHS)
def test_each_says_what_it_serves_and_why_in_words(name):
    path, one = PATHS[name], call()
    assert isinstance(path, Path)
    assert isinstance(path.cannot(one), str)
    assert isinstance(path.skips(one), str)
    assert path.why(one).endswith(".")


def test_a_way_of_ones_own_serves_everything_until_it_says_otherwise():
    own = Path()
    assert own.cannot(call()) == own.skips(call()) == ""
    with pytest.raises(NotImplementedError):
        own.run(call())


def test_auto_takes_the_first_that_suits_and_serves():
    """Against a way that is put before all others."""

    class Zeros(Path):
        def skips(self, call):
            return "" if call.q.shape[2] == 5 else "it likes five tokens"

        def why(self, call):
            return "five tokens."

        def run(self, call):
            return torch.zeros_like(call.q)

    before = dict(PATHS)
    PATHS.clear()
    PATHS.update({"zeros": Zeros()} | before)
    try:
        assert str(chosen(call())) == "zeros: five tokens."
        q = torch.randn(1, 2, 6, 8)
        assert attend(q, q, q, NoPE()).ne(0).any()
        assert attend(*[q[:, :, :5]] * 3, NoPE()).eq(0).all()
    finally:
        PATHS.clear()
        PATHS.update(before)
