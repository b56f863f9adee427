"""The bias of a count against sums in Python's own numbers; CoPE's own test holds its formula."""

import pytest
import torch

from posenc.biases.counts import CountBias, counted

EVERY = slice(None)


def test_counts_are_sums_from_a_key_on():
    gates = torch.rand(2, 3, 9, dtype=torch.float64)
    made = counted(gates)
    for b, h, j in torch.cartesian_prod(*map(torch.arange, gates.shape)):
        assert made[b, h, j].item() == pytest.approx(sum(gates[b, h, j:].tolist()))


def test_a_key_that_is_not_seen_is_not_counted():
    """Keys that are left away, and keys of NaN that the mask hides, give the same bias."""
    q, k, e = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 9, 4), torch.randn(5, 4)
    expected = CountBias(q, k[:, :, :6], e, 0.5).block(EVERY, EVERY)
    k[:, :, 6:] = float("nan")
    made = CountBias(q, k, e, 0.5).block(EVERY, EVERY, torch.arange(9) < 6)
    torch.testing.assert_close(made[..., :6], expected)


def test_counts_are_rounded_by_no_autocast():
    q, k, e = torch.randn(1, 2, 300, 8), torch.randn(1, 2, 300, 8), torch.randn(64, 8)
    bias = CountBias(q, k, e, 0.3)
    expected = bias.block(EVERY, EVERY)
    with torch.autocast("cpu", torch.bfloat16):
        assert bias.block(EVERY, EVERY).equal(expected)
