"""Text moved far along, against what is known of four encodings."""

import re

import pytest
import torch

from posenc import Integer, Learned, NoPE, RoPE, SelfAttention, axial
from posenc.analysis import length


@pytest.mark.parametrize("encoding", [NoPE(), RoPE(8), RoPE(axial(8, 2))], ids=["none", "1d", "2d"])
def test_what_is_relative_stays_the_same(encoding):
    (far,) = length.far_changes(SelfAttention(16, 2, encoding), torch.randn(2, 7, 16), [10**6])
    assert far.change is not None
    assert far.change < 1e-5


def test_what_is_absolute_changes():
    (far,) = length.far_changes(SelfAttention(16, 2, Integer(16)), torch.randn(2, 7, 16), [1000])
    assert far.change is not None
    assert far.change > 10


def test_a_table_refuses_and_says_why():
    (far,) = length.far_changes(SelfAttention(16, 2, Learned(64, 16)), torch.randn(2, 7, 16), [64])
    assert far.change is None
    assert re.search(r"`pos` .* 63\b", far.why)


def test_each_start_is_its_own():
    layer, x = SelfAttention(16, 2, Integer(16)), torch.randn(1, 5, 16)
    found = length.far_changes(layer, x, [0, 3, 100])
    assert [far.start for far in found] == [0, 3, 100]
    assert found[0].change == 0
    assert found[1] == length.far_changes(layer, x, [3])[0]
    assert found[1].change < found[2].change
