"""Attention in blocks of queries, against the definition, which makes all scores at once."""

import pytest
import torch

from posenc import CoPE, FoX, RoPE, SelfAttention, Shaw, Sum, T5Bias, attend, masks
from posenc.attention import blocks
from posenc.core.encoding import Encoding

MAKE = {
    "T5": lambda: T5Bias(4),
    "Shaw": lambda: Shaw(8),
    "CoPE": lambda: CoPE(8),
    "RoPE and T5": lambda: Sum(RoPE(8), T5Bias(4)),
}
ODD = {"causal": masks.causal(), "every third": lambda b, h, i, j: (i - j) % 3 == 0}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("mask", ODD.values(), ids=ODD)
@pytest.mark.parametrize("tokens", [15, 17, 128, 129, 300])
def test_blocks_of_any_size_are_the_reference_and_its_gradients(make, mask, tokens):
    encoding = make()
    inputs = torch.randn(3, 1, 4, tokens, 8).requires_grad_().unbind()
    results = []
    for path in ("blocks", "reference"):
        out = attend(*inputs, encoding, mask=mask, implementation=path)
        learned = (*inputs, *encoding.parameters())
        results.append((out, *torch.autograd.grad(out.square().sum(), learned)))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


class Counted(Encoding):
    """A bias that counts the blocks that are computed."""

    asked = 0

    def on_scores(self, q, k, q_at, k_at, scale):
        return self

    def block(self, rows, keys, seen):
        self.asked += 1
        return torch.zeros(1, 1, 1, 1)


def test_one_block_is_not_made_again_for_the_gradients():
    for tokens, times in ((blocks.BLOCK, 1), (blocks.BLOCK + 1, 4)):
        encoding, q = Counted(), torch.randn(1, 2, tokens, 8, requires_grad=True)
        attend(q, q, q, encoding).sum().backward()
        assert encoding.asked == times


@pytest.mark.parametrize(
    ("trains", "most", "times"), [(True, 1, 1), (False, 1, 3), (False, 2 * 40 * 20, 2)]
)
def test_large_scores_are_made_by_blocks_unless_training_keeps_them_anyway(
    trains, most, times, monkeypatch
):
    """40 queries run in blocks of 20 or of the smallest size; with gradients, in one block."""
    monkeypatch.setattr(blocks, "MOST_SCORES", most)
    encoding, q = Counted(), torch.randn(1, 2, 40, 8, requires_grad=trains)
    out = attend(q, q, q, encoding)
    if trains:
        out.sum().backward()
    assert encoding.asked == times


def test_gates_go_by_blocks_too():
    layer, x = SelfAttention(32, 4, FoX(32, 4)), torch.randn(2, 150, 32)
    torch.testing.assert_close(
        layer(x, mask=masks.causal(), implementation="blocks"),
        layer(x, mask=masks.causal(), implementation="reference"),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip
