"""Models before training: what they share to the bit, against weights compared one by one."""

from dataclasses import replace

import pytest
import torch
from refusals import refused

from posenc.lab.study.build import build, derived_seed, encoding_of
from posenc.lab.study.cell import Cell, Profile

PROFILE = Profile(width=16, heads=2, layers=2)
CELL = Cell("copy", "rope", 0, profile=PROFILE)


def weights(cell):
    model = build(cell, 7)
    encodings = {id(x) for layer in model.modules() for x in own_of(layer)}
    return {name: x for name, x in model.named_parameters() if id(x) not in encodings}


def own_of(layer):
    encoding = getattr(layer, "encoding", None)
    return () if encoding is None else encoding.parameters()


@pytest.mark.parametrize("name", ["nope", "alibi", "t5", "fire", "shaw", "sinusoidal", "learned"])
def test_weights_beside_the_encoding_are_equal_to_the_bit(name):
    ours, others = weights(CELL), weights(replace(CELL, encoding=name))
    assert ours.keys() == others.keys()
    assert ours
    for key, x in ours.items():
        assert torch.equal(x, others[key])


def test_another_seed_draws_all_anew():
    ours, others = weights(CELL), weights(replace(CELL, seed=1))
    drawn = [key for key, x in ours.items() if x.std() > 0]  # not the ones of a norm
    assert drawn
    assert not any(torch.equal(ours[key], others[key]) for key in drawn)


def test_each_use_of_a_seed_has_numbers_of_its_own():
    uses, seeds = ("weights", "encoding", "data", "tests"), range(50)
    numbers = {derived_seed(use, seed) for use in uses for seed in seeds}
    assert len(numbers) == len(uses) * len(seeds)
    assert max(numbers) < 2**56  # what every generator takes


def test_theta_is_an_option_of_rope_alone():
    theta = [1.0, 0.5, 0.25, 0.0]
    rope = encoding_of(replace(CELL, options={"theta": theta}))
    assert rope.freqs.tolist() == theta
    with refused(ValueError, "`theta`", "'alibi'"):
        encoding_of(replace(CELL, encoding="alibi", options={"theta": theta}))


def test_encodings_that_have_a_setting_for_it_are_told_mask_and_length():
    """The decoder's T5, whose buckets all lie within training; others by their papers' shares."""
    at = lambda name, both_ways=False, **rest: encoding_of(  # noqa: E731
        replace(CELL, encoding=name, told=64, **rest), both_ways
    )
    t5 = at("t5")
    assert (t5.bidirectional, t5.reach) == (False, 64)
    assert at("t5", both_ways=True).bidirectional
    assert at("t5", options={"reach": 100}).reach == 100
    assert at("fire").length == 64
    assert (at("xpos").span, at("xpos").centre) == (32, 32)
    assert at("deberta").reach == 64
    assert encoding_of(replace(CELL, encoding="t5")).bidirectional


def test_a_cell_that_is_told_is_another_than_one_that_is_not():
    """Stores from before keep their digests."""
    assert replace(CELL, told=64).digest != CELL.digest
    assert "told" not in CELL.settings
    assert Cell.of(replace(CELL, told=64).settings).told == 64
