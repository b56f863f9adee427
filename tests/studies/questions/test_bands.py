"""Swapped bands of a RoPE against models that are built with that θ."""

from dataclasses import replace
from random import Random

import pytest
import torch
from refusals import refused

from posenc.lab.study import tasks
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell, Profile
from posenc.lab.study.evaluate import evaluate
from posenc.lab.study.saved_models import save_model
from studies.questions.bands import read_csv, recoveries, swap_saved, swapped, swaps, write_csv

PROFILE = Profile(width=32, heads=2, layers=1, steps=3, batch=4, warmup=1, prompts=8)
CELL = Cell("language", "rope", 0, profile=PROFILE)
TASK = tasks.language("".join(Random(0).choices("abcd", k=4_000)), trained=16)
THETA = [10_000.0 ** (-j / 8) for j in range(8)]


def with_theta(theta):
    cell = Cell("language", "rope", 0, profile=PROFILE, options={"theta": theta})
    return build(cell, len(TASK.vocabulary))


def test_only_the_pairs_of_the_band_are_slowed():
    tokens = torch.arange(4, 8).repeat(1, 12)
    slow = [x / 3 if 2 <= j < 4 else x for j, x in enumerate(THETA)]
    one, other = swapped(with_theta(THETA), slice(2, 4), 3.0), with_theta(slow)
    torch.testing.assert_close(one(tokens), other(tokens))
    still = [0.0 if j >= 6 else x for j, x in enumerate(THETA)]
    one, other = swapped(with_theta(THETA), slice(6, 8), torch.inf), with_theta(still)
    torch.testing.assert_close(one(tokens), other(tokens))


def test_what_is_recovered_is_a_share_of_what_broke():
    found = [*swaps(with_theta(THETA), CELL, TASK, (32,), bands=4)]
    assert [(one.pairs, one.how) for one in found] == [
        ((first, first + 2), how) for first in (0, 2, 4, 6) for how in ("slowed", "still")
    ]
    bits = lambda model, n: evaluate(model, CELL, TASK, (n,))["sliding", n].mean().item()  # noqa: E731
    broken, within = bits(with_theta(THETA), 32), bits(with_theta(THETA), 16)
    still = with_theta([0.0 if 2 <= j < 4 else x for j, x in enumerate(THETA)])
    after = bits(still, 32)
    assert found[3].bits == pytest.approx(after, rel=1e-6)
    assert found[3].recovered == pytest.approx((broken - after) / (broken - within), rel=1e-3)


def test_a_model_that_says_the_same_at_each_length_has_nothing_to_recover():
    model = with_theta(THETA)
    torch.nn.init.zeros_(model.head.weight)
    with refused(ValueError, 32, 16):
        next(swaps(model, CELL, TASK, (32,), bands=4))


def test_the_bands_of_kept_models_are_swapped_and_read_again(tmp_path):
    """Two seeds of `all`, one of a partial RoPE, which has no such bands; means by hand."""
    some = [*THETA[:4], 0.0, 0.0, 0.0, 0.0]
    for label, seed, theta in [("all", 1, THETA), ("all", 2, THETA), ("some", 1, some)]:
        torch.manual_seed(seed)
        cell = replace(CELL, seed=seed, label=label, options={"theta": theta}, trained=16)
        task = tasks.find("language")
        save_model(build(cell, len(task.vocabulary)), cell, task, tmp_path / "models")
    found = swap_saved(tmp_path, times=(2,), bands=2)
    places = [(one.encoding, one.seed, one.swap.length) for one in found]
    assert places == [("all", 1, 32)] * 4 + [("all", 2, 32)] * 4
    assert swap_saved(tmp_path, ["all"], times=(2,), bands=2) == found
    assert write_csv(found, tmp_path / "bands.csv") == 8
    again = read_csv(tmp_path / "bands.csv")
    assert [one.swap.pairs for one in again] == [one.swap.pairs for one in found]
    fastest = recoveries(again)[0]
    assert (fastest.pairs, fastest.how) == ((0, 4), "slowed")
    by_hand = (found[0].swap.recovered + found[4].swap.recovered) / 2
    assert fastest.recovered.value == pytest.approx(by_hand, abs=1e-5)
    with refused(ValueError, "RoPE"):
        swap_saved(tmp_path, ["some"])


def test_what_has_no_bands_is_refused():
    alibi = build(Cell("language", "alibi", 0, profile=PROFILE), len(TASK.vocabulary))
    with refused(ValueError, "RoPE"):
        swapped(alibi, slice(0, 2), 2.0)
    with refused(ValueError, 16):
        next(swaps(with_theta(THETA), CELL, TASK, (16,)))
    with refused(ValueError, "`bands`", 8, 3):
        next(swaps(with_theta(THETA), CELL, TASK, (32,), bands=3))
    with pytest.raises(ValueError, match="must be graded in bits"):
        next(swaps(with_theta(THETA), CELL, tasks.find("copy"), (32,)))
