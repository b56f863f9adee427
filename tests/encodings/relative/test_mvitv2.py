"""MViTv2 against transformers' image encoder of SAM, and against a loop over pairs."""

import pytest
import torch
from refusals import refused
from transformers import SamVisionConfig
from transformers.models.sam.modeling_sam import SamVisionAttention

from posenc import MViTv2, attend
from posenc.positions import grid


@pytest.mark.parametrize("window", [0, 3], ids=["the whole image", "a window"])
def test_equals_the_image_encoder_of_sam(window):
    config = SamVisionConfig(
        image_size=40, patch_size=8, hidden_size=16, num_attention_heads=2, num_hidden_layers=1
    )
    theirs, side = SamVisionAttention(config, window).eval(), window or 5
    ours = MViTv2(8, size=side)
    theirs.rel_pos_h.data, theirs.rel_pos_w.data = ours.rows.data, ours.columns.data
    x = torch.randn(2, side, side, 16)
    q, k, v = theirs.qkv(x).flatten(1, 2).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
    out = attend(q, k, v, ours, grid(side, side)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(theirs.proj(out).unflatten(1, (side, side)), theirs(x)[0])


def test_adds_one_product_for_each_axis():
    encoding, points = MViTv2(4, size=(3, 2)), torch.tensor([[0, 0], [2, 1], [1, 0], [9, 9]])
    q, k, v = torch.randn(3, 1, 2, 4, 4)
    scores = q @ k.mT / 2
    for i, (row, column) in enumerate(points.tolist()):
        for j, (key_row, key_column) in enumerate(points.tolist()):
            of_row = encoding.rows[max(-2, min(2, row - key_row)) + 2]
            of_column = encoding.columns[max(-1, min(1, column - key_column)) + 1]
            scores[..., i, j] += (q[..., i, :] * (of_row + of_column)).sum(-1)
    torch.testing.assert_close(attend(q, k, v, encoding, points), scores.softmax(-1) @ v)


def test_refuses_fractions():
    q = torch.randn(1, 1, 4, 8)
    with refused(TypeError, "`pos`", "MViTv2"):
        attend(q, q, q, MViTv2(8), grid(2, 2) / 2)


@pytest.mark.parametrize("size", [0, (4, 0), (1, 2, 3)])
def test_refuses_a_size_without_two_sides(size):
    with refused(ValueError, "`size`"):
        MViTv2(8, size)
