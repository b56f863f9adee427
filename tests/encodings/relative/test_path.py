"""PaTH against the product of its matrices, token by token, and NoPE, where nothing is mirrored."""

import pytest
import torch
from refusals import refused

from posenc import NoPE, PaTH, attend, masks
from posenc.core.positions import sequence
from posenc.rotation.matrices import over_lower

WIDTH, HEADS, DIM = 32, 4, 8


def prepared(path, x):
    return path.on_hidden(x, path.prepare(sequence(x.shape[1])))


def matrices(path, x):
    """H_t, (batch, head, token, channel, channel), in float64."""
    x, (down, up) = x.double(), (to.weight.double() for to in (path.down, path.up))
    w = (x @ down.mT @ up.mT).unflatten(-1, (HEADS, DIM)).transpose(1, 2)
    w = w / w.norm(dim=-1, keepdim=True)
    beta = 2 * (x @ path.strength.weight.mT.double() + path.strength.bias.double()).sigmoid()
    outer = w.unsqueeze(-1) * w.unsqueeze(-2)
    return torch.eye(DIM, dtype=torch.float64) - beta.mT[..., None, None] * outer


def by_products(path, x, q, k):
    """kⱼᵀ H_{j+1} ⋯ Hᵢ qᵢ of every pair; of a key ahead kⱼᵀ qᵢ."""
    h, tokens = matrices(path, x), x.shape[1]
    scores = (q.double() @ k.double().mT).clone()
    for i in range(tokens):
        passing = q[:, :, i].double()
        for j in range(i, -1, -1):
            scores[:, :, i, j] = (k[:, :, j] * passing).sum(-1)
            passing = (h[:, :, j] @ passing.unsqueeze(-1)).squeeze(-1)
    return scores


@pytest.mark.parametrize("shift", [0.0, -3.0, 5.0])
@pytest.mark.parametrize("tokens", [1, 6, 150])
def test_is_the_product_of_its_matrices(shift, tokens):
    path = PaTH(WIDTH, HEADS)
    path.strength.bias.data.fill_(shift)
    x, (q, k) = torch.randn(2, tokens, WIDTH), torch.randn(2, 2, HEADS, tokens, DIM)
    at = prepared(path, x)
    bias = path.on_scores(q, k, at, at, scale=1.0).block(slice(None), slice(None))
    torch.testing.assert_close(
        q @ k.mT + bias, by_products(path, x, q, k).float(), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("keys", [slice(0, 90), slice(70, 131), slice(100, 101)])
def test_keys_left_out_change_nothing(keys):
    path, x = PaTH(WIDTH, HEADS), torch.randn(1, 150, WIDTH)
    q, k, at = *torch.randn(2, 1, HEADS, 150, DIM), prepared(path, x)
    bias = path.on_scores(q, k, at, at, scale=0.3)
    expected = bias.block(slice(None), slice(None))[..., 64:128, keys]
    torch.testing.assert_close(bias.block(slice(64, 128), keys), expected, rtol=1e-4, atol=1e-5)


def test_a_block_walks_the_chunks_that_its_queries_have_passed_and_no_others(monkeypatch):
    """65 queries have passed 2 chunks of 64 tokens, the others 5."""
    path, x = PaTH(WIDTH, HEADS), torch.randn(1, 300, WIDTH)
    q, k, at = *torch.randn(2, 1, HEADS, 300, DIM), prepared(path, x)
    bias, walked = path.on_scores(q, k, at, at, scale=0.3), []
    every = bias.block(slice(None), slice(None))
    monkeypatch.setattr(
        "posenc.biases.householder.over_lower",
        lambda x, a: walked.append(1) or over_lower(x, a),
    )
    for rows, chunks in ((slice(0, 65), 2), (slice(64, 64), 0), (slice(200, 300), 5)):
        walked.clear()
        torch.testing.assert_close(bias.block(rows, slice(None)), every[..., rows, :])
        assert len(walked) == chunks
    assert bias.block(slice(0, 20), slice(100, 120)).eq(0).all()  # keys ahead


@pytest.mark.parametrize("mask", [None, masks.causal()])
def test_where_nothing_is_mirrored_it_is_no_encoding(mask):
    path = PaTH(WIDTH, HEADS)
    path.strength.bias.data.fill_(-200.0)
    x, (q, k, v) = torch.randn(2, 150, WIDTH), torch.randn(3, 2, HEADS, 150, DIM)
    made = attend(q, k, v, path, prepared(path, x), mask=mask)
    torch.testing.assert_close(made, attend(q, k, v, NoPE(), mask=mask))


def test_two_mirrors_of_one_direction_undo_each_other():
    path = PaTH(WIDTH, HEADS)
    path.strength.bias.data.fill_(200.0)
    x, (q, k) = torch.randn(1, 1, WIDTH).expand(1, 7, WIDTH), torch.randn(2, 1, HEADS, 7, DIM)
    at = prepared(path, x)
    bias = path.on_scores(q, k, at, at, scale=1.0).block(slice(None), slice(None))
    for i in range(7):
        even = bias[..., i, [j for j in range(i + 1) if (i - j) % 2 == 0]]
        torch.testing.assert_close(even, torch.zeros_like(even), rtol=0, atol=1e-5)
    assert bias[..., 1, 0].abs().min() > 1e-4


@pytest.mark.slow
def test_traced_in_one_chunk_and_exported_by_products_it_is_the_same(monkeypatch):
    path, x = PaTH(WIDTH, HEADS), torch.randn(2, 150, WIDTH)
    q, k, at = *torch.randn(2, 2, HEADS, 150, DIM), prepared(path, x)
    bias = path.on_scores(q, k, at, at, scale=0.3)
    expected = bias.block(slice(None), slice(None))
    for name in ("is_compiling", "is_exporting"):
        monkeypatch.setattr(torch.compiler, name, lambda: True)
        made = bias.block(slice(None), slice(None))
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


def test_says_which_heads_do_not_fit():
    with refused(ValueError, "`heads`", "`width`", 30, 4):
        PaTH(30, 4)
