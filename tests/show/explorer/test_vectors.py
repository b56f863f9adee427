"""Vectors of a model's words, held against the rows of a table that the test writes."""

import base64
import json

import numpy as np
import pytest
import torch
from javascript import evaluate
from refusals import refused
from safetensors.torch import save_file

import posenc
from posenc.models.files.errors import ModelError
from posenc.show.explorer import vectors

WORDS = ["dog", "man", "bites", "the", "old"]
CONFIG = {"model_type": "llama", "hidden_size": 96, "num_attention_heads": 2, "vocab_size": 9}
LEXICON = """([found, words]) => {
  const lexicon = lexiconOf(found);
  const { values } = embedded(words, found.width, lexicon);
  return [[...lexicon.vectors.keys()], [...values]];
}"""


@pytest.fixture
def folder(tmp_path):
    """A model of nine tokens, of which five are words; only `dog` is long."""
    root = tmp_path / "tiny"
    root.mkdir()
    (root / "config.json").write_text(json.dumps(CONFIG))
    tokens = ["<s>", "ing", *(f"Ġ{word}" for word in WORDS), "Ġ1", "Ġx"]
    vocabulary = {token: at for at, token in enumerate(tokens)}
    (root / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    table = torch.randn(9, 96, generator=torch.Generator().manual_seed(3))
    table[2] *= 3
    save_file({"model.embed_tokens.weight": table}, root / "model.safetensors")
    return root, table[2:7].double()


def test_dot_products_are_those_of_the_model_up_to_a_scale_and_eight_bits(folder):
    root, rows = folder
    found = vectors.vectors(root, "tiny", 64)
    assert sorted(found["words"]) == sorted(WORDS)
    assert (found["model"], found["width"], found["of"]) == ("tiny", 64, 96)
    steps = np.frombuffer(base64.b64decode(found["int8"]), np.int8).reshape(5, 64)
    small = steps * found["scale"]
    assert np.mean(small**2) == pytest.approx(1, rel=0.02)
    order = [WORDS.index(word) for word in found["words"]]
    wanted = (rows @ rows.T).numpy()[np.ix_(order, order)]
    got = small @ small.T
    scale = np.trace(wanted) / np.trace(got)
    assert np.abs(got * scale - wanted).max() < 0.02 * wanted.max()
    assert found["share"] == 1.0  # five rows lie in five directions


def test_too_few_directions_keep_the_share_that_is_said(folder):
    root, rows = folder
    found = vectors.vectors(root, "tiny", 2)
    lengths = np.linalg.svd(rows.numpy(), compute_uv=False) ** 2
    assert found["share"] == pytest.approx(lengths[:2].sum() / lengths.sum(), abs=1e-4)


def test_the_page_reads_what_was_written_and_seeds_the_other_words(folder):
    found = vectors.vectors(folder[0], "tiny", 64)
    modules = ["interpreter.js", "page/compute.js", "page/layer.js"]
    words, values = evaluate(modules, LEXICON, [found, ["man", "cat"]])
    assert words == found["words"]
    steps = np.frombuffer(base64.b64decode(found["int8"]), np.int8).reshape(5, 64)
    man, cat = np.reshape(values, (2, 64))
    assert man == pytest.approx(steps[words.index("man")] * found["scale"])
    seeded = evaluate(modules, "() => [...vectorOf('cat', 64)]", None)
    assert cat.tolist() == seeded


def test_a_model_given_to_the_page_lends_its_words(folder):
    page = posenc.explore(folder[0]).data
    assert page["words"] is not None
    assert page["words"]["model"] == "tiny"
    (folder[0] / "tokenizer.json").unlink()
    assert posenc.explore(folder[0]).data["words"] is None


@pytest.mark.parametrize("begin", ["Ġ", "▁", ""])
def test_words_are_found_in_each_kind_of_vocabulary(begin):
    tokens = {"[PAD]": 0, "##ing": 1, f"{begin}we": 2, f"{begin}Dog": 3, f"{begin}dog": 4}
    assert vectors.words(tokens) == {"dog": 4, "we": 2}


def test_a_list_of_pieces_is_a_vocabulary_too(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"vocab": [["<unk>", 0.0], ["▁the", -2.5]]}}))
    assert vectors.vocabulary(file) == {"<unk>": 0, "▁the": 1}


def test_at_most_two_thousand_words_are_taken():
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = {f"Ġ{a}{b}{c}": n for n, (a, b, c) in enumerate(
        (a, b, c) for a in letters for b in letters for c in letters[:5])}  # fmt: skip
    assert len(vectors.words(tokens)) == 2_000


def test_what_holds_no_words_or_no_table_is_said(folder):
    root, _ = folder
    (root / "tokenizer.json").write_text('{"model": {"vocab": {"Ġthe": 9000}}}')
    with refused(ModelError, 1, 9):
        vectors.vectors(root, "tiny", 64)
    (root / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(ModelError, match=r"model.vocab: must be a dict from tokens to ids"):
        vectors.vectors(root, "tiny", 64)
    save_file({"head.weight": torch.ones(9, 96)}, root / "model.safetensors")
    with pytest.raises(ModelError, match="no embedding table"):
        vectors.embedding(root)
