"""Extended models, against θ stretched by hand and against models built with it."""

from dataclasses import replace
from math import log, pi

import pytest
import torch
from refusals import refused

from posenc import NoPE
from posenc.lab.study import tasks, train
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell, Profile
from posenc.lab.study.context_extension import extend_rope
from posenc.lab.study.evaluate import evaluate

PROFILE = Profile(width=32, heads=2, layers=2, steps=4, batch=4, warmup=1, prompts=3)
COPY = tasks.find("copy")
CELL = Cell("copy", "rope", 0, profile=PROFILE)
THETA = [10_000.0 ** (-2 * j / 16) for j in range(8)]
TOKENS = torch.arange(4, 64).unsqueeze(0)


def model():
    return build(CELL, len(COPY.vocabulary))


def thetas(method, factor=4.0, trained=63):
    return [one.freqs.tolist() for one in extend_rope(model(), method, factor, trained).encodings()]


def test_interpolation_divides_every_frequency():
    for theta in thetas("pi"):
        assert theta == pytest.approx([x / 4 for x in THETA], rel=1e-15)


def test_ntk_keeps_the_fastest_pair_and_interpolates_the_slowest():
    for theta in thetas("ntk"):
        assert theta[0] == 1
        assert theta[-1] == pytest.approx(THETA[-1] / 4)
        assert all(a / 4 < b <= a for a, b in zip(THETA[1:-1], theta[1:-1], strict=True))


def test_yarn_keeps_pairs_that_turn_ten_times_in_a_short_text_and_scales_scores():
    """In 63 tokens pairs make at most 63 / 2π = 10 turns: a bound of 32 would keep no pair."""
    made = extend_rope(model(), "yarn", 4.0, 63)
    for one in made.encodings():
        assert one.freqs[0] == 1
        assert one.freqs[-1].item() == pytest.approx(THETA[-1] / 4)
        assert one.gain == pytest.approx(0.1 * log(4) + 1)
    assert 63 / (2 * pi) == pytest.approx(10.03, abs=0.01)


def test_drope_has_no_positions_any_more():
    without = build(Cell("copy", "nope", 0, profile=PROFILE), len(COPY.vocabulary))
    made = extend_rope(model(), "drope", 4.0, 63)
    torch.testing.assert_close(made(TOKENS), without(TOKENS))
    assert all(isinstance(one, NoPE) for one in made.encodings())


def test_the_model_itself_stays_as_it_is():
    one = model()
    before = one(TOKENS)
    assert not torch.allclose(extend_rope(one, "pi", 4.0, 63)(TOKENS), before)
    assert torch.equal(one(TOKENS), before)


def test_a_cell_is_extended_after_its_training(monkeypatch):
    """Against the trained model, extended by hand."""
    cell = replace(CELL, extend="ntk 2", tested=(24,))
    one = model()
    train.fit(one, CELL, COPY)
    by_hand = evaluate(extend_rope(one, "ntk", 2.0, COPY.longest), cell, COPY.at(None, (24,)))
    outcomes = train.run(cell, COPY).outcomes
    assert all(torch.equal(by_hand[key], outcomes[key]) for key in by_hand)
    assert outcomes.keys() == by_hand.keys()


def test_a_cell_is_extended_from_the_model_that_was_kept(tmp_path, monkeypatch):
    """To the bits of one that is trained anew."""
    cell = replace(CELL, extend="yarn 2 after 2", tested=(24,))
    anew = train.run(cell, COPY)
    train.run(replace(cell, extend=""), COPY, models=tmp_path)
    steps, original = [], train.loss_of
    monkeypatch.setattr(train, "loss_of", lambda *a: steps.append(1) or original(*a))
    result = train.run(cell, COPY, models=tmp_path)
    assert len(steps) == len(result.losses) * 2 == 2
    assert result.losses == anew.losses
    assert all(torch.equal(anew.outcomes[key], result.outcomes[key]) for key in anew.outcomes)


def test_recalibration_trains_at_a_tenth_of_the_rate_on_new_texts_that_are_longer(monkeypatch):
    rates, read, original = [], [], train.loss_of

    def noted(model, cell, task, batch, random):
        rates.append(cell.profile.rate)
        read.append(batch)
        return original(model, cell, task, batch, random)

    monkeypatch.setattr(train, "loss_of", noted)
    train.run(replace(CELL, extend="yarn 2 after 3", tested=(4,)), COPY)
    assert rates == [PROFILE.rate] * 4 + [PROFILE.rate / 10] * 3
    assert max(max(batch.lengths) for batch in read[4:]) > COPY.longest
    assert not any(torch.equal(a.inputs, b.inputs) for a in read[:4] for b in read[4:])


def test_a_cell_says_how_it_is_extended_as_is_known():
    assert Cell("copy", "rope", 0, extend="drope 1.5").extend == "drope 1.5"
    for extend in ("linear 2", "pi", "pi x", "yarn 2 after 0"):
        with refused(ValueError, "`extend`", '"pi 2"'):
            Cell("copy", "rope", 0, extend=extend)


def test_what_cannot_be_extended_is_refused():
    with refused(ValueError, "RoPE"):
        extend_rope(build(Cell("copy", "alibi", 0, profile=PROFILE), 9), "pi", 2.0, 63)
    with refused(ValueError, "`method`"):
        extend_rope(model(), "linear", 2.0, 63)
