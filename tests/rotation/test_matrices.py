"""Exponentials and Cayley's transform against torch's, eager and as exported graphs hold them."""

import pytest
import torch
from refusals import refused

from posenc.core.frequencies import frequencies
from posenc.rotation.matrices import cayley, exponential, rotations, skew, turned

ROTATIONS = (exponential, cayley)


@pytest.fixture(params=[False, True], ids=["eager", "exported"])
def exporting(request, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: request.param)


@pytest.mark.usefixtures("exporting")
@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 300.0])
def test_skew_matrices_become_rotations(rotation, size):
    a = skew(size * torch.randn(5, 6, 6, dtype=torch.float64))
    torch.testing.assert_close(a.mT, -a)
    made = rotation(a)
    one = torch.eye(6, dtype=torch.float64).expand(5, 6, 6)
    torch.testing.assert_close(made @ made.mT, one, rtol=0, atol=1e-8)
    torch.testing.assert_close(torch.linalg.det(made), torch.ones(5).double(), rtol=0, atol=1e-8)


@pytest.mark.usefixtures("exporting")
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_they_are_those_of_torch(size):
    a = skew(size * torch.randn(5, 6, 6, dtype=torch.float64))
    one = torch.eye(6, dtype=torch.float64)
    close = {"rtol": 0, "atol": 1e-8}
    torch.testing.assert_close(exponential(a), torch.linalg.matrix_exp(a), **close)
    torch.testing.assert_close(cayley(a), (one - a) @ torch.linalg.inv(one + a), **close)


@pytest.mark.usefixtures("exporting")
def test_a_plane_turns_by_its_angle_however_far():
    for angle in (0.3, 40.0, 2e5):
        made = exponential(torch.tensor([[0.0, -angle], [angle, 0.0]], dtype=torch.float64))
        cos, sin = torch.tensor(angle).double().cos(), torch.tensor(angle).double().sin()
        expected = torch.stack((cos, -sin, sin, cos)).view(2, 2)
        torch.testing.assert_close(made, expected, rtol=0, atol=1e-7)


@pytest.mark.usefixtures("exporting")
@pytest.mark.parametrize("rotation", ROTATIONS)
def test_gradients_are_those_of_small_steps(rotation):
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: rotation(skew(x)), x)


POINTS = {
    "a line": torch.arange(-3.0, 5.0)[:, None] * torch.tensor([1.0, -0.5]),
    "a grid": torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0)),
    "a plane of three axes": torch.randn(2, 4, 2)
    @ torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]]),
    "one axis": torch.randn(2, 3, 4, 1),
    "the origin": torch.zeros(3, 2),
    "an axis": torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.0, -1.0]]),
    "far": torch.tensor([[1000.0, 1000.0], [30_000.0, 30_000.0]]),
    "nowhere": torch.zeros(0, 2),
}


def generators(points, block):
    return skew(torch.randn(points.shape[-1], 2, block, block))


def by_torch(points, a):
    return torch.linalg.matrix_exp(torch.einsum("...a,abij->...bij", points, a))


@pytest.mark.parametrize("where", POINTS)
@pytest.mark.parametrize("block", [2, 5])
@pytest.mark.parametrize("gap", [None, 0.0, 1e-12, 1e-9, 1e-6], ids=lambda gap: f"gap {gap}")
def test_rotations_at_points_and_their_gradients_are_those_of_torch(where, block, gap):
    points = POINTS[where].double()
    a = generators(points, block)
    if gap is not None:  # planes that turn alike but for so much, and some that do not turn
        a.zero_()
        for n, first in enumerate(range(0, block - 1, 2)):
            a[:, 1 if gap == 0 else slice(None), first, first + 1] = 0.7 + gap * n
        basis = torch.linalg.qr(torch.randn(block, block).double()).Q
        a = basis @ skew(a) @ basis.mT
    a.requires_grad_()
    made, expected = rotations(points, a), by_torch(points, a)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-8)
    weights = torch.randn_like(made)
    # A stays skew-symmetric: only the skew-symmetric part of a gradient matters.
    ours, theirs = (torch.autograd.grad(x, a, weights)[0] for x in (made, expected))
    ours, theirs = ours - ours.mT, theirs - theirs.mT
    size = max(1.0, points.abs().max().item()) if points.numel() else 1.0
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8 * size)
    torch.testing.assert_close(rotations(points, a.detach()), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("where", ["a line", "a grid"])
def test_rotations_have_second_derivatives(where):
    points, a = POINTS[where][:3].double(), generators(POINTS[where], 3)
    made = lambda a: rotations(points, a - a.mT)  # noqa: E731
    assert torch.autograd.gradcheck(made, a.requires_grad_())
    assert torch.autograd.gradgradcheck(made, a)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of torch's own
@pytest.mark.parametrize("where", ["a line", "a grid"])
def test_a_transform_sees_the_same_rotations(where, unchecked):
    points, a = POINTS[where].double(), generators(POINTS[where], 4)
    made = lambda a: rotations(points, a).pow(3).sum()  # noqa: E731
    expected = by_torch(points, a.requires_grad_()).pow(3).sum()
    (grad,) = torch.autograd.grad(expected, a)
    torch.testing.assert_close(torch.func.grad(made)(a.detach()), grad)
    moved = torch.func.jvp(made, (a.detach(),), (torch.ones_like(a),))[1]
    torch.testing.assert_close(moved, grad.sum())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a.detach(), torch.ones_like(a))
        tangent = torch.autograd.forward_ad.unpack_dual(made(dual)).tangent
    torch.testing.assert_close(tangent, grad.sum())


def test_generators_that_are_no_numbers_rotate_to_none():
    a = generators(POINTS["a line"], 3)
    a[0, 0, 0, 1] = float("nan")
    assert rotations(POINTS["a line"].double(), a.requires_grad_()).isnan().any()


def test_the_gradient_of_positions_is_that_of_torch():
    points = POINTS["a line"].double().requires_grad_()
    a = generators(points, 3)
    made, expected = rotations(points, a).pow(3).sum(), by_torch(points, a).pow(3).sum()
    torch.testing.assert_close(*(torch.autograd.grad(x, points)[0] for x in (made, expected)))


@pytest.mark.parametrize("where", ["a line", "a grid"])
def test_a_gradient_that_overflowed_is_not_finite_and_no_error(where):
    """A gradient scaler, in training with 16 bits, skips this step."""
    a = generators(POINTS[where], 4).requires_grad_()
    (2e308 * rotations(POINTS[where].double(), a)).sum().backward()
    assert a.grad is not None
    assert not a.grad.isfinite().all()


@pytest.mark.usefixtures("exporting")
@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1), (2, 1), (2, 3)])
def test_blocks_turn_by_their_own_matrix_each(shape):
    x, by = torch.randn(2, 3, 5, 8), torch.randn(*shape, 5, 2, 4, 4)
    out, by = turned(x, by), by.expand(2, 3, 5, 2, 4, 4)
    for b, h, t, block in torch.cartesian_prod(*map(torch.arange, (2, 3, 5, 2))).tolist():
        part = slice(4 * block, 4 * block + 4)
        expected = by[b, h, t, block] @ x[b, h, t, part]
        torch.testing.assert_close(out[b, h, t, part], expected)


def test_16_bits_are_rounded_once():
    angle = torch.arange(5.0).double().unsqueeze(-1) * frequencies(8)
    plane = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    by = exponential(angle[..., None, None] * plane).float().unsqueeze(0)
    x = torch.randn(2, 3, 5, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert turned(x, by).equal(turned(x.float(), by).bfloat16())


def test_each_token_wants_its_own(unchecked):
    with refused(ValueError, "`x`", 5, 1, 4):
        turned(torch.randn(1, 1, 5, 8), torch.randn(1, 4, 2, 4, 4))
