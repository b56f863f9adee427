"""Models that read, with and without their positions, against what order can be known from."""

import pytest
import torch
from refusals import refused
from small_models import minilm_folder, tiny

from posenc.lab.compare.reader import Reader, open_reader, order_known, without_positions

TEXT = "the dog chased another dog until the cat chased it"


@pytest.fixture
def few():
    """Token numbers of a tiny vocabulary in place of a tokenizer."""

    class Letters:
        def __call__(self, text, **asked):
            words = ["[", *text.split(), "]"]
            self.known = sorted(set(words))
            ids = torch.tensor([[2 + self.known.index(word) for word in words]])
            special = torch.tensor([[1, *[0] * (len(words) - 2), 1]])
            return {"input_ids": ids, "special_tokens_mask": special}

        def convert_ids_to_tokens(self, ids):
            return ["Ġ" + self.known[n - 2] for n in ids]

    return Letters()


def test_bert_without_its_table_is_equivariant_and_with_it_not(few):
    found = order_known(Reader(tiny("Bert"), few), TEXT)
    assert found.tokens == ["[", *TEXT.split(), "]"]
    assert (found.order[0], found.order[-1]) == (0, 11)
    assert sorted(found.order) == list(range(12))
    assert found.order != list(range(12))
    assert max(found.without) < 1e-5
    assert min(found.change[1:-1]) > 0.01
    assert found.twins == (3, 9)  # "chased", longer than "dog"
    assert found.apart_without < 1e-5 < 0.01 < found.apart


@pytest.mark.parametrize("name", ["Llama", "T5Encoder", "ModernBert"])
def test_what_turns_and_what_is_biased_can_be_switched_off(name, few):
    found = order_known(Reader(tiny(name), few), TEXT)
    assert max(found.change) > 1e-3
    if name == "Llama":  # the causal mask betrays the order
        assert max(found.without) > 0.01
    else:
        assert max(found.without) < 1e-5


def test_positions_come_back():
    model, ids = tiny("Bert"), torch.tensor([[1, 2, 3]])
    before = model(ids).last_hidden_state
    with without_positions(model):
        assert not model(ids).last_hidden_state.allclose(before)
    assert model(ids).last_hidden_state.equal(before)
    with refused(TypeError, "Linear", "position_embeddings"):
        with without_positions(torch.nn.Linear(2, 2)):
            pass


def test_minilm_without_its_table_is_equivariant_and_with_it_not():
    found = order_known(open_reader(minilm_folder()), "The dog chased another dog.")
    assert found.tokens == "[CLS] the dog chased another dog . [SEP]".split()
    assert found.twins == (2, 5)
    assert max(found.without) < 1e-4
    assert found.apart_without < 1e-4
    assert min(found.change) > 0.02
    assert found.apart > 0.1


def test_a_folder_without_a_model_is_refused(tmp_path):
    with refused(ValueError, "config.json"):
        open_reader(tmp_path)
