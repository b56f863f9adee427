"""Products of mirrors against the matrices themselves, multiplied one by one in float64."""

import pytest
import torch
from torch.nn.functional import normalize

from posenc.biases import transported_keys
from posenc.biases.householder import mirrored, mirrored_chunks
from posenc.core import running_sums

TOKENS, DIM = 9, 4


@pytest.fixture
def mirrors():
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 3, TOKENS, DIM, dtype=torch.float64)
    w = normalize(torch.randn(2, 3, TOKENS, DIM, dtype=torch.float64), dim=-1)
    beta = 2 * torch.rand(2, 3, TOKENS, dtype=torch.float64)
    return q, k, w, beta


def by_hand(q, k, w, beta, order, read):
    one = torch.eye(DIM, dtype=torch.float64)
    out = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        product = one
        for t in range(j + 1, k.shape[2]):
            if read[t] <= order[i]:
                product = product @ (one - beta[b, h, t] * torch.outer(w[b, h, t], w[b, h, t]))
        out[b, h, i, j] = k[b, h, j] @ product @ q[b, h, i]
    return out


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_a_query_meets_the_mirrors_between_it_and_the_key(mirrors, chunk, monkeypatch):
    monkeypatch.setattr(running_sums, "CHUNK", chunk)
    q, k, w, beta = mirrors
    read = 1 + torch.arange(TOKENS)
    made, _ = mirrored(q, k, read, w, beta, read)
    torch.testing.assert_close(made, by_hand(q, k, w, beta, read, read), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [slice(0, 1), slice(3, 5), slice(8, 9)])
def test_of_some_queries_the_keys_beyond_them_are_seen_unchanged(mirrors, rows):
    q, k, w, beta = mirrors
    read = 1 + torch.arange(TOKENS)
    made, _ = mirrored(q[:, :, rows], k, read[rows], w, beta, read)
    wanted = by_hand(q[:, :, rows], k, w, beta, read[rows], read)
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12)
    ahead = q[:, :, rows] @ k[:, :, rows.stop :].mT
    torch.testing.assert_close(made[..., rows.stop :], ahead, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk", [2, 4, 64])
def test_in_chunks_keys_are_carried_and_queries_come_back(mirrors, chunk, monkeypatch):
    monkeypatch.setattr(transported_keys, "CHUNK", chunk)
    q, k, w, beta = mirrors
    read, keys = 1 + torch.arange(TOKENS), k[:, :, :0]
    scores, chunks = by_hand(q, k, w, beta, read, read), mirrored_chunks(q, k, w, beta)
    for n, start in enumerate(range(0, TOKENS, chunk)):
        rows = slice(start, min(start + chunk, TOKENS))
        met = chunks.q[:, :, n] @ keys.mT, chunks.own[:, :, n].tril()
        here = torch.cat(met, -1)[:, :, : rows.stop - start, : rows.stop]
        expected = scores[:, :, rows, : rows.stop].tril(start)
        torch.testing.assert_close(here, expected, rtol=0, atol=1e-12)
        keys = chunks.past(keys, n)


def test_a_query_comes_back_past_all_mirrors(mirrors):
    q, k, w, beta = mirrors
    read = 1 + torch.arange(TOKENS)
    first = torch.zeros(2, 3, 1, DIM, dtype=torch.float64), torch.zeros(2, 3, 1).double()
    # A key before all tokens, whose own mirror takes nothing away
    for channel in range(DIM):
        one = torch.zeros(2, 3, 1, DIM, dtype=torch.float64)
        one[..., channel] = 1
        keys, ws = torch.cat((one, k), -2), torch.cat((first[0], w), -2)
        betas = torch.cat((first[1], beta), -1)
        scores = by_hand(q, keys, ws, betas, read, torch.cat((read[:1] - 1, read)))
        _, back = mirrored(q, k, read, w, beta, read)
        torch.testing.assert_close(back[..., channel], scores[..., 0], rtol=0, atol=1e-12)
