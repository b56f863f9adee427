"""Biases of content by offset, block by block and pair by pair, against loops over pairs."""

import pytest
import torch

from posenc.core.biases import pairs
from posenc.core.offset_biases import TableBias, VectorBias

HEADS, QUERIES, KEYS, DIM, REACH = 2, 4, 5, 3, 2
POS, K_POS = torch.tensor([3, 9, 4, 7]), torch.tensor([0, 3, 5, 8, 10])


def row(offset):
    return offset.clamp(-REACH, REACH) + REACH


def table_bias(of_keys):
    q, k = torch.randn(1, HEADS, QUERIES, DIM), torch.randn(1, HEADS, KEYS, DIM)
    table, key_table = torch.randn(2, HEADS, 2 * REACH + 1, DIM)
    keys = (row, k, key_table) if of_keys else (None, None, None)
    return TableBias(POS, K_POS, REACH, row, q, table, *keys, scale=0.5), q, k, table, key_table


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


def test_vectors_meet_queries_by_offset():
    q, k = torch.randn(1, HEADS, QUERIES, DIM), torch.randn(1, HEADS, KEYS, DIM)
    u, v = torch.randn(2, HEADS, 1, DIM)
    vectors = lambda offset: offset.unsqueeze(-1).expand(HEADS, -1, DIM) * 0.1  # noqa: E731

    def products(rows, keys):
        apart = POS[rows].unsqueeze(-1) - K_POS[keys]
        return lambda x: (x * 0.1).sum(-1, keepdim=True) * apart

    bias = VectorBias(POS, K_POS, q, k, u, v, 0.5, vectors, products, lambda q, k: (q, k))
    block = bias.block(slice(0, QUERIES), slice(0, KEYS))
    for h in range(HEADS):
        for i in range(QUERIES):
            for j in range(KEYS):
                content = u[h, 0] @ k[0, h, j]
                by_offset = (q[0, h, i] + v[h, 0]).sum() * 0.1 * (POS[i] - K_POS[j])
                torch.testing.assert_close(block[0, h, i, j], 0.5 * (content + by_offset))
