"""Measurements of real models, compared with computations of transformers."""

import json

import pytest
import torch
import transformers
from refusals import refused
from small_models import minilm_folder, saved

from posenc.analysis.text import novel, parse
from posenc.lab.compare import real_model

TEXT = parse(
    "dogs",
    "the old dog chased another dog until the cat chased it away again .\n\n"
    "another cat ran away from the old dog and the other dog ran .\n\n" * 8,
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = saved("Llama", tmp_path_factory.mktemp("llama"), TEXT.words)
    return folder, real_model.read(folder, TEXT)


def test_attention_is_what_transformers_says_it_is(llama):
    folder, found = llama
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(" ".join(found.tokens), return_tensors="pt")["input_ids"]
    with torch.no_grad():
        told = model(ids, output_attentions=True).attentions
    for one in found.layers:
        mean = told[one.number][0].mean(0)
        torch.testing.assert_close(torch.tensor(one.weights), mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.tensor(found.heads), told[0][0], rtol=1e-4, atol=1e-5)


def test_scores_come_apart_by_what_the_config_says(llama):
    _, found = llama
    assert found.notes == []
    assert found.parts.encoding == "RoPE"
    assert sum(found.parts.shares.values()) == pytest.approx(1)
    assert all(
        b >= abs(s) - 1e-6 for b, s in zip(found.bound.bound, found.bound.score, strict=True)
    )


def test_it_reads_no_more_than_it_was_trained_on(llama):
    _, found = llama
    assert found.window == 64
    assert len(found.layers[0].curve.distance) == 64
    assert json.dumps(found.to_json(), allow_nan=False)


def test_a_table_gives_four_terms_and_off_gives_a_bag_of_words(tmp_path):
    found = real_model.read(saved("Bert", tmp_path, TEXT.words), TEXT)
    assert list(found.parts.parts)[-1] == "position-position"
    assert max(found.order.without) < 1e-5 < min(found.order.change)


def test_of_an_encoder_and_a_decoder_the_encoder_is_shown(tmp_path):
    found = real_model.read(saved("T5", tmp_path, TEXT.words), TEXT)
    assert list(found.parts.parts) == ["content-content", "bias"]
    assert "encoder" in found.notes[0]


def test_what_is_no_model_is_refused_in_a_sentence(tmp_path):
    with refused(ValueError, "config.json"):
        real_model.read(tmp_path, TEXT)


def test_minilm_reads_the_novel_by_its_table():
    found = real_model.read(minilm_folder(), novel())
    assert found.parts.shares["position-position"] > 0.5  # of the first layer
    assert max(found.order.without) < 1e-4 < 0.2 < min(found.order.change)
