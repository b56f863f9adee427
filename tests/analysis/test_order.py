"""The shuffle and the duplicate test, against attention written out."""

import pytest
import torch

from posenc import ALiBi, NoPE, SelfAttention, Sinusoidal, masks
from posenc.analysis import order


def test_shuffle_is_the_change_of_what_each_word_gets():
    layer, x = SelfAttention(8, 1, ALiBi(1)), torch.randn(1, 5, 8)
    moved = torch.tensor([2, 0, 4, 1, 3])

    def out(x):
        q, k, v = layer.q(x), layer.k(x), layer.v(x)
        apart = (torch.arange(5).view(5, 1) - torch.arange(5)).abs() * 2.0**-8
        return layer.out((q @ k.mT / 8**0.5 - apart).softmax(-1) @ v)

    before, after = out(x)[:, moved], out(x[:, moved])
    expected = ((after - before).norm() / before.norm()).item()
    assert order.shuffle(layer, x, moved) == pytest.approx(expected, rel=1e-4)


def test_without_positions_order_is_lost_until_a_causal_mask_betrays_it():
    layer, x = SelfAttention(8, 2, NoPE()), torch.randn(1, 6, 8)
    x[:, 4] = x[:, 1]
    moved = torch.randperm(6)
    assert order.shuffle(layer, x, moved) < 1e-6
    assert order.duplicate(layer, x, 1, 4) < 1e-6
    assert order.shuffle(layer, x, moved, masks.causal()) > 0.01
    assert order.duplicate(layer, x, 1, 4, masks.causal()) > 0.01


def test_a_position_tells_twins_apart():
    layer, x = SelfAttention(8, 2, Sinusoidal(8)), torch.randn(1, 6, 8)
    x[:, 4] = x[:, 1]
    assert order.duplicate(layer, x, 1, 4) > 0.01


def test_the_longest_word_that_comes_twice_is_found():
    assert order.repeated("a dog is a dog and another another".split()) == (6, 7)
    assert order.repeated("no word comes again".split()) is None


def test_each_token_has_a_change_of_its_own():
    vectors = torch.randn(1, 4, 3)
    moved = torch.tensor([2, 0, 3, 1])

    def doubles_what_stands_first(x):
        return torch.cat((2 * x[:, :1], x[:, 1:]), 1)

    found = order.changes(doubles_what_stands_first, vectors, moved)
    assert found == pytest.approx([0.5, 0, 1, 0], abs=1e-6)  # 0 was first, 2 comes to be
