"""The definition of attention, against loops over single numbers."""

from math import exp, tanh

import pytest
import torch

from posenc import NoPE, attend, masks
from posenc.core.encoding import Encoding

BATCH, HEADS, GROUPS, TOKENS, KEYS, DIM = 2, 4, 2, 3, 5, 2


class Own(Encoding):
    """A bias and added values, by formulas that no other path contains."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: 0.1 * h - 0.2 * i + 0.3 * j * j + 0.05 * b

    def by_weight(self, weights, q_at, k_at, rows):
        index = torch.arange(weights.shape[-1], dtype=weights.dtype)
        return (weights * index).sum(-1, keepdim=True).expand(*weights.shape[:-1], DIM)


@pytest.mark.parametrize("softcap", [None, 0.7])
@pytest.mark.parametrize("sinks", [None, torch.tensor([0.3, -1.0, 2.0, 0.0]).double()])
def test_each_number_of_the_output_is_that_of_the_loops(softcap, sinks):
    q = torch.randn(BATCH, HEADS, TOKENS, DIM).double()
    k, v = torch.randn(2, BATCH, GROUPS, KEYS, DIM).double()
    sees = lambda b, h, i, j: (i != 1) & (j <= i + 2)  # noqa: E731
    at, k_at = torch.arange(TOKENS), torch.arange(KEYS)
    out = attend(q, k, v, Own(), at, k_at, sees, 0.4, "reference", softcap=softcap, sinks=sinks)
    for b, h, i in ((b, h, i) for b in range(BATCH) for h in range(HEADS) for i in range(TOKENS)):
        shown = [j for j in range(KEYS) if i != 1 and j <= i + 2]
        g = h * GROUPS // HEADS
        scores = []
        for j in shown:
            score = 0.4 * sum(float(q[b, h, i, c] * k[b, g, j, c]) for c in range(DIM))
            score = score if softcap is None else softcap * tanh(score / softcap)
            scores.append(score + 0.1 * h - 0.2 * i + 0.3 * j * j + 0.05 * b)
        total = sum(map(exp, scores)) + (0 if sinks is None else exp(float(sinks[h])))
        for c in range(DIM):
            expected = sum(
                exp(score) / total * (float(v[b, g, j, c]) + j)
                for j, score in zip(shown, scores, strict=True)
            )
            assert float(out[b, h, i, c]) == pytest.approx(expected, abs=1e-6)


def test_a_row_that_sees_nothing_has_finite_gradients():
    q = torch.randn(1, 1, 3, 4, requires_grad=True)
    out = attend(q, q, q, NoPE(), mask=lambda b, h, i, j: i > 0, implementation="reference")
    assert out[:, :, 0].eq(0).all()
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.isfinite().all()
    assert attend(q, q, q, NoPE(), mask=masks.causal(), implementation="reference").isfinite().all()
