"""Sums of gates against loops over the tokens between key and query."""

import torch

from posenc.biases.decay import DecayBias
from posenc.core.biases import dense

BATCH, HEADS, TOKENS = 2, 3, 7


def test_a_bias_is_what_is_forgotten_between_key_and_query():
    lost = torch.rand(BATCH, HEADS, TOKENS, dtype=torch.float64)
    c = -lost.cumsum(-1)
    bias = DecayBias(torch.empty(BATCH, HEADS, TOKENS, 4), c, c)
    block = bias.block(slice(2, 6), slice(0, 5))
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(2, 6):
                for j in range(5):
                    first, last = sorted((i, j))
                    forgotten = sum(lost[b, h, t].item() for t in range(first + 1, last + 1))
                    assert abs(block[b, h, i - 2, j].item() + forgotten) < 1e-6


def test_a_pair_has_the_bias_of_the_block():
    c = torch.randn(1, HEADS, TOKENS).cumsum(-1)
    bias = DecayBias(torch.empty(BATCH, HEADS, TOKENS, 4), c, c)
    of_pair = dense(bias.pair(), (BATCH, HEADS, TOKENS, TOKENS))
    torch.testing.assert_close(of_pair, bias.block(slice(None), slice(None)))
