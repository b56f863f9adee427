"""The peak of memory, against sums done by hand; and that every layer takes its turn."""

import torch
from torch import nn

from posenc import Learned, NoPE, SelfAttention, T5Bias, create
from posenc.analysis import cost
from posenc.analysis.cost import Count, _peak, by_length, cost_of_encoding, costs, count

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


class Steps(nn.Module):
    """In the place of a layer: an operation, a view of what it makes, another operation."""

    encoding = NoPE()

    def forward(self, x, pos, mask):
        return (x + 1).view(100, 10).sum()


def test_operations_are_counted_and_views_are_none():
    """One more makes the positions: 100 integers of 8 bytes."""
    assert count(Steps(), x) == Count(operations=3, numbers=1_101, memory=4_804)


def test_the_cost_of_an_encoding_is_what_its_layer_does_more_than_one_without():
    """Integers are added to each channel of each token, in one operation, by their definition."""
    assert cost_of_encoding(NoPE(), 8, 4, 64) == Count(0, 0, 0)
    assert cost_of_encoding(create("integer", 8, 4), 8, 4, 64) == Count(1, 64 * 32, 4 * 64 * 32)


def test_costs_by_length_are_those_of_each_length_and_none_where_it_is_refused():
    """Memory is counted, so a layer has the same at a length whether others are asked or not."""
    layers = [SelfAttention(32, 4, NoPE()), SelfAttention(32, 4, Learned(16, 32))]
    rounds = []
    plain, ends = by_length(layers, {8: 4, 32: 2}, lambda: rounds.append(1))
    assert len(rounds) == 6
    assert [one.tokens for one in plain] == [one.tokens for one in ends] == [8, 32]
    for one in (*plain, ends[0]):
        low, high = one.range
        assert 0 < low <= one.seconds <= high
    (alone,) = costs(layers[:1], torch.randn(1, 32, 32), 1)
    assert plain[1].memory == alone.forward_memory
    assert (ends[1].seconds, ends[1].range, ends[1].memory) == (None, None, None)


def test_rounds_that_last_too_long_are_the_fewest_and_are_counted(monkeypatch):
    """Of 50 rounds, on a machine on which each would take a minute."""
    monkeypatch.setattr(cost, "PATIENCE", 0.0)
    (busy,) = costs([SelfAttention(32, 4, NoPE())], torch.randn(1, 8, 32), 50)
    assert busy.rounds == 3
    monkeypatch.setattr(cost, "PATIENCE", 1e9)
    (quiet,) = costs([SelfAttention(32, 4, NoPE())], torch.randn(1, 8, 32), 5)
    assert quiet.rounds == 5
