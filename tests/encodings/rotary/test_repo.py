"""RePo against its formula in Python's own numbers, and NoPE, which it is where places are 0."""

import cmath
import math

import pytest
import torch

from posenc import NoPE, RePo, SelfAttention, attend, masks

WIDTH, HEADS = 16, 2


def place(repo, x, h):
    """W (SiLU(W_g x) ⊙ W_c x) of one token, as `dynamic_position_encoding_swigluex_multihead`."""
    dot = lambda row: sum(a * b for a, b in zip(row, x, strict=True))  # noqa: E731
    inner = []
    for gate, content in zip(repo.gate.weight.tolist(), repo.content.weight.tolist(), strict=True):
        g = dot(gate)
        inner.append(g / (1 + math.exp(-g)) * dot(content))
    return sum(w * c for w, c in zip(repo.place.weight[h].tolist(), inner, strict=True))


def trained():
    repo = RePo(WIDTH, HEADS, base=100.0, layout="interleaved")
    for weight in repo.parameters():
        torch.nn.init.normal_(weight)
    return repo


def test_turns_by_the_place_that_the_token_chooses():
    repo, x, q = trained(), torch.randn(1, 3, WIDTH), torch.randn(1, HEADS, 3, 8)
    turned = repo.on_queries(q, repo.on_hidden(x, repo.prepare(torch.arange(3)))).detach()
    for h in range(HEADS):
        for n in range(3):
            p = place(repo, x[0, n].tolist(), h)
            for j in range(4):
                expected = complex(*q[0, h, n, 2 * j : 2 * j + 2]) * cmath.exp(
                    1j * p * 100 ** (-j / 4)
                )
                found = complex(*turned[0, h, n, 2 * j : 2 * j + 2])
                assert found == pytest.approx(expected, abs=1e-4)


def test_without_places_it_is_no_encoding():
    repo, (q, k, v) = trained(), torch.randn(3, 1, HEADS, 5, 8)
    torch.nn.init.zeros_(repo.place.weight)
    at = repo.on_hidden(torch.randn(1, 5, WIDTH), repo.prepare(torch.arange(5)))
    torch.testing.assert_close(attend(q, k, v, repo, at), attend(q, k, v, NoPE()))


def test_by_itself_it_does_not_see_the_order_of_words():
    layer, x = SelfAttention(WIDTH, HEADS, trained()), torch.randn(1, 6, WIDTH)
    shuffled = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(layer(x[:, shuffled]), layer(x)[:, shuffled])
    masked = [layer(words, mask=masks.causal()) for words in (x, x[:, shuffled])]
    assert not masked[1].allclose(masked[0][:, shuffled], atol=1e-3)
