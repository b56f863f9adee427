"""Score against distance: loops over pairs, and ALiBi's known slope."""

import pytest
import torch

from posenc import ALiBi, NoPE, RoPE, SelfAttention, T5Bias
from posenc.analysis.similarity import by_distance


def test_is_the_mean_over_all_pairs_so_far_apart():
    layer, x = SelfAttention(16, 2, RoPE(8)), torch.randn(2, 5, 16)
    curve = by_distance(layer, x)
    with torch.no_grad():
        q = layer.q(x).view(2, 5, 2, 8)
        for distance in range(5):
            found = []
            for window in range(2):
                for head in range(2):
                    for i in range(distance, 5):
                        pos = torch.tensor([i, i - distance])
                        pair = q[window, pos, head].view(1, 1, 2, 8)
                        turned, _ = layer.encoding(pair, pair, pos)
                        found.append((turned[0, 0, 0] @ turned[0, 0, 1] / 8**0.5).item())
            assert curve.mean[distance] == pytest.approx(sum(found) / len(found), abs=1e-5)
            assert curve.low[distance] <= curve.mean[distance] <= curve.high[distance]


def test_alibi_lowers_the_mean_by_the_mean_slope():
    x, layer = torch.randn(3, 12, 16), SelfAttention(16, 4, NoPE())
    plain = by_distance(layer, x)
    layer.encoding = ALiBi(4)
    biased = by_distance(layer, x)
    slope = (2**-2 + 2**-4 + 2**-6 + 2**-8) / 4
    for distance in plain.distance:
        fall = plain.mean[distance] - biased.mean[distance]
        assert fall == pytest.approx(slope * distance, abs=1e-5)


def test_distance_is_counted_back_from_the_query():
    x, layer = torch.randn(3, 6, 16), SelfAttention(16, 2, NoPE())
    plain = by_distance(layer, x)
    layer.encoding = t5 = T5Bias(2, buckets=8, reach=16)
    biased = by_distance(layer, x)
    for distance in (0, 1):  # each has a bucket of its own; those of keys ahead begin at 4
        expected = t5.weight[distance].mean().item()
        assert biased.mean[distance] - plain.mean[distance] == pytest.approx(expected, abs=1e-5)
