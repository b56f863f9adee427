"""Scores by region against a loop over pairs."""

import pytest
import torch

from posenc.biases.regions import RegionBias

ALL = slice(None)


def test_with_q_times_k_it_makes_the_product_of_each_pair_s_region():
    q, k, other_q, other_k = torch.randn(4, 1, 2, 5, 3, dtype=torch.float64)
    pos = torch.tensor([[[0, 1, 4, 9, 2]]])
    region = lambda i, j: (i - j > 2).long()  # noqa: E731
    bias = RegionBias(q, k, pos, pos, 0.5, region, [(q, k), (other_q, other_k)])
    made = q @ k.mT * 0.5 + bias.block(ALL, ALL)
    for h, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(5), torch.arange(5)):
        far = pos[0, 0, i] - pos[0, 0, j] > 2
        a, b = (other_q, other_k) if far else (q, k)
        expected = 0.5 * sum(x * y for x, y in zip(a[0, h, i], b[0, h, j], strict=True))
        assert made[0, h, i, j].item() == pytest.approx(expected.item())
    rows, keys = slice(1, 4), slice(2, 5)
    torch.testing.assert_close(bias.block(rows, keys), bias.block(ALL, ALL)[..., rows, keys])
    assert bias.scores is not None
    torch.testing.assert_close(bias.scores(rows, keys), made[..., rows, keys])
