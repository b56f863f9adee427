"""LieRE against torch's exponential of its generators, and RoPE where these are single planes."""

import pytest
import torch
from refusals import refused

from posenc import LieRE, RoPE, attend, axial, frequencies, masks, positions
from posenc.core.positions import folded
from posenc.properties import check


def planes(freqs):
    """Generators that turn the pairs of interleaved channels by θ (axis, pair)."""
    upper = torch.zeros(*freqs.shape, 2, 2)
    upper[..., 0, 1] = -freqs
    return upper


def test_is_the_exponential_of_its_generators():
    liere, x = LieRE(8, block=4), torch.randn(2, 3, 6, 8)
    pos = torch.rand(2, 6, 2)
    turned = liere.on_queries(x, liere.prepare(pos))
    for b, t, block in torch.cartesian_prod(*map(torch.arange, (2, 6, 2))).tolist():
        generator = torch.zeros(4, 4)
        for axis in range(2):
            upper = liere.generators.detach()[axis, block].triu(1)
            generator += pos[b, t, axis] * (upper - upper.mT)
        part = slice(4 * block, 4 * block + 4)
        expected = x[b, :, t, part] @ torch.matrix_exp(generator.double()).mT.float()
        torch.testing.assert_close(turned[b, :, t, part], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_in_planes_of_two_channels_it_is_rope(axes):
    liere, freqs = LieRE(12, axes, block=2), axial(12, axes)
    liere.generators.data.copy_(planes(freqs))
    rope = RoPE(frequencies(12) if axes == 1 else freqs)
    pos = folded(9, axes)
    q, k, v = torch.randn(3, 2, 2, 9, 12)
    made = attend(q, k, v, liere, pos, mask=masks.causal())
    torch.testing.assert_close(made, attend(q, k, v, rope, pos, mask=masks.causal()))


def test_whole_heads_of_commuting_planes_are_axial_rope():
    liere, rope = LieRE(8), RoPE(axial(8))
    blocks = planes(axial(8))
    liere.generators.data.copy_(
        torch.stack([torch.block_diag(*some) for some in blocks]).unsqueeze(1)
    )
    q, pos = torch.randn(1, 2, 9, 8), positions.grid(3, 3)
    for made, expected in zip(liere(q, q, pos), rope(q, q, pos), strict=True):
        torch.testing.assert_close(made, expected)


def test_along_one_axis_scores_see_offsets_only_and_along_two_they_do_not():
    assert check(LieRE(8, axes=1))["shift_invariant"].holds
    assert not check(LieRE(8, axes=2))["shift_invariant"].holds
    assert check(LieRE(8, axes=2, block=2))["shift_invariant"].holds


@pytest.mark.parametrize("shape", [(6,), (2, 6), (2, 4, 6), (2, 2, 6), (2, 1, 6)], ids=str)
@pytest.mark.parametrize("groups", [4, 2])
def test_each_head_may_have_a_rotation_of_its_own(shape, groups):
    """Used in the authors' runs; positions of any shape, keys grouped or not."""
    liere, pos = LieRE(8, block=4, heads=4), torch.rand(*shape, 2)
    q, k, v = (torch.randn(2, heads, 6, 8) for heads in (4, groups, groups))
    made = attend(q, k, v, liere, pos)
    at = {2: pos[None, None], 3: pos[:, None], 4: pos}[pos.ndim]  # (batch, head, token, axis)
    for h in range(4):
        alone, shared = LieRE(8, block=4), slice(h * groups // 4, h * groups // 4 + 1)
        alone.generators.data.copy_(liere.generators.data[:, 2 * h : 2 * h + 2])
        here = at[:, h * at.shape[1] // 4]
        expected = attend(q[:, h : h + 1], k[:, shared], v[:, shared], alone, here)
        torch.testing.assert_close(made[:, h : h + 1], expected, rtol=1e-4, atol=1e-5)


def test_a_rotation_for_each_head_is_for_that_many_heads():
    q = torch.randn(1, 3, 4, 8)
    with refused(ValueError, "LieRE", 4, "`q`", 3):
        attend(q, q, q, LieRE(8, heads=4), positions.grid(2, 2))


def test_first_values_are_uniform_up_to_a_full_turn():
    generators = LieRE(64).generators
    assert generators.shape == (2, 1, 64, 64)
    assert 0 <= generators.min() < 0.01
    assert 6.27 < generators.max() <= 2 * torch.pi


@pytest.mark.parametrize(("dim", "axes", "block"), [(8, 2, 3), (2, 2, None), (8, 5, 2), (8, 2, 16)])
def test_says_which_sizes_do_not_fit(dim, axes, block):
    with refused(ValueError, "`block`", "`dim`", dim, "`axes`", axes):
        LieRE(dim, axes, block)


def test_a_block_is_two_channels_at_least():
    with refused(ValueError, "`block`", 2, 1):
        LieRE(8, block=1)
