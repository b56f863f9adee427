"""Sinusoidal grid against the tables of transformers' DETR, RT-DETR, AIMv2, MAE and SAM 2."""

from math import cos, pi, sin

import pytest
import torch
from refusals import refused
from transformers import ViTMAEConfig
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding
from transformers.models.rt_detr.modeling_rt_detr import build_2d_sinusoidal_position_embedding
from transformers.models.sam2.modeling_sam2 import Sam2SinePositionEmbedding
from transformers.models.vit_mae.modeling_vit_mae import ViTMAEEmbeddings

from posenc import SinusoidalGrid
from posenc.positions import grid

SIZES = pytest.mark.parametrize("size", [(5, 5), (3, 7), (25, 34)], ids=str)


def rows(points, width, **options):
    return SinusoidalGrid(width, **options)(torch.zeros(1, len(points), width), points)[0]


def theirs(made, size, **more):
    pos = made(torch.Size((1, 8, *size)), "cpu", torch.float32, **more)
    return pos.flatten(2).squeeze(0).mT


@SIZES
def test_equals_detr_with_counted_positions(size):
    expected = theirs(DetrSinePositionEmbedding(32), size)
    torch.testing.assert_close(rows(grid(*size) + 1, 64), expected, rtol=0, atol=2e-6)


@SIZES
@pytest.mark.parametrize("made", [DetrSinePositionEmbedding, Sam2SinePositionEmbedding])
def test_equals_detr_and_sam_2_with_normalised_positions(size, made):
    points = (grid(*size) + 1) / torch.tensor(size) * 2 * pi
    expected = theirs(made(32, normalize=True), size)
    # The divisor of both is larger by 10⁻⁶
    torch.testing.assert_close(rows(points, 64), expected, rtol=0, atol=1e-5)


@SIZES
def test_equals_rt_detr_and_aimv2(size):
    expected = build_2d_sinusoidal_position_embedding(*size, 64)
    torch.testing.assert_close(rows(grid(*size), 64, layout="half"), expected, rtol=0, atol=1e-7)


def test_equals_mae_whose_columns_come_first():
    theirs = ViTMAEEmbeddings(ViTMAEConfig(image_size=48, patch_size=8, hidden_size=64))
    theirs.initialize_weights()
    class_row, *expected = theirs.position_embeddings[0]
    made = rows(grid(6, 6).flip(-1), 64, layout="half")
    torch.testing.assert_close(made, torch.stack(expected), rtol=0, atol=1e-7)
    assert not class_row.any()


def test_each_of_three_axes_has_a_third_of_the_channels():
    frame, row, column = point = (2, 5, 1)
    expected = []
    for p in (frame, row, column):
        expected += [sin(p), cos(p), sin(p * 0.01), cos(p * 0.01)]
    made = rows(torch.tensor([point]), 12, axes=3)[0]
    torch.testing.assert_close(made, torch.tensor(expected))


def test_the_product_of_two_rows_depends_on_the_offset_along_each_axis():
    points = torch.tensor([[2, 9], [5, 4], [102, 59], [105, 54]])
    products = rows(points, 64) @ rows(points, 64).mT
    torch.testing.assert_close(products[0, 1], products[2, 3])
    moved_otherwise = rows(torch.tensor([[2, 9], [5, 14]]), 64)
    # Cosines are even, so reversing one coordinate of an offset changes nothing
    torch.testing.assert_close(moved_otherwise[0] @ moved_otherwise[1], products[0, 1])


@pytest.mark.parametrize(("width", "axes"), [(6, 2), (64, 3), (2, 2)])
def test_refuses_a_width_that_the_axes_cannot_share(width, axes):
    with refused(ValueError, "`width`", f"{2 * axes}", f"{width}"):
        SinusoidalGrid(width, axes)


def test_refuses_positions_that_are_no_points(unchecked):
    with refused(ValueError, "`pos`", "2"):
        SinusoidalGrid(8).prepare(torch.arange(5))


def test_one_axis_is_sinusoidal():
    with refused(ValueError, "`axes`", "2"):
        SinusoidalGrid(8, axes=1)
