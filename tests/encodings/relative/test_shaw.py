"""Shaw against equations 3-5 of the paper, one pair of tokens and one channel at a time."""

import pytest
import torch
from refusals import refused

from posenc import DeBERTa, Shaw, T5Bias, attend

Q_POS, K_POS = torch.tensor([4, 5, 6, 20]), torch.tensor([0, 1, 5, 6, 9])


def by_loops(q, k, v, shaw, q_pos, k_pos, scale):
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        rows = [max(-shaw.reach, min(shaw.reach, q_pos[i] - r)) + shaw.reach for r in k_pos]
        logits = []
        for j, row in enumerate(rows):
            dot = sum(
                q[b, h, i, c] * (k[b, h, j, c] + shaw.relative_keys[row, c])
                for c in range(shaw.dim)
            )
            logits.append((dot * scale).exp())
        for j, row in enumerate(rows):
            out[b, h, i] += logits[j] / sum(logits) * (v[b, h, j] + shaw.relative_values[row])
    return out


@pytest.mark.parametrize("scale", [None, 1.0, 0.1])
def test_equals_the_paper_forward_and_backward(scale):
    q, shaw = torch.randn(2, 2, 4, 6, dtype=torch.float64), Shaw(6, reach=2).double()
    k, v = torch.randn(2, 2, 2, 5, 6, dtype=torch.float64).unbind()
    out = attend(q, k, v, shaw, shaw.prepare(Q_POS), shaw.prepare(K_POS), scale=scale)
    used = 6**-0.5 if scale is None else scale
    expected = by_loops(q, k, v, shaw, Q_POS.tolist(), K_POS.tolist(), used)
    torch.testing.assert_close(out, expected)
    tables = shaw.relative_keys, shaw.relative_values
    for ours, theirs in zip(
        *(torch.autograd.grad(o.square().sum(), tables) for o in (out, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_tables_of_the_paper_are_ours_read_backwards():
    shaw = Shaw(2, reach=1)
    shaw.relative_keys.data.zero_()
    of_offsets = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])  # query − key
    shaw.relative_values.data.copy_(of_offsets)
    q = torch.zeros(1, 1, 3, 2)
    out = attend(q, q, q, shaw)[0, 0, :, 0] * 3  # the first looks ahead at two, the last back
    assert out.tolist() == pytest.approx([-2.0, 0.0, 2.0])


def test_beyond_the_reach_distances_are_not_told_apart():
    q, k, v = torch.randn(3, 1, 2, 4, 8).unbind()
    shaw = Shaw(8, reach=3)
    at, near, far = (shaw.prepare(torch.tensor(pos)) for pos in ([0] * 4, [3] * 4, [99, 4, 50, 3]))
    torch.testing.assert_close(
        attend(q, k, v, shaw, at, k_at=near), attend(q, k, v, shaw, at, k_at=far)
    )


def test_has_a_row_for_every_distance_up_to_the_reach():
    shaw = Shaw(8, reach=16)
    assert shaw.relative_keys.shape == shaw.relative_values.shape == (33, 8)


@pytest.mark.parametrize("encoding", [Shaw(4), DeBERTa(4, 1), T5Bias(1)], ids=type)
def test_what_is_looked_up_goes_by_whole_distances(encoding):
    q, at = torch.randn(1, 1, 3, 4), torch.tensor([0.0, 0.5, 1.0])
    with refused(TypeError, "`pos`", "float32"):
        attend(q, q, q, encoding, encoding.prepare(at))


def test_tables_have_one_name_each():
    """`keys` and `values`, as they were called before the first release, are not known any more."""
    with refused(RuntimeError, '"relative_values"'):
        Shaw(8).load_state_dict({"keys": Shaw(8).relative_keys})
