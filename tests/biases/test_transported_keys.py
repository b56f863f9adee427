"""Keys that are transported past chunks, against the maps of single tokens."""

import pytest
import torch

from posenc.biases.transported_keys import TransportedBias, alike, in_chunks, transported
from posenc.core.biases import ALL


@pytest.mark.parametrize(("tokens", "chunks"), [(1, 1), (64, 1), (65, 2)])
def test_a_text_is_cut_and_filled_up_with_its_last_token(tokens, chunks):
    x = torch.randn(2, 3, tokens, 4)
    cut = in_chunks(x)
    assert cut.shape == (2, 3, chunks, 64, 4)
    assert cut.flatten(2, 3)[:, :, :tokens].equal(x)
    assert cut.flatten(2, 3)[:, :, tokens:].eq(x[:, :, -1:]).all()


def test_a_factor_for_each_channel_is_a_diagonal_matrix():
    k, factors = torch.randn(2, 3, 5, 4), torch.rand(2, 3, 1, 4)
    matrix = torch.diag_embed(factors.squeeze(-2))
    torch.testing.assert_close(transported(k, factors), transported(k, matrix))


def test_with_the_dot_product_the_bias_makes_the_scores():
    q, k, scores = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 3, 5)
    bias = TransportedBias(q, k, 0.3, lambda rows, keys: scores[..., rows, keys], None)
    torch.testing.assert_close(q @ k.mT * 0.3 + bias.block(ALL, ALL), scores)
    some = slice(1, 3), slice(2, 4)
    part = (q @ k.mT * 0.3)[..., *some] + bias.block(*some)
    torch.testing.assert_close(part, scores[..., *some])


def test_what_is_the_same_is_alike_and_what_is_traced_cannot_be_read():
    x = torch.arange(3)
    assert alike(x, x.clone())
    assert not alike(x, x + 1)
    assert not alike(x, x[:2])
    assert not torch.func.vmap(lambda y: x if alike(y, y) else y + 1)(x.unsqueeze(0)).equal(x)
