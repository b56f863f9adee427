"""Test tokenizers against transformers, and with definitions that exhaust memory or never end."""

import json
import subprocess

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from posenc.models.files.errors import ModelError
from posenc.models.hf import tokens
from posenc.models.hf.tokens import Tokens

WORDS = {"<s>": 0, "a": 1, "dog": 2, "old": 3}


def defined():
    made = Tokenizer(models.WordLevel(WORDS, "<s>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    return made


def refusal(made, text):
    with pytest.raises(ModelError) as caught:
        Tokens("tokenizer.json", made if isinstance(made, str) else made.to_str())(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("special", [True, False])
def test_tokens_are_those_of_transformers(special):
    made = defined()
    made.enable_truncation(2)  # transformers switches this off unless a length is passed
    theirs = PreTrainedTokenizerFast(tokenizer_object=made)
    given = dict(add_special_tokens=special, return_special_tokens_mask=True)
    expected = theirs("an old dog\n", **given)
    ours = Tokens("tokenizer.json", made.to_str())("an old dog\n", **given)
    assert ours["input_ids"].tolist() == [expected["input_ids"]]
    assert ours["special_tokens_mask"].tolist() == [expected["special_tokens_mask"]]


def test_tokens_have_their_names():
    made = Tokens("tokenizer.json", defined().to_str())
    assert made.convert_ids_to_tokens([3, 2, 99]) == ["old", "dog", ""]


def test_a_normalizer_that_multiplies_a_text_ends_by_its_bound(monkeypatch):
    """12 replacements of one letter by ten make 10¹² letters, for which Rust aborts its process."""
    monkeypatch.setattr(tokens, "MOST_MEMORY", 2**29)
    made = defined()
    made.normalizer = normalizers.Sequence([normalizers.Replace("a", 10 * "a")] * 12)
    assert "GiB" in refusal(made, "a")


def test_more_tokens_than_a_text_can_have_are_refused():
    made = defined()
    made.normalizer = normalizers.Replace("a", 1000 * "a ")
    assert "1,001 tokens from 1 characters" in refusal(made, "a")


def test_a_pattern_that_never_ends_is_one_sentence(capfd):
    """A panic in Rust is not an `Exception` in Python, and prints a hundred lines."""
    definition = json.loads(defined().to_str())
    pattern = {"Regex": "(a+)+(a+)+(a+)+b"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    definition["pre_tokenizer"] = split
    assert "cannot be used as a tokenizer" in refusal(json.dumps(definition), 60 * "a")
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_that_takes_too_long_is_one_sentence(monkeypatch):
    def late(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", late)
    assert "needs more than 120 seconds" in refusal(defined(), "a")


def test_no_module_of_the_working_directory_is_imported(tmp_path, monkeypatch):
    (tmp_path / "tokenizers.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    made = Tokens("tokenizer.json", defined().to_str())
    assert made("old dog")["input_ids"].tolist() == [[0, 3, 2]]
