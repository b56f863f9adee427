"""The shuffle and the duplicate test: attention written out, and models without their positions."""

import pytest
import torch
from small_models import minilm_folder, tiny

from posenc import ALiBi, NoPE, SelfAttention, Sinusoidal, masks
from posenc.analysis import order
from posenc.studies.reader import Reader, open_reader, order_known, without_positions


def test_shuffle_is_the_change_of_what_each_word_gets():
    layer, x = SelfAttention(8, 1, ALiBi(1)), torch.randn(1, 5, 8)
    moved = torch.tensor([2, 0, 4, 1, 3])

    def out(x):
        q, k, v = layer.q(x), layer.k(x), layer.v(x)
        apart = (torch.arange(5).view(5, 1) - torch.arange(5)).abs() * 2.0**-8
        return layer.out((q @ k.mT / 8**0.5 - apart).softmax(-1) @ v)

    before, after = out(x)[:, moved], out(x[:, moved])
    expected = ((after - before).norm() / before.norm()).item()
    assert order.shuffle(layer, x, moved) == pytest.approx(expected, rel=1e-4)


def test_without_positions_order_is_lost_until_a_causal_mask_betrays_it():
    layer, x = SelfAttention(8, 2, NoPE()), torch.randn(1, 6, 8)
    x[:, 4] = x[:, 1]
    moved = torch.randperm(6)
    assert order.shuffle(layer, x, moved) < 1e-6
    assert order.duplicate(layer, x, 1, 4) < 1e-6
    assert order.shuffle(layer, x, moved, masks.causal()) > 0.01
    assert order.duplicate(layer, x, 1, 4, masks.causal()) > 0.01


def test_a_position_tells_twins_apart():
    layer, x = SelfAttention(8, 2, Sinusoidal(8)), torch.randn(1, 6, 8)
    x[:, 4] = x[:, 1]
    assert order.duplicate(layer, x, 1, 4) > 0.01


def test_the_longest_word_that_comes_twice_is_found():
    assert order.repeated("a dog is a dog and another another".split()) == (6, 7)
    assert order.repeated("no word comes again".split()) is None


def test_each_token_has_a_change_of_its_own():
    vectors = torch.randn(1, 4, 3)
    moved = torch.tensor([2, 0, 3, 1])

    def doubles_what_stands_first(x):
        return torch.cat((2 * x[:, :1], x[:, 1:]), 1)

    found = order.changes(doubles_what_stands_first, vectors, moved)
    assert found == pytest.approx([0.5, 0, 1, 0], abs=1e-6)  # 0 was first, 2 comes to be


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
    with pytest.raises(TypeError, match="nothing in Linear is called position_embeddings"):
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
    with pytest.raises(ValueError, match=r"is no folder with a config\.json"):
        open_reader(tmp_path)
