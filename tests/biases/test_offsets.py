"""Biases of content by offset, block by block and pair by pair, against loops over pairs."""

import pytest
import torch

from posenc.biases import vectors
from posenc.biases.tables import TableBias
from posenc.biases.vectors import VectorBias
from posenc.core.biases import pairs

HEADS, QUERIES, KEYS, DIM, REACH = 2, 4, 5, 3, 2
POS, K_POS = torch.tensor([3, 9, 4, 7]), torch.tensor([0, 3, 5, 8, 10])


def row(offset):
    return offset.clamp(-REACH, REACH) + REACH


def table_bias(of_keys):
    q, k = torch.randn(1, HEADS, QUERIES, DIM), torch.randn(1, HEADS, KEYS, DIM)
    table, key_table = torch.randn(2, HEADS, 2 * REACH + 1, DIM)
    keys = (row, k, key_table) if of_keys else None
    return TableBias(POS, K_POS, REACH, row, q, table, keys, scale=0.5), q, k, table, key_table


@pytest.mark.parametrize("of_keys", [False, True])
@pytest.mark.parametrize("graded", [False, True])
def test_a_table_is_looked_up_by_offset(of_keys, graded):
    with torch.set_grad_enabled(graded):
        bias, q, k, table, key_table = table_bias(of_keys)
        block = bias.block(slice(1, 4), slice(0, 5))
        pair = bias.pair()(*pairs((1, HEADS, QUERIES, KEYS)))
    for h in range(HEADS):
        for i in range(QUERIES):
            for j in range(KEYS):
                r = int(row(POS[i] - K_POS[j]))
                expected = 0.5 * (q[0, h, i] @ table[h, r])
                expected = expected + (k[0, h, j] @ key_table[h, r] if of_keys else 0)
                torch.testing.assert_close(pair[0, h, i, j], expected)
                if i:
                    torch.testing.assert_close(block[0, h, i - 1, j], expected)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2)], ids=["texts", "heads"])
def test_texts_and_heads_at_positions_of_their_own_are_looked_up_apart(shape):
    """Against one text and head at a time; few queries without gradients are computed by rows."""
    pos = torch.stack((POS, POS + 4)).view(*shape, QUERIES)
    q, k = torch.randn(2, HEADS, QUERIES, DIM), torch.randn(2, HEADS, KEYS, DIM)
    table, key_table = torch.randn(2, HEADS, 2 * REACH + 1, DIM)
    with torch.no_grad():
        keys = row, k, key_table
        block = TableBias(pos, K_POS, REACH, row, q, table, keys).block(slice(None), slice(None))
    for b in range(2):
        for h in range(HEADS):
            r = row(pos.expand(2, 2, -1)[b, h].unsqueeze(-1) - K_POS)
            expected = (q[b, h].unsqueeze(-2) * table[h, r]).sum(-1)
            expected = expected + (k[b, h] * key_table[h, r]).sum(-1)
            torch.testing.assert_close(block[b, h], expected)


def vector_bias(q_pos, k_pos, dtype=torch.float64):
    q, k = (torch.randn(1, HEADS, len(pos), DIM, dtype=dtype) for pos in (q_pos, k_pos))
    u, v = torch.randn(2, HEADS, 1, DIM, dtype=dtype)
    project = torch.randn(HEADS, DIM, len(SPEEDS) * 2, dtype=dtype)
    bias = VectorBias(q_pos, k_pos, q, k, u, v, 0.5, project, waves)
    return bias, q, k, u, v, project


SPEEDS = torch.tensor([1.0, 0.1, 0.03], dtype=torch.float64)


def waves(pos):
    angle = pos.double().unsqueeze(-1) * SPEEDS
    return torch.cat((angle.sin(), angle.cos()), -1)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize(
    ("pos", "k_pos"),
    [
        (POS, K_POS),
        (POS + 700, K_POS),
        (POS, 7 * K_POS),
        (POS, 2**20 * K_POS),
        (POS * 0.5, K_POS),
        (POS, POS),
        (POS[:1], POS[:1]),
    ],
    ids=["near", "later", "sparse", "far", "halves", "itself", "one pair"],
)
def test_vectors_meet_queries_by_offset(pos, k_pos, few, monkeypatch):
    """Looked up for few queries, where offsets are few too, and by the sum formula for many."""
    monkeypatch.setattr(vectors, "FEW_QUERIES", 8 if few else 0)
    bias, q, k, u, v, project = vector_bias(pos, k_pos)
    block = bias.block(slice(0, len(pos)), slice(0, len(k_pos)))
    for h in range(HEADS):
        for i in range(len(pos)):
            for j in range(len(k_pos)):
                content = u[h, 0] @ k[0, h, j]
                vector = project[h] @ waves(pos[i] - k_pos[j])
                expected = 0.5 * (content + (q[0, h, i] + v[h, 0]) @ vector)
                torch.testing.assert_close(block[0, h, i, j], expected, rtol=1e-5, atol=1e-5)


def test_sines_of_a_decoded_token_grow_with_the_root_of_its_keys():
    asked = []
    bias, *_ = vector_bias(torch.tensor([10_000]), torch.arange(10_000))
    bias.sinusoids = lambda pos: (asked.append(pos.numel()), waves(pos))[1]
    bias.block(slice(0, 1), slice(0, 10_000))
    assert sum(asked) < 250


def test_what_queries_and_keys_absorb_is_the_bias():
    """Wholly, or u alone; twice, as in a sum of two."""
    bias, q, k, *_ = vector_bias(POS, K_POS)
    expected = q @ k.mT * 0.5 + bias.block(slice(None), slice(None))
    wide_q, wide_k, left = bias.absorbed(q, k, True)
    assert left is None
    torch.testing.assert_close(wide_q @ wide_k.mT * 0.5, expected)
    some_q, some_k, left = bias.absorbed(q, k, False)
    rest = left.block(slice(None), slice(None))
    torch.testing.assert_close(some_q @ some_k.mT * 0.5 + rest, expected)
    twice_q, twice_k, _ = bias.absorbed(wide_q, wide_k, True)
    both = expected + bias.block(slice(None), slice(None))
    torch.testing.assert_close(twice_q @ twice_k.mT * 0.5, both)
