"""Straight lines against the sum of ReLUs, unit by unit, in float64."""

import pytest
import torch

from posenc.biases.pieces import piecewise_linear

UNITS = {
    "any": (torch.randn(32), torch.randn(32)),
    "none": (torch.zeros(0), torch.zeros(0)),
    "one": (torch.tensor([-2.0]), torch.tensor([1.0])),
    "equal knots": (torch.tensor([1.0, -1.0, 2.0, 3.0]), torch.tensor([-0.5, 0.5, -1.0, 1.0])),
    "no weights": (torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, -1.0, -0.3])),
    "far knots": (torch.tensor([1e-30, -1e-30, 1e-320]), torch.tensor([1.0, -1.0, -1.0])),
}


def summed(h, x, weight, shift, outer):
    each = [outer[:, n][h] * (weight[n] * x + shift[n]).relu() for n in range(len(weight))]
    return sum(each, torch.zeros(torch.broadcast_shapes(h.shape, x.shape)))


@pytest.mark.parametrize("shape", [(50,), (2, 1, 5, 7), (1, 3, 5, 7), (2, 3, 5, 0)], ids=str)
@pytest.mark.parametrize("units", UNITS)
def test_lines_are_the_sum_with_its_gradients(units, shape):
    weight, shift = (x.double().requires_grad_() for x in UNITS[units])
    outer = torch.randn(3, len(weight), dtype=torch.float64, requires_grad=True)
    h = torch.arange(3).view(*(1,) * (len(shape) == 4), 3, *(1,) * max(1, len(shape) - 2))
    x = (torch.rand(shape, dtype=torch.float64) * 6 - 3).requires_grad_()
    inputs = weight, shift, outer
    out, expected = piecewise_linear(*inputs)(h, x), summed(h, x, *inputs)
    torch.testing.assert_close(out, expected, check_dtype=False)
    detached = piecewise_linear(*(parameter.detach() for parameter in inputs))(h, x.detach())
    torch.testing.assert_close(detached, expected.detach(), check_dtype=False)
    of = torch.randn_like(out)
    grads, due = (
        torch.autograd.grad(y, (x, *inputs), of.to(y.dtype), materialize_grads=True)
        for y in (out, expected + 0 * x.sum())
    )
    torch.testing.assert_close(grads, due)


@pytest.mark.parametrize("units", ["any", "equal knots", "no weights"])
def test_at_a_knot_both_lines_hold(units):
    weight, shift = UNITS[units]
    outer, h = torch.randn(2, len(weight)), torch.arange(2).unsqueeze(-1)
    knots = (-shift / weight)[weight != 0]
    out = piecewise_linear(weight, shift, outer)(h, knots)
    torch.testing.assert_close(out, summed(h, knots, weight, shift, outer), rtol=1e-5, atol=1e-4)


def test_nan_of_a_weight_is_not_lost():
    weight, shift = torch.tensor([1.0, float("nan")]), torch.tensor([0.5, 0.5])
    out = piecewise_linear(weight, shift, torch.ones(1, 2))(
        torch.tensor([[0]]), torch.linspace(-1, 1, 9)
    )
    assert out.isnan().all()
