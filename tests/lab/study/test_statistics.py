"""Statistics against loops over all cases, closed forms, and published tables."""

from itertools import product
from random import Random
from statistics import mean

import pytest
import torch

from posenc.lab.study import statistics as stats


@pytest.mark.parametrize("n", [1, 3, 5, 6, 8, 10])
def test_the_least_p_of_n_pairs_is_one_in_two_to_the_n_minus_1(n):
    """Field's own table: 3 seeds 0.25, 6 0.031, 8 0.008, 10 0.002."""
    assert stats.sign_flip(torch.rand(n) + 0.1) == pytest.approx(2 / 2**n)


def test_the_sign_flip_test_equals_a_loop_over_all_flips():
    for seed in range(20):
        x = torch.randn(7, generator=torch.Generator().manual_seed(seed)).tolist()
        sums = [
            sum(s * v for s, v in zip(flip, x, strict=True)) for flip in product((1, -1), repeat=7)
        ]
        expected = mean(abs(total) >= abs(sum(x)) - 1e-9 for total in sums)
        assert stats.sign_flip(x) == pytest.approx(expected)


def test_of_many_pairs_the_drawn_flips_come_near_the_normal_p():
    x = torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.2
    z = x.sum().abs() / x.square().sum().sqrt()
    normal = torch.erfc(z / 2**0.5).item()
    assert stats.sign_flip(x) == pytest.approx(normal, abs=0.01)


def test_differences_of_nothing_show_nothing():
    assert stats.sign_flip([0.0] * 6) == 1


def test_holm_adjusts_as_in_a_worked_example():
    """p of 0.01, 0.02, 0.03, 0.04 become 0.04, 0.06, 0.06, 0.06."""
    adjusted = stats.holm({"a": 0.01, "d": 0.04, "b": 0.02, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.04, "b": 0.06, "c": 0.06, "d": 0.06})
    assert stats.holm({"a": 0.9, "b": 0.8})["a"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "least"), [(6, 0.8), (8, 0.86), (10, 0.9)])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds, least):
    """In the worst of several worlds; a bootstrap of seeds and prompts, nested, holds it less."""
    assert least <= stats.coverage(seeds) <= 0.95


@pytest.mark.parametrize("seeds", [6, 8])
def test_coverage_counts_seeds_of_two_humps(seeds):
    """A quarter of the seeds learns the task: 2,000 worlds, each drawn and measured by itself."""
    random = Random(seeds)
    held = 0
    for _ in range(2_000):
        shares = [0.93 if random.random() < 0.25 else 0.07 for _ in range(seeds)]
        outcomes = [torch.tensor([random.random() < share for _ in range(50)]) for share in shares]
        found = stats.interval(outcomes, share=True)
        held += found.low <= 0.25 * 0.93 + 0.75 * 0.07 <= found.high
    assert stats.coverage(seeds) == pytest.approx(held / 2_000, abs=0.03)


def test_prompts_that_all_seeds_share_are_not_averaged_out_by_more_seeds():
    """One draw of 20 hard and easy prompts: the interval of a hundred seeds is that of the draw."""
    easy = torch.rand(20, generator=torch.Generator().manual_seed(1)).double()
    many = stats.interval([easy] * 100)
    assert (many.high - many.low) / 2 == pytest.approx(
        2.093 * (easy.var() / 20).sqrt().item(), rel=1e-3
    )
    assert stats.interval([easy]) == many


def test_the_interval_of_seeds_alone_is_the_one_of_the_textbook():
    """Student 1908: mean 0.75, s = 1.7890, ten pairs."""
    slept = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    found = stats.interval([torch.tensor([x], dtype=torch.float64) for x in slept])
    half = 2.262157 * 1.789010 / 10**0.5
    assert (found.low, found.high) == pytest.approx((0.75 - half, 0.75 + half), abs=1e-5)


def test_the_interval_of_a_share_stays_within_0_and_1():
    rare = [torch.arange(50) < n for n in (0, 0, 0, 0, 1, 9)]
    found = stats.interval(rare, share=True)
    assert 0 < found.low < found.value < found.high < 1
    assert stats.interval(rare).low < 0


@pytest.mark.parametrize("prompts", [1, 50, 500])
def test_none_or_all_right_leaves_room_for_the_others(prompts):
    """At its far end, that all prompts come out so has a chance of 2.5 %, as by the binomial."""
    never, always = (
        stats.interval([torch.full((prompts,), x)] * 6, share=True) for x in (0.0, 1.0)
    )
    assert (never.value, never.low, always.value, always.high) == (0, 0, 1, 1)
    assert (1 - never.high) ** prompts == pytest.approx(0.025)
    assert always.low**prompts == pytest.approx(0.025)


def test_equality_has_a_test_of_its_own():
    """Two one-sided t tests, against the 90 % interval: equal where it lies within the margin."""
    apart = [torch.tensor([x], dtype=torch.float64) for x in (0.01, -0.02, 0.015, 0.0, -0.01, 0.02)]
    within = stats.interval(apart, level=0.9)
    reach = max(abs(within.low), abs(within.high))
    assert stats.equivalence(apart, 1.001 * reach) < 0.05 < stats.equivalence(apart, 0.999 * reach)
    noisy = [20 * x for x in apart]
    assert stats.sign_flip(torch.cat(noisy)) > 0.05 < stats.equivalence(noisy, 0.05)
    nothing = [torch.zeros(1)] * 6
    assert stats.equivalence(nothing, 0.01) == 0


def test_seeds_that_disagree_widen_the_interval_though_each_is_sure():
    sure = [torch.ones(500) if n % 2 else torch.zeros(500) for n in range(6)]
    alike = [torch.arange(500) % 2 == 0 for _ in range(6)]
    wide, narrow = (stats.interval(x) for x in (sure, alike))
    assert wide.value == narrow.value == 0.5
    assert wide.high - wide.low > 0.5 > 0.1 > narrow.high - narrow.low


def test_three_seeds_rank_nothing():
    assert not stats.may_rank(3)
    assert stats.may_rank(6)


@pytest.mark.parametrize("values", [[], [float("nan")], torch.ones(1, 1)])
def test_what_is_no_list_of_numbers_is_refused(values):
    with pytest.raises(ValueError, match="finite number"):
        stats.sign_flip(values)


def test_outcomes_of_other_prompts_are_refused():
    with pytest.raises(ValueError, match=r"same number of prompts for each seed, got \[2, 3\]"):
        stats.interval([torch.ones(2), torch.ones(3)])
    with pytest.raises(ValueError, match="a vector for each seed, got no seed"):
        stats.interval([])
