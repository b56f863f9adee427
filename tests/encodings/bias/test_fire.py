"""FIRE against its formula in plain loops of Python floats, near and far of its threshold L."""

import math
from copy import deepcopy

import pytest
import torch
from refusals import refused

from posenc import FIRE, attend, masks
from posenc.core.positions import sequence


def by_loops(fire, q_pos, k_pos):
    """(head, query, key)"""
    c, reach = abs(fire.c.item()), abs(fire.multiplier.item()) * fire.length
    weight, shift = fire.inner.weight[:, 0].tolist(), fire.inner.bias.tolist()
    ψ = lambda x: math.log(c * x + 1)  # noqa: E731
    bias = torch.zeros(fire.heads, len(q_pos), len(k_pos))
    for h, outer in enumerate(fire.outer.weight.tolist()):
        for i, p in enumerate(q_pos):
            for j, r in enumerate(k_pos):
                x = ψ(abs(p - r)) / (ψ(max(reach, p)) + 1e-6)
                units = zip(outer, weight, shift, strict=True)
                bias[h, i, j] = sum(v * max(0, w * x + b) for v, w, b in units)
    return bias


@pytest.mark.parametrize("q_pos", [[0, 3, 7], [0, 8, 30], [100, 4000]], ids=str)
@pytest.mark.parametrize("c", [0.1, -2.0])
def test_is_the_formula_pair_by_pair(q_pos, c):
    fire, k_pos = FIRE(3, length=10), [5, 0, 12, 2]
    fire.c.data.fill_(c), fire.multiplier.data.fill_(-0.9)
    expected = by_loops(fire, q_pos, k_pos)
    at, k_at = torch.tensor(q_pos), torch.tensor(k_pos)
    q, k = torch.zeros(1, 3, len(q_pos), 4), torch.zeros(1, 3, 4, 4)
    for path in ("reference", "blocks"):
        weights = attend(q, k, torch.eye(4).expand(1, 3, 4, 4), fire, at, k_at, implementation=path)
        torch.testing.assert_close(weights[0], expected.softmax(-1))


def test_every_query_may_stand_elsewhere_in_a_batch():
    fire, pos = FIRE(2, length=4), torch.tensor([[0, 3, 9], [7, 2, 50]])
    q = torch.zeros(2, 2, 3, 4)
    weights = attend(q, q, torch.eye(3).expand(2, 2, 3, 3), fire, pos)
    for row in range(2):
        one = pos[row].tolist()
        torch.testing.assert_close(weights[row], by_loops(fire, one, one).softmax(-1))


def test_up_to_the_threshold_it_goes_by_distance_alone():
    fire, pos = FIRE(2, length=50), sequence(20)
    assert fire(pos).equal(fire(pos + 30))
    assert not fire(pos).allclose(fire(pos + 29)[..., :20] * 2)
    with refused(TypeError, "FIRE"):
        fire(pos + 40)


def test_both_sides_of_the_threshold_train_alike():
    """The last query's position equals the threshold, so both formulas hold."""
    q, k, v = torch.randn(3, 1, 2, 11, 4).unbind()
    fire, grads = FIRE(2, length=10), []
    for length in (10.0, 10.0 - 1e-4):  # the last query is at 10
        fire.length = length
        fire.zero_grad()
        attend(q, k, v, fire, mask=masks.causal()).square().sum().backward()
        grads.append({name: p.grad.clone() for name, p in fire.named_parameters()})
    for name in grads[0].keys() - {"multiplier"}:
        torch.testing.assert_close(grads[0][name], grads[1][name], rtol=1e-3, atol=1e-4)
    assert all(p.ne(0).any() for p in grads[0].values())


class Summed(FIRE):
    """FIRE that sums its units for every pair, as in its formula."""

    def in_pieces(self):
        return self.f


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_beyond_the_threshold_straight_lines_train_as_the_units_that_they_sum(path):
    q, k, v = torch.randn(3, 2, 2, 150, 4).unbind()
    fire, summed = FIRE(2, length=10), Summed(2, length=10)
    summed.load_state_dict(fire.state_dict())
    for each in (fire, summed):
        out = attend(q, k, v, each, mask=masks.causal(), implementation=path)
        out.square().sum().backward()
    for (name, made), due in zip(fire.named_parameters(), summed.parameters(), strict=True):
        torch.testing.assert_close(made.grad, due.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_a_network_may_have_a_single_unit():

    fire = FIRE(2, hidden=1)
    assert fire(torch.arange(5)).shape == (1, 2, 5, 5)


@pytest.mark.parametrize(("length", "hidden"), [(0, 32), (-5, 32), (512, 0)])
def test_says_what_cannot_be(length, hidden):
    with refused(ValueError, 0, 1, length, hidden):
        FIRE(4, length, hidden)


@pytest.mark.parametrize("length", [10_000, 10], ids=["within L", "beyond L"])
@pytest.mark.parametrize("shape", [(), (2,), (1, 3)], ids=["all", "batch", "by head"])
def test_no_autocast_and_no_weights_of_16_bits_round_the_distance(length, shape):
    fire, q = FIRE(3, length=length).bfloat16(), torch.randn(2, 3, 3000, 4)
    at = sequence(3000).expand(*shape, 3000)
    with torch.no_grad():
        bias = lambda fire: fire.on_scores(q, q, at, at, 1.0).block(slice(2900, 3000), slice(None))  # noqa: E731
        expected = bias(deepcopy(fire).double())
        for autocast in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                torch.testing.assert_close(bias(fire), expected.float(), rtol=1e-5, atol=1e-6)
