"""Running sums against sums by hand, in one piece and in several."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from posenc.core.prepared import Prepared
from posenc.core.running_sums import RunningSums, by_head, linear, running_sum


class Summed(RunningSums, Prepared, NamedTuple("Summed", [("total", Tensor)])):
    shape = "head token"


def test_each_is_the_sum_of_the_steps_up_to_it():
    steps = torch.randn(2, 3, 7, 1)
    found = running_sum(steps)
    assert found.dtype == torch.float64
    for token in range(7):
        by_hand = steps[..., : token + 1, :].double().sum(-2)
        torch.testing.assert_close(found[..., token, :], by_hand)


def test_ten_million_in_small_steps_keep_their_digits():
    """In float32 the sum of ones stands still at 16,777,216, and that of tenths long before."""
    tail = running_sum(torch.full((2**24 + 3, 1), 1.0))[-1]
    assert tail.item() == 2**24 + 3


@pytest.mark.parametrize("pieces", [(7,), (3, 4), (1, 1, 5), (0, 7)])
def test_what_follows_goes_on_from_the_last(pieces):
    steps = torch.randn(2, 4, 7, 1)
    at = None
    for part in steps.split(pieces, -2):
        more = Summed(running_sum(part).squeeze(-1))
        at = more if at is None else at.append(more)
    torch.testing.assert_close(at.total, steps.double().cumsum(-2).squeeze(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_layers_are_applied_for_each_head_in_float32_at_least(dtype):
    x, layer = torch.randn(2, 5, 16).to(dtype), linear(16, 12, bias=0.5).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        found = by_head(x, 4, layer)
    exact = torch.promote_types(dtype, torch.float32)
    assert (found.dtype, found.shape) == (exact, (2, 4, 5, 3))
    for head in range(4):
        rows = slice(3 * head, 3 * head + 3)
        by_hand = x.to(exact) @ layer.weight[rows].to(exact).mT + layer.bias[rows].to(exact)
        torch.testing.assert_close(found[:, head], by_hand)


def test_a_layer_begins_small():
    layer = linear(256, 64)
    assert layer.bias is None
    assert 0.018 < layer.weight.std() < 0.022
    assert linear(8, 4, bias=-2.0).bias.tolist() == [-2.0] * 4
