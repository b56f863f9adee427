"""Swin against the modules of transformers' Swin and BEiT, and against a loop over offsets."""

import pytest
import torch
from refusals import refused
from transformers import BeitConfig
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.swin.modeling_swin import SwinRelativePositionBias

from posenc import Swin, attend
from posenc.positions import grid

CLASS = torch.tensor([[-1, 0]])


@pytest.mark.parametrize("window", [(7, 7), (3, 5), (1, 4)], ids=str)
def test_equals_transformers_swin(window):
    theirs, ours = SwinRelativePositionBias(3, window), Swin(3, window)
    theirs.relative_position_bias_table.data = ours.table.data
    assert ours(grid(*window)).equal(theirs())


# For other shapes transformers reads the table in another order, with rows and columns exchanged
@pytest.mark.parametrize("size", [(2, 2), (5, 5)], ids=str)
def test_equals_transformers_beit_with_its_class_token(size):
    config = BeitConfig(image_size=[8 * side for side in size], patch_size=8, num_attention_heads=3)
    theirs, ours = BeitRelativePositionBias(config), Swin(3, size, class_token=True)
    theirs.relative_position_bias_table.data = ours.table.data
    points = torch.cat((CLASS, grid(*size)))
    assert ours(points).equal(theirs(size))


def test_queries_may_be_other_patches_than_keys():
    encoding, queries, keys = Swin(2, (3, 4)), grid(2, 3) + 1, grid(3, 4).flip(0)
    bias = encoding(queries, keys)[0]
    for i, (row, column) in enumerate(queries.tolist()):
        for j, (key_row, key_column) in enumerate(keys.tolist()):
            index = (row - key_row + 2) * 7 + column - key_column + 3
            assert bias[:, i, j].equal(encoding.table[index])


def test_offsets_beyond_the_window_share_the_number_at_its_edge():
    encoding = Swin(2, window=3)
    far = encoding(
        torch.tensor([[0, 0]]), torch.tensor([[-9, 1], [1, -9], [9, -9], [10**6, 10**6]])
    )
    edge = encoding(torch.tensor([[0, 0]]), torch.tensor([[-2, 1], [1, -2], [2, -2], [2, 2]]))
    assert far.equal(edge)


def test_without_a_class_token_negative_rows_are_patches():
    encoding = Swin(2, window=4)
    assert encoding(grid(4, 4) - 3).equal(encoding(grid(4, 4)))


def test_several_class_tokens_share_their_numbers():
    encoding = Swin(2, window=2, class_token=True)
    points = torch.cat((CLASS, CLASS - 5, grid(2, 2)))
    bias = encoding(points)[0]
    to_patch, from_patch, to_class = encoding.table[-3:].unsqueeze(-1)
    assert bias[:, :2, 2:].flatten(1).equal(to_patch.expand(-1, 8))
    assert bias[:, 2:, :2].flatten(1).equal(from_patch.expand(-1, 8))
    assert bias[:, :2, :2].flatten(1).equal(to_class.expand(-1, 4))


def test_adds_the_bias_to_the_scores():
    encoding, points = Swin(2, window=3), grid(3, 3)
    q, k, v = torch.randn(3, 1, 2, 9, 8)
    scores = q @ k.mT / 8**0.5 + encoding(points)
    torch.testing.assert_close(attend(q, k, v, encoding, points), scores.softmax(-1) @ v)


@pytest.mark.parametrize("window", [0, (3, 0), (3, 3, 3), 2.5])
def test_refuses_a_window_without_two_sides(window):
    with refused((ValueError, TypeError), "`window`"):
        Swin(2, window)


def test_refuses_fractions():
    with refused(TypeError, "`pos`", "Swin"):
        Swin(2)(grid(2, 2) / 2)
