"""Swin v2 against transformers' Swinv2SelfAttention, and its formula with Python's numbers."""

from math import copysign, exp, log2

import pytest
import torch
from refusals import refused
from torch import nn
from transformers import Swinv2Config
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

from posenc import SwinV2, attend
from posenc.positions import grid


def with_their_weights(theirs, **options):
    ours = SwinV2(theirs.num_attention_heads, **options)
    inner, _, outer = theirs.continuous_position_bias_mlp
    ours.inner.load_state_dict(inner.state_dict())
    ours.outer.load_state_dict(outer.state_dict())
    return ours


@pytest.mark.parametrize(
    ("window", "trained", "options"),
    [(4, 0, {"window": 4}), (6, 4, {"window": 4, "reach": 5})],
    ids=["the window of training", "a larger window"],
)
def test_equals_transformers_attention(window, trained, options):
    theirs = Swinv2SelfAttention(Swinv2Config(), 16, 2, window, [trained] * 2)
    nn.init.normal_(theirs.logit_scale)
    ours, points = with_their_weights(theirs, **options), grid(window, window)
    x = torch.randn(1, len(points), 16)
    q, k, v = (
        part(x).unflatten(-1, (2, 8)).transpose(1, 2)
        for part in (theirs.query, theirs.key, theirs.value)
    )
    q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
    q = q * theirs.logit_scale.exp()
    out = attend(q, k, v, ours, points, scale=1.0).transpose(1, 2).flatten(2)
    torch.testing.assert_close(out, theirs.eval()(x)[0])


def test_equals_its_formula():
    encoding = SwinV2(2, window=(3, 5), hidden=4)
    bias, points = encoding(grid(3, 5))[0], grid(3, 5).tolist()
    weight, shift, outer = (
        x.tolist() for x in (encoding.inner.weight, encoding.inner.bias, encoding.outer.weight)
    )

    def f(Δ, m):
        return copysign(log2(1 + 8 * abs(Δ) / (m - 1)) / 3, Δ)

    for i, (row, column) in enumerate(points):
        for j, (key_row, key_column) in enumerate(points):
            y, x = f(row - key_row, 3), f(column - key_column, 5)
            units = [max(0, a * y + b * x + c) for (a, b), c in zip(weight, shift, strict=True)]
            for h in (0, 1):
                logit = sum(w * u for w, u in zip(outer[h], units, strict=True))
                expected = 16 / (1 + exp(-logit))
                assert bias[h, i, j].item() == pytest.approx(expected, rel=1e-5)


def test_the_reach_changes_no_offset_within_it():
    near, far = SwinV2(2, window=3), SwinV2(2, window=3, reach=9)
    far.load_state_dict(near.state_dict())
    torch.testing.assert_close(near(grid(3, 3)), far(grid(3, 3)))
    corner, away = torch.tensor([[0, 0]]), torch.tensor([[0, 9]])
    assert near(corner, away).equal(near(corner, torch.tensor([[0, 2]])))
    assert not far(corner, away).allclose(far(corner, torch.tensor([[0, 2]])))


@pytest.mark.parametrize("options", [{"window": 1}, {"window": (4, 1)}, {"hidden": 0}], ids=str)
def test_refuses_a_window_without_offsets(options):
    with refused(ValueError, "`window`", "`hidden`"):
        SwinV2(2, **options)
