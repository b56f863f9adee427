"""Axial RoPE against one-dimensional RoPE on each axis, and its promise of offsets."""

import itertools

import pytest
import torch
from refusals import refused

from posenc import AxialRoPE, RoPE, axial, positions


def scores(freqs, q, k, q_pos, k_pos):
    rope = RoPE(freqs)
    return (rope.on_queries(q, rope.prepare(q_pos)) @ rope.on_keys(k, rope.prepare(k_pos)).mT)[0, 0]


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_two_axes_are_two_ropes_side_by_side(layout):
    x, pos = torch.randn(1, 2, 12, 16), positions.grid(3, 4)
    out = RoPE(axial(16), layout=layout)(x, x, pos)[0]
    pairs = (
        torch.arange(16).view(8, 2) if layout == "interleaved" else torch.arange(16).view(2, 8).T
    )
    for axis, own in enumerate((pairs[:4], pairs[4:])):
        channels = own.flatten() if layout == "interleaved" else own.T.flatten()
        alone = RoPE(8, layout=layout)(x[..., channels], x[..., channels], pos[:, axis])[0]
        assert out[..., channels].equal(alone)


@pytest.mark.parametrize(("axes", "dim"), [(2, 8), (2, 12), (3, 12), (3, 18)])
def test_each_pair_turns_by_one_axis(axes, dim):
    x = torch.randn(1, 1, 1, dim)
    each = dim // (2 * axes)
    for axis in range(axes):
        step = torch.zeros(1, axes)
        step[0, axis] = 2.0
        moved = (RoPE(axial(dim, axes))(x, x, step)[0] != x)[0, 0, 0].view(-1, 2).all(-1)
        expected = [axis * each <= pair < (axis + 1) * each for pair in range(dim // 2)]
        assert moved.tolist() == expected


@pytest.mark.parametrize("axes", [2, 3])
def test_a_score_depends_on_the_offset_along_each_axis_only(axes):
    q, k = torch.randn(2, 1, 1, 8, 24, dtype=torch.float64).unbind()
    q_pos, k_pos = torch.randint(0, 50, (2, 8, axes)).unbind()
    here = scores(axial(24, axes), q, k, q_pos, k_pos)
    for shift in itertools.product((0, 1000), repeat=axes):
        by = torch.tensor(shift)
        there = scores(axial(24, axes), q, k, q_pos + by, k_pos + by)
        torch.testing.assert_close(here, there, rtol=0, atol=1e-5)


def test_exchanging_the_axes_changes_the_score():
    q, k = torch.randn(2, 1, 1, 1, 8).unbind()
    origin, right, down = (torch.tensor([point]) for point in ([0, 0], [0, 3], [3, 0]))
    a, b = scores(axial(8), q, k, right, origin), scores(axial(8), q, k, down, origin)
    assert not torch.isclose(a, b)


def test_one_angle_for_both_axes_would_confuse_offsets():
    both = axial(8).sum(0).expand(2, 4)
    q, k = torch.randn(2, 1, 1, 1, 8).unbind()
    origin, a, b = (torch.tensor([point]) for point in ([0, 0], [1, 4], [3, 2]))
    assert scores(both, q, k, a, origin).equal(scores(both, q, k, b, origin))
    assert not scores(axial(8), q, k, a, origin).isclose(scores(axial(8), q, k, b, origin))


def test_pairs_left_over_do_not_turn():
    x, pos = torch.randn(1, 2, 8, 16), positions.grid(2, 2, 2)
    out = RoPE(axial(16, axes=3))(x, x, pos)[0]
    assert out[..., 12:].equal(x[..., 12:])
    assert not out[:, :, -1, :12].isclose(x[:, :, -1, :12]).any()


def test_one_axis_is_rope():
    x, pos = torch.randn(1, 2, 4, 16), torch.tensor([0, 3, 50, 7])
    assert RoPE(axial(16, axes=1))(x, x, pos[:, None])[0].equal(RoPE(16)(x, x, pos)[0])


@pytest.mark.parametrize(("dim", "axes"), [(2, 2), (7, 2), (4, 3), (8, 0)])
def test_says_how_many_channels_it_needs(dim, axes):
    with refused(ValueError, 2 * axes, "`axes`", axes, dim):
        axial(dim, axes)


def test_takes_points_only():
    with refused(ValueError, 2, "`pos`"):
        RoPE(axial(8)).prepare(torch.arange(6))


DIFFUSION = {  # channels of each axis and base, as in diffusers 0.42.1 (`axes_dims_rope`, `theta`)
    "FLUX.2": ((32, 32, 32, 32), 2000),
    "Qwen-Image": ((16, 56, 56), 10_000),
    "Z-Image": ((32, 48, 48), 256),
    "Wan": ((44, 42, 42), 10_000),
}


@pytest.mark.parametrize("model", DIFFUSION)
def test_diffusion_models_give_axes_their_own_widths(model):
    """θ of axis a by loops: base^(−2c/d_a) for its own d_a channels."""
    widths, base = DIFFUSION[model]
    pairs = [width // 2 for width in widths]
    theta = axial(sum(widths), len(widths), base, pairs)
    pair = 0
    for axis, width in enumerate(widths):
        for c in range(width // 2):
            expected = [0.0] * len(widths)
            expected[axis] = base ** (-2 * c / width)
            assert theta[:, pair].tolist() == pytest.approx(expected, rel=1e-15)
            pair += 1
    assert pair == theta.shape[1]


def test_each_axis_may_have_its_own_base():
    theta = axial(8, 2, (100.0, 16.0), (1, 3))
    assert theta[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert theta[1].tolist() == pytest.approx([0.0, 1.0, 16 ** (-1 / 3), 16 ** (-2 / 3)])
    assert AxialRoPE(8, 2, (100.0, 16.0), (1, 3)).theta.equal(theta)


@pytest.mark.parametrize("sections", [(2, 3), (4,), (0, 4), (1, 1, 2)])
def test_sections_are_pairs_of_every_axis(sections):
    with refused(ValueError, "`sections`", 4, "pairs"):
        axial(8, 2, sections=sections)


def test_bases_are_one_for_all_axes_or_one_for_each():
    with refused(ValueError, "`base`", 2, "[1.0, 2.0, 3.0]"):
        axial(8, 2, (1.0, 2.0, 3.0))
