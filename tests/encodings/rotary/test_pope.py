"""PoPE against its formula in Python's own numbers, and scores of the code of lucidrains."""

import math

import pytest
import torch

from posenc import NoPE, PoPE, attend, masks

DIM, HEADS = 4, 2
# PoPE_pytorch/pope.py at ee11cab: head, query, key, for the tokens, positions and δ below
THEIRS = [
    [[0.82036, 0.06927, -0.32331], [-0.45856, 1.05563, -0.01006], [0.75855, 1.37235, -0.57337]],
    [[0.63512, 0.51149, -0.95147], [2.10898, 1.58783, 0.49963], [-0.94616, -1.05735, -0.47399]],
]
POSITIONS = torch.tensor([0, 2, 1000])


def with_delta():
    """δ reaches −6.65, beyond the bound of −2π."""
    pope = PoPE(DIM, HEADS)
    pope.delta.data = -torch.arange(HEADS * DIM).reshape(HEADS, DIM) * 0.95
    return pope


def scores(pope, q, k, pos):
    at = pope.prepare(pos)
    return pope.on_queries(q, at) @ pope.on_keys(k, at).transpose(-1, -2)


def tokens():
    index = torch.arange(HEADS * 3 * DIM).reshape(1, HEADS, 3, DIM)
    return (index * 0.7).sin(), (index * 1.3).cos()


def test_scores_are_those_of_their_code():
    found = scores(with_delta(), *tokens(), POSITIONS)
    torch.testing.assert_close(found, torch.tensor([THEIRS]), atol=1e-4, rtol=0)


def test_is_the_sum_of_lengths_times_cosines():
    q, k = tokens()
    found = scores(with_delta(), q, k, POSITIONS)
    softplus = lambda x: math.log1p(math.exp(x))  # noqa: E731
    for h, i, j in torch.cartesian_prod(torch.arange(HEADS), torch.arange(3), torch.arange(3)):
        apart = int(POSITIONS[i] - POSITIONS[j])
        expected = sum(
            softplus(q[0, h, i, c].item())
            * softplus(k[0, h, j, c].item())
            * math.cos(apart * 10_000 ** (-c / DIM) - max(-0.95 * (h.item() * DIM + c), -math.tau))
            for c in range(DIM)
        )
        assert found[0, h, i, j].item() == pytest.approx(expected, abs=1e-5)


def test_heads_that_share_a_key_have_a_delta_each():
    """Against keys that are copied before."""
    pope, (q, k) = PoPE(DIM, HEADS), tokens()
    shared, v = k[:, :1], torch.randn(1, 1, 3, DIM)
    made = attend(q, shared, v, pope, mask=masks.causal())
    one_each = [x.repeat(1, HEADS, 1, 1) for x in (shared, v)]
    torch.testing.assert_close(made, attend(q, *one_each, pope, mask=masks.causal()))


def test_values_and_scale_keep_their_channels():
    """Without turning channels, PoPE is attention over softplus, scaled by 1/√d."""
    (q, k), v = tokens(), torch.randn(1, HEADS, 3, 7)
    pope = PoPE(DIM, HEADS, uniform=False)
    made = attend(q, k, v, pope, at=torch.zeros(3, dtype=torch.long))
    lengths = [torch.log1p(x.exp()) for x in (q, k)]
    torch.testing.assert_close(made, attend(*lengths, v, NoPE(), scale=0.5))


def test_keys_do_not_depend_on_delta():
    """Cached keys remain valid while δ is trained."""
    k = tokens()[1]
    made = [pope.on_keys(k, pope.prepare(POSITIONS)) for pope in (with_delta(), PoPE(DIM, HEADS))]
    assert made[0].equal(made[1])


def test_begins_uniformly_or_at_zero():
    assert PoPE(8, 4, uniform=False).delta.eq(0).all()
    drawn = PoPE(256, 4).delta
    assert -math.tau <= drawn.min() < -6
    assert -0.3 < drawn.max() <= 0
