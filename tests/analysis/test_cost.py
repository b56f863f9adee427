"""The peak of memory, against sums done by hand; and that every layer takes its turn."""

import torch
from torch import nn

from posenc import NoPE, SelfAttention, T5Bias
from posenc.analysis.cost import _peak, costs

x = torch.randn(1, 100, 10)  # 4,000 bytes


def peak(work):
    return _peak(lambda layer, x: work(x), nn.Identity(), x)


def test_what_is_alive_together_adds_up():
    assert peak(lambda x: (x + 1) * 2) == 8_000
    assert peak(lambda x: [x + 1, x + 2, x + 3]) == 12_000


def test_what_is_dead_does_not_count():
    def one_after_the_other(x):
        for n in range(5):
            x + n

    assert peak(one_after_the_other) <= 8_000


def test_a_view_and_the_input_cost_nothing():
    assert peak(lambda x: x.transpose(1, 2).unsqueeze(0)) == 0
    assert peak(lambda x: (x + 1).view(10, 100)) == 4_000


def test_a_bias_costs_more_than_none_and_leaves_no_gradients():
    layers = [SelfAttention(32, 4, encoding) for encoding in (NoPE(), T5Bias(4))]
    rounds = []
    plain, biased = costs(layers, torch.randn(1, 64, 32), 3, lambda: rounds.append(1))
    assert len(rounds) == 3
    assert 0 < plain.forward_memory < biased.forward_memory
    assert plain.training_memory < biased.training_memory
    assert min(plain.forward, plain.training, biased.forward, biased.training) > 0
    assert all(p.grad is None for layer in layers for p in layer.parameters())
