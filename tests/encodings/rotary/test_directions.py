"""Spiral RoPE against a rotated grid of angles, golden gate against Python's own distribution."""

from itertools import pairwise
from math import atan2, cos, pi, sin
from statistics import NormalDist

import pytest
import torch
import torch.nn.functional as F
from refusals import refused

from posenc import Mixed, RoPE, attend, axial
from posenc.core.frequencies import frequencies
from posenc.encodings.rotary.directions import golden_gate, spiral
from posenc.positions import grid
from posenc.properties import check
from posenc.testing import conform

SIDE = 9


@pytest.mark.parametrize("directions", [2, 4, 8])
def test_spiral_is_the_angles_of_axial_rope_on_a_rotated_image(directions):
    """The image is rotated by interpolation, as the authors do; it is compared inside a circle."""
    dim = 8 * directions
    points = grid(SIDE, SIDE).double() - SIDE // 2
    made = points @ spiral(dim, directions)
    plain = (points @ axial(dim)).mT.unflatten(-1, (SIDE, SIDE))
    inside = points.norm(dim=-1) <= SIDE // 2
    for j in range(dim // 2):
        φ = j % (dim // 4) // 2 % (directions // 2) * pi / directions
        # Maps (x, y) of the output to (x, y) of the input
        turn = torch.tensor([[cos(φ), -sin(φ), 0], [sin(φ), cos(φ), 0]]).double()
        at = F.affine_grid(turn[None], [1, 1, SIDE, SIDE], align_corners=True)
        rotated = F.grid_sample(plain[None, None, j], at, align_corners=True).flatten()
        torch.testing.assert_close(made[inside, j], rotated[inside])


def test_two_directions_are_axial():
    torch.testing.assert_close(spiral(64, 2, 100.0), axial(64, 2, 100.0))


def test_directions_of_spiral_are_spread_evenly_over_the_half_circle():
    row, column = spiral(64, 8)
    found = {round(atan2(y, x) % pi, 6) for y, x in zip(row.tolist(), column.tolist(), strict=True)}
    gaps = {round(b - a, 5) for a, b in pairwise(sorted(found))}
    assert (len(found), gaps) == (8, {round(pi / 8, 5)})


def test_each_pair_of_spiral_keeps_its_speed():
    speed = frequencies(32, 500.0).repeat(2)
    torch.testing.assert_close(spiral(64, 8, 500.0).norm(dim=0), speed)


def test_golden_gate_equals_its_formula():
    """The plastic number is the root of x³ = x + 1."""
    plastic, pairs = 1.324717957244746, 4
    made = golden_gate(8, heads=3, slowest=0.5, fastest=4.0)
    for h in range(3):
        for j in range(pairs):
            i = 1 + h * pairs + j
            y, x = (NormalDist().inv_cdf(i * plastic**-a % 1) for a in (1, 2))
            ω = 0.5 * 8 ** (j / 3)
            expected = [ω * y / (y * y + x * x) ** 0.5, ω * x / (y * y + x * x) ** 0.5]
            assert made[:, h, j].tolist() == pytest.approx(expected, abs=1e-5)


def test_still_pairs_of_golden_gate_do_not_rotate():
    made = golden_gate(12, heads=2, slowest=1.0, fastest=9.0, axes=3, still=4)
    torch.testing.assert_close(made.norm(dim=0), torch.tensor([[0.0] * 4 + [1, 9]] * 2).double())


def test_directions_of_golden_gate_cover_the_circle():
    row, column = golden_gate(64, heads=8, slowest=1.0, fastest=1.0).flatten(1)
    angles = (torch.atan2(row, column) % pi).sort().values
    assert angles.diff().max() < 6 * pi / len(angles)


def test_fixed_directions_are_no_parameters():
    theta = golden_gate(16, 2, 0.2, 2.0)
    fixed, learning = (Mixed(16, 2, freqs=theta, learned=learned) for learned in (False, True))
    assert (len([*fixed.parameters()]), len([*learning.parameters()])) == (0, 1)
    q, k, v = torch.randn(3, 1, 2, 9, 16)
    out = attend(q, k, v, fixed, grid(3, 3))
    torch.testing.assert_close(out, attend(q, k, v, learning, grid(3, 3)))
    assert not check(fixed)["learned"].holds
    assert check(fixed)["shift_invariant"].holds


@pytest.mark.parametrize(
    "make",
    [
        lambda dim, heads: RoPE(spiral(dim)),
        lambda dim, heads: Mixed(
            dim, heads, freqs=golden_gate(dim, heads, 0.1, 2.0), learned=False
        ),
    ],
    ids=["spiral", "golden gate"],
)
def test_encodings_with_these_frequencies_keep_all_promises(make):
    conform(make)


def test_golden_gate_takes_three_axes():
    encoding = Mixed(16, 2, freqs=golden_gate(16, 2, 0.2, 2.0, axes=3), learned=False)
    q = torch.randn(1, 2, 8, 16)
    one, other = grid(2, 2, 2), grid(2, 2, 2) + torch.tensor([5, -3, 7])
    torch.testing.assert_close(*(attend(q, q, q, encoding, at) for at in (one, other)))


def test_scores_of_spiral_form_a_star():
    """Around a patch they are symmetric under a quarter turn, and not only along rows."""
    q, k = RoPE(spiral(64, 4, 10.0))(*torch.ones(2, 1, 1, SIDE**2, 64), grid(SIDE, SIDE))
    scores = (q[..., SIDE**2 // 2, :] @ k.squeeze(0).mT).view(SIDE, SIDE)
    torch.testing.assert_close(scores, scores.rot90())


@pytest.mark.parametrize(("dim", "directions"), [(6, 4), (64, 3), (64, 0)])
def test_spiral_refuses_what_it_cannot_divide(dim, directions):
    with refused(ValueError, "`dim`" if dim == 6 else "`directions`"):
        spiral(dim, directions)


@pytest.mark.parametrize(("dim", "still"), [(7, 0), (2, 0), (8, 3)])
def test_golden_gate_refuses_too_few_pairs(dim, still):
    with refused(ValueError, "`dim`", dim):
        golden_gate(dim, 2, 1.0, 2.0, still=still)


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 2, 8), (2, 2, 4)])
def test_mixed_refuses_frequencies_of_another_shape(shape):
    with refused(ValueError, "`freqs`", shape):
        Mixed(16, heads=2, freqs=torch.ones(shape))
