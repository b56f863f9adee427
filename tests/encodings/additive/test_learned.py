"""Learned against torch's own embedding table."""

import pytest
import torch
from refusals import refused
from torch import nn

from posenc import Learned


def test_adds_the_row_that_an_embedding_table_gives():
    encoding, table = Learned(7, 6), nn.Embedding(7, 6)
    table.weight.data.copy_(encoding.table.data)
    x, pos = torch.randn(2, 4, 6), torch.tensor([[0, 1, 6, 3], [2, 2, 0, 5]])
    assert encoding(x, pos).equal(x + table(pos))


def test_starts_small_as_in_gpt_2():
    table = Learned(1024, 768).table
    assert table.shape == (1024, 768)
    assert table.std().item() == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize("pos", [[0, 7], [-1, 0]])
def test_past_either_end_there_is_no_row(pos):
    with refused(IndexError, 0, 6, "`pos`") as error:
        Learned(7, 6)(torch.ones(1, 2, 6), torch.tensor(pos))
    for told in (f"{pos[0]} … {pos[1]}", "`length`", '`beyond="clamp"`', "ALiBi"):
        assert told in str(error.value)


def test_clamping_repeats_the_outermost_rows():
    encoding = Learned(7, 6, beyond="clamp")
    out = encoding(torch.zeros(1, 4, 6), torch.tensor([-5, 6, 7, 10**9]))[0]
    assert out.equal(encoding.table[[0, 6, 6, 6]])


def test_only_the_rows_used_are_trained():
    encoding = Learned(7, 6)
    encoding(torch.zeros(1, 3, 6), torch.tensor([1, 4, 4])).sum().backward()
    assert encoding.table.grad[:, 0].tolist() == [0, 1, 0, 0, 2, 0, 0]


def test_says_what_cannot_be(unchecked):
    with refused(TypeError, "`pos`", "float32"):
        Learned(7, 6).prepare(torch.tensor([1.0]))
    with refused(ValueError, "`beyond`", "'refuse'", "'clamp'", "'wrap'"):
        Learned(7, 6, beyond="wrap")
