"""STRING against the exponential of its commuting matrices, and RoPE, as which it begins."""

import pytest
import torch
from refusals import refused

from posenc import STRING, RoPE, attend, axial, frequencies, masks
from posenc.core.positions import folded
from posenc.properties import check


def trained(axes):
    string = STRING(8, axes)
    string.skew.data.normal_()
    return string


def generators(string):
    """L_a, (axis, channel, channel), with R(p) = exp(Σ_a p_a L_a); P by an inverse."""
    upper = string.skew.detach().double().triu(1)
    one, skew = torch.eye(8, dtype=torch.float64), upper - upper.mT
    basis = (one - skew) @ torch.linalg.inv(one + skew)
    made = []
    for theta in string.freqs.view(-1, 4):
        plane = [torch.tensor([[0.0, -t], [t, 0.0]], dtype=torch.float64) for t in theta]
        made.append(basis @ torch.block_diag(*plane) @ basis.mT)
    return torch.stack(made)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_scores_are_those_of_the_exponential(axes):
    string = trained(axes)
    pos = torch.randint(0, 9, (5, axes))
    q, k = torch.randn(2, 1, 2, 5, 8)
    turned_q, turned_k = string(q, k, pos if axes > 1 else pos[:, 0])
    rotation = torch.matrix_exp(torch.einsum("ta, aij -> tij", pos.double(), generators(string)))
    left, right = (torch.einsum("tij, bhtj -> bhti", rotation, x.double()) for x in (q, k))
    torch.testing.assert_close(
        turned_q @ turned_k.mT, (left @ right.mT).float(), rtol=1e-5, atol=1e-5
    )


def test_its_matrices_commute():
    a, b = generators(trained(2))
    torch.testing.assert_close(a @ b, b @ a, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("axes", [1, 2])
def test_it_begins_as_rope(axes, layout):
    freqs = frequencies(8) if axes == 1 else axial(8)
    string, rope = STRING(8, axes, layout=layout), RoPE(freqs, layout=layout)
    pos, (q, k, v) = folded(9, axes), torch.randn(3, 2, 2, 9, 8)
    expected = attend(q, k, v, rope, pos, mask=masks.causal())
    torch.testing.assert_close(attend(q, k, v, string, pos, mask=masks.causal()), expected)


@pytest.mark.parametrize("axes", [1, 2])
def test_whatever_it_learns_scores_see_offsets_only(axes):
    found = check(trained(axes))
    assert found["shift_invariant"].holds
    assert found["norm_preserving"].holds


def test_says_which_heads_do_not_fit():
    with refused(ValueError, "`dim`", 4, 2):
        STRING(2)
    with refused(ValueError, 8, "`q`", 6):
        attend(*torch.randn(3, 1, 1, 3, 6), STRING(8, axes=1))
