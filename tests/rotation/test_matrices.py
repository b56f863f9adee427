"""Exponentials and Cayley's transform against torch's, eager and as exported graphs hold them."""

import pytest
import torch

from posenc.core.frequencies import frequencies
from posenc.rotation.matrices import cayley, exponential, skew, turned

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


def test_blocks_turn_by_their_own_matrix_each():
    x, by = torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 2, 4, 4)
    out = turned(x, by)
    for b, h, t, block in torch.cartesian_prod(*map(torch.arange, (2, 3, 5, 2))).tolist():
        part = slice(4 * block, 4 * block + 4)
        expected = by[b, 0, t, block] @ x[b, h, t, part]
        torch.testing.assert_close(out[b, h, t, part], expected)


def test_16_bits_are_rounded_once():
    angle = torch.arange(5.0).double().unsqueeze(-1) * frequencies(8)
    plane = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    by = exponential(angle[..., None, None] * plane).float().unsqueeze(0)
    x = torch.randn(2, 3, 5, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert turned(x, by).equal(turned(x.float(), by).bfloat16())


def test_each_token_wants_its_own(unchecked):
    with pytest.raises(
        ValueError, match="`x` has 5 tokens in a batch of 1, the positions are for 4"
    ):
        turned(torch.randn(1, 1, 5, 8), torch.randn(1, 4, 2, 4, 4))
