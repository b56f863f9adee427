"""Test losses against transformers' own loss, and against a model with a known variant."""

import pytest
import torch
import transformers
from refusals import refused
from trained_models import BACK, text

from posenc.models.check.loss import Trial, bits, opened, read_as, trials
from posenc.models.check.variants import variants
from posenc.models.files.errors import ModelError


def test_bits_are_those_of_transformers(llama):
    with opened(llama) as model:
        ids = model.excerpts(text(2_000, seed=1), 32, 4)
        own = transformers.AutoModelForCausalLM.from_pretrained(llama)
        with torch.no_grad():
            nats = own(input_ids=ids, labels=ids).loss
    assert bits(model.model, ids).shape == (4, 31)
    assert bits(model.model, ids).mean() * torch.log(torch.tensor(2.0)) == pytest.approx(nats)


def test_excerpts_begin_with_the_first_token_and_lie_apart(llama):
    with opened(llama) as model:
        ids = model.excerpts(text(2_000, seed=1), 32, 4)
    assert ids.shape == (4, 32)
    assert set(ids[:, 0].tolist()) == {1}
    assert (ids[:, 1 + BACK :] == ids[:, 1:-BACK]).float().mean() > 0.7


def test_a_text_that_is_too_short_says_so(llama):
    with opened(llama) as model, refused(ModelError, 40):
        model.excerpts("a" * 40, 64, 4)


def test_the_reading_of_training_is_the_best(llama):
    with opened(llama) as model:
        ids = model.excerpts(text(4_000, seed=1), 64, 8)
        found = {trial.name: trial for trial in trials(model, variants(model.spec), ids)}
    assert not any(trial.better for trial in found.values())
    for name in ("no positions", "layout interleaved", "base 1,000,000", "linear ×2"):
        assert found[name].worse
    assert found["as transformers runs it"].difference == pytest.approx(0, abs=1e-4)
    assert found["layout interleaved"].excerpts < 8


def test_a_reading_leaves_the_model_as_it_was(llama):
    with opened(llama) as model:
        ids = model.excerpts(text(2_000, seed=1), 32, 2)
        before = bits(model.model, ids)
        with read_as(model, variants(model.spec)[0].spec, 32):
            assert not torch.equal(bits(model.model, ids), before)
        assert torch.equal(bits(model.model, ids), before)


def test_better_is_what_is_surely_so_and_by_more_than_a_near_reading():
    def trial(difference, half):
        return Trial("base", "", 3.0, 16, difference, difference - half, difference + half)

    assert trial(-0.1, 0.05).better
    assert not trial(-0.1, 0.11).better
    assert not trial(-0.01, 0.005).better
    assert trial(0.1, 0.05).worse
    assert not trial(0.01, 0.005).worse  # as of weights that were never trained
