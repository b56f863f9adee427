"""Integer against plain addition, and against the numbers of the seed texts."""

import torch

from posenc import Integer


def test_adds_the_position_to_every_channel():
    x, pos = torch.randn(2, 4, 6, dtype=torch.float64), torch.tensor([0, 1, 100, -3])
    out = Integer(6)(x, pos)
    for token, p in enumerate(pos.tolist()):
        for channel in range(6):
            assert out[1, token, channel].item() == x[1, token, channel].item() + p


def test_the_first_word_of_the_text_becomes_larger_by_one():
    dog = torch.tensor([[[0.10, 0.80, 0.45]]])
    torch.testing.assert_close(
        Integer(3)(dog, torch.tensor([1])), torch.tensor([[[1.10, 1.80, 1.45]]])
    )


def test_the_hundredth_word_drowns_in_its_position():
    word = torch.randn(1, 1, 512)
    placed = Integer(512)(word, torch.tensor([100]))
    assert placed.norm() > 90 * word.norm()
    assert torch.cosine_similarity(placed, torch.ones(512), dim=-1) > 0.999


def test_a_position_may_be_a_time():
    out = Integer(2)(torch.zeros(1, 2, 2), torch.tensor([0.25, 1.5]))
    assert out.tolist() == [[[0.25, 0.25], [1.5, 1.5]]]


def test_large_positions_stay_whole():
    out = Integer(1)(torch.zeros(1, 1, 1, dtype=torch.float64), torch.tensor([2**53 - 1]))
    assert out.item() == 2**53 - 1
