"""DINOv3's coordinates, angles and augmentations against its model in transformers."""

import pytest
import torch
from refusals import refused
from transformers import DINOv3ViTConfig
from transformers.models.dinov3_vit import modeling_dinov3_vit as theirs

from posenc import RoPE, axial, positions
from posenc.encodings.rotary.dinov3 import dinov3, jitter, rescale, shift

SIZES = [(14, 14), (3, 20), (1, 7)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_centres_equal_those_of_transformers(rows, columns):
    expected = theirs.get_patches_center_coordinates(rows, columns, torch.float64, "cpu")
    torch.testing.assert_close(positions.centred(rows, columns), expected, rtol=0, atol=1e-15)


def test_centres_of_halved_patches_stand_around_those_of_the_whole():
    coarse, fine = positions.centred(2, 3), positions.centred(4, 6).view(2, 2, 3, 2, 2)
    torch.testing.assert_close(fine.mean((1, 3)).flatten(0, 1), coarse)
    assert positions.centred(5, 4, 3).shape == (60, 3)
    assert positions.centred(3, 3)[4].tolist() == [0, 0]


@pytest.mark.parametrize(("rows", "columns"), SIZES)
@pytest.mark.parametrize("dim", [16, 64])
def test_equals_the_rotation_of_transformers(rows, columns, dim):
    config = DINOv3ViTConfig(hidden_size=2 * dim, num_attention_heads=2, patch_size=16)
    table = theirs.DINOv3ViTRopePositionEmbedding(config).eval()
    q, k = torch.randn(2, 3, 2, 5 + rows * columns, dim).unbind()  # a class token, four registers
    image = torch.zeros(1, 3, 16 * rows, 16 * columns)
    expected = theirs.apply_rotary_pos_emb(q, k, *table(image))
    nowhere = torch.zeros(5, 2)
    points = torch.cat((nowhere, positions.centred(rows, columns)))
    made = RoPE(dinov3(dim), layout="half")(q, k, points)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-5)
    assert made[0][..., :5, :].equal(q[..., :5, :])


def test_periods_run_from_an_image_half_to_nearly_the_base():
    theta = dinov3(32, base=10.0)
    periods = [2 * torch.pi / value for value in theta[0, :8].tolist()]
    assert periods == pytest.approx([10 ** (c / 8) for c in range(8)])
    assert theta[1, 8:].equal(theta[0, :8])
    assert not theta[0, 8:].any()
    assert not theta[1, :8].any()


def test_is_axial_rope_on_another_scale():
    q, cells = torch.randn(1, 2, 6, 16), positions.grid(2, 3)
    made = RoPE(dinov3(16))(q, q, cells / 7)[0]
    torch.testing.assert_close(made, RoPE(axial(16, base=100.0))(q, q, 2 * torch.pi * cells / 7)[0])


POINTS = positions.centred(4, 6).expand(5, 24, 2)  # five images


def test_an_image_moves_as_a_whole():
    moved = shift(POINTS, 0.25, seeded()) - POINTS
    assert moved.var(1).max() < 1e-12
    by = moved[:, 0]
    assert len(by.unique()) == 10  # each image and axis on its own
    assert by.abs().max() <= 0.25


def test_jitter_stretches_each_axis_on_its_own():
    factor = jitter(POINTS, 3.0, seeded()) / POINTS
    assert factor.var(1).max() < 1e-12
    assert len(factor[:, 0].unique()) == 10
    assert factor.min() >= 1 / 3
    assert factor.max() <= 3


def test_rescaling_keeps_the_shape_of_the_image():
    factor = rescale(POINTS, 2.0, seeded()) / POINTS
    assert factor.var(1).max() < 1e-12
    assert factor[..., 0].sub(factor[..., 1]).abs().max() < 1e-12
    assert len(factor[:, 0, 0].unique()) == 5
    assert factor.min() >= 1 / 2
    assert factor.max() <= 2


@pytest.mark.parametrize(
    ("change", "name", "most"),
    [(shift, "shift", 0.4), (jitter, "jitter", 3.0), (rescale,) * 2 + (2.0,)],
)
def test_drawn_as_often_as_in_transformers(change, name, most):
    name, many = getattr(name, "__name__", name), 4000
    points = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    ours = change(points.expand(many, 1, 2), most, seeded())[:, 0]
    theirs_ = [
        theirs.augment_patches_center_coordinates(points, **{name: most}) for _ in range(many)
    ]
    tenths = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    expected = torch.cat(theirs_).quantile(tenths, 0)
    torch.testing.assert_close(ours.quantile(tenths, 0), expected, rtol=0.06, atol=0.03)


@pytest.mark.parametrize("change", [shift, jitter, rescale])
def test_a_seed_gives_the_same_again_and_touches_no_other(change):
    before = torch.get_rng_state()
    assert change(POINTS, 2.0, seeded()).equal(change(POINTS, 2.0, seeded()))
    assert not change(POINTS, 2.0, seeded()).equal(change(POINTS, 2.0, seeded(1)))
    assert torch.get_rng_state().equal(before)
    assert not change(POINTS, 2.0).equal(change(POINTS, 2.0))
    assert change(POINTS[0], 2.0).shape == (24, 2)


def test_a_span_of_nothing_changes_nothing():
    assert shift(POINTS, 0.0).equal(POINTS)
    assert jitter(POINTS, 1.0).equal(POINTS)
    assert rescale(POINTS, 1.0).equal(POINTS)


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_says_which_spans_are_none(wrong):
    with refused(ValueError, "`by`", 0, wrong):
        shift(POINTS, wrong)
    for change in (jitter, rescale):
        with refused(ValueError, 1, wrong):
            change(POINTS, wrong)


@pytest.mark.parametrize("dim", [0, 2, 6, 10])
def test_says_how_many_channels_it_needs(dim):
    with refused(ValueError, 4, dim):
        dinov3(dim)
