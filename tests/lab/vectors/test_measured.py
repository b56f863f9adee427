"""θ and positions read back from rotated pairs, whose angles are written down here."""

import math

import pytest
import torch

from posenc.lab.vectors import measured
from posenc.models.config.spec import Rotary

POINTS = torch.tensor([[0, 1, 2, 3, 7, 20, 55, 148, 403, 1000]]).double()
LLAMA = Rotary(dim=16, turned=16, base=10_000.0)


def multipliers(theta, points=POINTS):
    """exp(i p θ) by Python's own numbers, (batch, 1, token, pair)."""
    rows = [[complex(math.cos(p * t), math.sin(p * t)) for t in theta] for p in points[0].tolist()]
    return torch.tensor([[rows]], dtype=torch.complex128)


@pytest.mark.parametrize("theta", [[1.0, 0.1, 0.001, 0.0], [2.0, -0.3, 1e-5, 3.1]])
def test_theta_of_each_pair_is_read_back(theta):
    found = measured.thetas(multipliers(theta), POINTS)
    assert found.tolist() == pytest.approx(theta, abs=1e-9)


def test_no_theta_gives_angles_that_do_not_grow_with_the_position():
    m = multipliers([1.0, 0.1])
    m[..., 5, :] = m[..., 5, :].conj()
    assert measured.thetas(m, POINTS) is None


def test_positions_are_read_back():
    wrong = POINTS.clone()
    wrong[0, -1] = 403
    theta = [1.0, 0.1, 0.001]
    found = measured.positions(multipliers(theta, wrong), torch.tensor(theta).double())
    assert found.tolist() == wrong.tolist()
    name, sentence = measured.position_fault(found, POINTS)
    assert "404" in name
    assert "403" in sentence


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda p: p + 3, "off by +3"),
        (lambda p: p % 100, "begin again at 100"),
        (lambda p: p.clamp(max=54), "end at 55"),
    ],
)
def test_wrong_positions_are_described(change, name):
    assert name in measured.position_fault(change(POINTS), POINTS)[0]


def test_a_factor_and_a_base_are_told_from_each_other():
    right = torch.tensor(LLAMA.theta()).double()
    name, _ = measured.theta_fault(right / 4, right, LLAMA, 1000.0)
    assert "0.25 times" in name
    other = torch.tensor([500_000.0 ** (-2 * j / 16) for j in range(8)]).double()
    name, sentence = measured.theta_fault(other, right, LLAMA, 1000.0)
    assert "500,000" in name
    assert "10,000" in sentence
    assert measured.theta_fault(right, right, LLAMA, 1000.0) is None
