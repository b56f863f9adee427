"""KERPLE against its formulas in plain loops, and the rule by which the authors bound p and a."""

import math

import pytest
import torch
from refusals import refused

from posenc import ALiBi, Kerple, attend, masks
from posenc.encodings.bias.alibi import slopes

CURVES = {
    "log": lambda p, a, distance: -p * math.log(1 + a * distance),
    "power": lambda p, a, distance: -a * distance**p,
}
curves = pytest.mark.parametrize("curve", CURVES)


def with_values(curve, p, a):
    kerple = Kerple(len(p), curve)
    kerple.p.data.copy_(torch.tensor(p)), kerple.a.data.copy_(torch.tensor(a))
    return kerple


@curves
def test_is_the_formula_pair_by_pair(curve):
    p, a = [0.5, 1.7, 1.0], [0.3, 0.02, 2.5]
    q_pos, k_pos = [0, 4, 1000], [3, 4, -8, 2.5]
    bias = with_values(curve, p, a)(torch.tensor(q_pos), torch.tensor(k_pos))
    for h in range(3):
        for i, r in enumerate(q_pos):
            for j, s in enumerate(k_pos):
                expected = CURVES[curve](p[h], a[h], abs(r - s))
                assert bias[0, h, i, j].item() == pytest.approx(expected, rel=1e-5)


@curves
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weights_of_16_bits_leave_all_distances_apart(curve, dtype):
    p, a = [0.5, 1.75], [0.25, 0.0625]
    made = with_values(curve, p, a).to(dtype)(torch.arange(3000), torch.arange(1))
    expected = with_values(curve, p, a)(torch.arange(3000), torch.arange(1))
    assert made.equal(expected)
    assert len(made[0, 0].unique()) == 3000


def test_second_derivatives_are_those_of_the_formula_at_every_distance():
    """d²(−a δᵖ)/dp² = −a δᵖ ln² δ, which is 0 at δ = 0."""
    p, a, kerple = 0.7, 0.3, with_values("power", [0.7], [0.3])
    for distance in range(4):
        bias = kerple(torch.tensor([distance]), torch.tensor([0]))
        (of_p,) = torch.autograd.grad(bias.sum(), kerple.p, create_graph=True)
        by_p, by_a = torch.autograd.grad(of_p.sum(), (kerple.p, kerple.a))
        log = math.log(distance) if distance else 0.0
        assert by_p.item() == pytest.approx(-a * distance**p * log**2, rel=1e-5)
        assert by_a.item() == pytest.approx(-(distance**p) * log, rel=1e-5)


def test_is_added_to_the_scores_as_it_is():
    encoding, v = with_values("log", [2.0], [1.0]), torch.eye(6).expand(1, 1, 6, 6)
    q, k = torch.randn(2, 1, 1, 6, 8).unbind()
    logits = q @ k.mT / 8**0.5
    for i in range(6):
        for j in range(6):
            logits[0, 0, i, j] -= 2 * math.log(1 + abs(i - j))
    torch.testing.assert_close(attend(q, k, v, encoding), logits.softmax(-1))


def test_alibi_is_the_power_of_1():
    kerple = with_values("power", [1.0] * 4, (8 * slopes(4)).tolist())
    q, k, v = torch.randn(3, 1, 4, 30, 8).unbind()
    run = lambda encoding: attend(q, k, v, encoding, mask=masks.causal())  # noqa: E731
    torch.testing.assert_close(run(kerple), run(ALiBi(4, strength=8)))


@curves
def test_what_lies_out_of_bounds_counts_as_the_bound_and_can_come_back(curve):
    kerple = with_values(curve, [-1.0, 9.0], [-3.0, 0.5])
    pos = torch.arange(20)
    most = {"log": 9.0, "power": 2.0}[curve]
    torch.testing.assert_close(kerple(pos), with_values(curve, [0.01, most], [0.01, 0.5])(pos))
    kerple(pos).sum().backward()
    assert kerple.p.grad.ne(0).all()
    assert kerple.a.grad.ne(0).all()


@curves
def test_begins_as_the_authors_do(curve):
    kerple = Kerple(1000, curve)
    assert kerple.p.min() >= 0
    assert 1.9 < kerple.p.max() < 2
    assert kerple.a.min() >= 0
    assert 0.9 < kerple.a.max() < 1


@curves
def test_gradients_are_finite_where_query_and_key_stand_together(curve):
    kerple = Kerple(2, curve)
    kerple(torch.zeros(3, dtype=torch.long)).sum().backward()
    assert kerple.p.grad.isfinite().all()
    assert kerple.a.grad.isfinite().all()


def test_says_which_curves_there_are(unchecked):
    with refused(ValueError, "'log'", "'power'", "'linear'"):
        Kerple(4, "linear")
