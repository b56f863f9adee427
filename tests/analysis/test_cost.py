"""Peak memory against sums done by hand, and turns of layers in a measurement."""

import pytest
import torch
from torch import nn

from posenc import Learned, NoPE, SelfAttention, T5Bias, create
from posenc.analysis import cost
from posenc.analysis.cost import Count, Ratio, _peak, by_length, cost_of_encoding, costs, count

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
    """A stand-in for a layer: an operation, a view of its result, another operation."""

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
    """Memory is counted, so a layer's memory at a length does not depend on other lengths."""
    layers = [SelfAttention(32, 4, NoPE()), SelfAttention(32, 4, Learned(16, 32))]
    rounds = []
    plain, ends = by_length(layers, {8: 4, 32: 2}, lambda: rounds.append(1))
    assert len(rounds) == 6
    assert [one.tokens for one in plain] == [one.tokens for one in ends] == [8, 32]
    for one in (*plain, ends[0]):
        assert 0 < one.ratio.low <= one.ratio.median <= one.ratio.high
    assert [one.ratio for one in plain] == [Ratio(1, 1, 1, 4), Ratio(1, 1, 1, 2)]
    (alone,) = costs(layers[:1], torch.randn(1, 32, 32), 1)
    assert plain[1].memory == alone.forward_memory
    assert (ends[1].seconds, ends[1].ratio, ends[1].memory) == (None, None, None)


class Clock:
    """A clock that each layer moves on by its seconds, times the slowness of the round."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(cost, "CLOCK", lambda: self.now)

    def layer(self, seconds, pace=lambda number: 1.0):
        """Return a run that takes `seconds`, and the numbers of its rounds."""
        called = []

        def run():
            self.now += seconds * pace(len(called))
            called.append(len(called))

        return run, called


def test_a_slow_round_leaves_the_ratio_within_it_as_it_is(monkeypatch):
    """In every second round the machine is four times slower: times differ, ratios do not."""
    clock = Clock(monkeypatch)
    pace = lambda number: 4.0 if number % 2 else 1.0  # noqa: E731
    runs = {"base": clock.layer(2e-3, pace)[0], "other": clock.layer(3e-3, pace)[0]}
    times = cost._time_in_rounds(runs, 8, lambda: None)
    assert max(times["other"].values()) > 3.9 * min(times["other"].values())
    ratio = cost._ratio(times["other"], times["base"])
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    assert ratio.rounds == 8


def test_a_slow_layer_is_timed_in_fewer_rounds_and_the_others_in_all(monkeypatch):
    """Also where rounds take minutes: no layer is left out because another is slow."""
    clock = Clock(monkeypatch)
    (base, all_rounds), (slow, few) = clock.layer(1e-3), clock.layer(60.0)
    times = cost._time_in_rounds({"base": base, "slow": slow}, 15, lambda: None)
    assert (len(all_rounds), len(few)) == (15, cost.FEWEST)
    ratio = cost._ratio(times["slow"], times["base"])
    assert (ratio.median, ratio.rounds) == (pytest.approx(60_000), cost.FEWEST)


@pytest.mark.parametrize(("rounds", "left_out"), [(3, 0), (5, 0), (6, 0), (9, 1), (15, 3), (20, 5)])
def test_the_interval_of_a_median_is_that_of_tables_of_the_sign_test(rounds, left_out):
    """Critical values of the two-sided sign test at 5 %: 0 of 6, 1 of 9, 3 of 15, 5 of 20."""
    ratio = cost.ratio_of([float(n) for n in reversed(range(rounds))])
    assert (ratio.low, ratio.high) == (left_out, rounds - 1 - left_out)
    assert ratio.median == (rounds - 1) / 2
