"""NoPE against torch's attention, of words in one order and in another."""

import torch
import torch.nn.functional as F

from posenc.attention.attend import attend
from posenc.core.masks import causal
from posenc.encodings.nope import NoPE


def heads(tokens=6):
    return [torch.randn(2, 4, tokens, 8) for _ in range(3)]


def test_it_is_plain_attention():
    q, k, v = heads()
    expected = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(attend(q, k, v, NoPE()), expected)
    torch.testing.assert_close(attend(q, k, v, NoPE(), torch.arange(6) + 1000), expected)


def test_shuffled_tokens_give_shuffled_outputs():
    inputs, order = heads(), torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = attend(*(x[:, :, order] for x in inputs), NoPE())
    torch.testing.assert_close(shuffled, attend(*inputs, NoPE())[:, :, order])


def test_two_occurrences_of_a_word_are_told_apart_by_a_causal_mask_alone():
    word, other = torch.randn(2, 1, 4, 1, 8)
    text = torch.cat((word, other, word), -2)
    first, _, second = attend(text, text, text, NoPE()).unbind(-2)
    torch.testing.assert_close(first, second)
    first, _, second = attend(text, text, text, NoPE(), mask=causal()).unbind(-2)
    assert (first - second).abs().max() > 0.01


def test_nothing_of_it_is_learned_and_nothing_prepared():
    assert not list(NoPE().parameters())
    assert NoPE().acts_on == ()
