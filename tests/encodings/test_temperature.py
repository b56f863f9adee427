"""Temperature against its formula in Python's own numbers, before the text's first token too."""

import math

import pytest
import torch
from refusals import refused

from posenc import NoPE, Sum, attend, masks
from posenc.encodings.temperature import SSMax, Temperature


@pytest.mark.parametrize(("every", "start"), [(1, 0), (4, 1), (8192, 1), (2.5, 0)])
def test_each_query_is_multiplied_by_the_factor_of_its_step(every, start):
    encoding, pos = Temperature(every, 0.3, start), [-9000, -5, -1, 0, 1, 3, 4, 100_000]
    q = torch.ones(1, 2, len(pos), 4)
    made = encoding.on_queries(q, encoding.prepare(torch.tensor(pos)))
    expected = [1 + 0.3 * math.log1p(max(0, math.floor((p + start) / every))) for p in pos]
    assert made[0, 1, :, 3].tolist() == pytest.approx(expected, rel=1e-6)


def test_before_position_0_nothing_is_sharpened():
    """Filling on the left has these positions; its rows were NaN before."""
    encoding, pos = Sum(NoPE(), Temperature(4)), torch.arange(-12, 3)
    q = torch.randn(1, 2, 15, 8, requires_grad=True)
    out = attend(q, q, q, encoding, pos, mask=masks.causal())
    torch.testing.assert_close(out, attend(q, q, q, NoPE(), mask=masks.causal()))
    out.sum().backward()
    assert q.grad.isfinite().all()


def test_one_factor_serves_all_heads_of_each_text():
    encoding = Temperature(2)
    at = encoding.prepare(torch.tensor([[0, 2, 4], [10, 20, 30]]))
    assert at.factor.shape == (2, 1, 3, 1)
    with refused(ValueError, 3, 2):
        encoding.on_queries(torch.randn(3, 2, 3, 8), at)


def test_scalable_softmax_sees_as_many_keys_as_came_before():
    """Softmax of s ln(n) scores by loops, each head with its own s."""
    encoding = Sum(NoPE(), SSMax(2))
    encoding.parts[1].factors.data = torch.tensor([0.5, 2.0])
    q, k, v = torch.randn(3, 1, 2, 6, 4)
    pos = torch.tensor([[0, 1, 2, 3, 0, 1]])
    mask = masks.causal() & masks.documents(torch.tensor([[0, 0, 0, 0, 1, 1]]))
    made = attend(q, k, v, encoding, pos, mask=mask)
    for h, s in enumerate((0.5, 2.0)):
        for i, (first, p) in enumerate([(0, 0), (0, 1), (0, 2), (0, 3), (4, 0), (4, 1)]):
            keys = range(first, i + 1)
            assert len(keys) == p + 1
            scores = [s * math.log(len(keys)) * float(q[0, h, i] @ k[0, h, j]) / 2 for j in keys]
            total = sum(math.exp(score) for score in scores)
            right = sum(
                math.exp(score) / total * v[0, h, j] for score, j in zip(scores, keys, strict=True)
            )
            torch.testing.assert_close(made[0, h, i], right)
