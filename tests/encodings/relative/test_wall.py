"""Wall against its formula by channels, NoPE with open gates, and xPos with constant ones."""

import pytest
import torch
from refusals import refused

from posenc import NoPE, Wall, XPos, attend, masks
from posenc.core.positions import sequence
from posenc.encodings.relative.wall import MOST, faded
from posenc.encodings.rotary.xpos import zeta

WIDTH, HEADS, DIM = 32, 4, 8


def prepared(wall, x):
    return wall.on_hidden(x, wall.prepare(sequence(x.shape[1])))


def by_channel(wall, x, q, k, v):
    """Causal attention with exp(Pᵢ − Pⱼ) of every pair and channel, in float64."""
    z = (x.double() @ wall.gate.weight.mT.double() + wall.gate.bias.double()).sigmoid()
    steps = MOST * (z ** (1 / MOST) - 1)
    p = steps.cumsum(1).unflatten(-1, (HEADS, DIM)).transpose(1, 2)
    decay = (p.unsqueeze(-2) - p.unsqueeze(-3)).clamp_max(0).exp()
    scores = (q.double().unsqueeze(-2) * k.double().unsqueeze(-3) * decay).sum(-1) * DIM**-0.5
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(ahead, -torch.inf).softmax(-1) @ v.double()


@pytest.mark.parametrize("shift", [8.0, 1.0, -2.0, -30.0])
@pytest.mark.parametrize("tokens", [5, 200])
def test_is_its_formula_however_much_is_forgotten(shift, tokens):
    wall = Wall(WIDTH, HEADS)
    wall.gate.weight.data.normal_()
    wall.gate.bias.data.fill_(shift)
    x, (q, k, v) = torch.randn(2, tokens, WIDTH), torch.randn(3, 2, HEADS, tokens, DIM)
    expected = by_channel(wall, x, q, k, v).float()
    for path in ("reference", "blocks"):
        made = attend(q, k, v, wall, prepared(wall, x), mask=masks.causal(), implementation=path)
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("traced", [False, True])
def test_scores_are_sums_over_channels_also_where_a_compiler_forms_them(traced, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: traced)
    q, k = torch.randn(2, 2, HEADS, 20, DIM)
    p = -torch.rand(2, HEADS, 20, DIM).cumsum(-2)
    scores = faded(q, k, p, p)
    for i in range(20):
        for j in range(i + 1):
            expected = (q[:, :, i] * k[:, :, j] * (p[:, :, i] - p[:, :, j]).exp()).sum(-1)
            torch.testing.assert_close(scores[:, :, i, j], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [None, masks.causal()])
def test_with_open_gates_it_is_no_encoding(mask):
    wall = Wall(WIDTH, HEADS)
    wall.gate.bias.data.fill_(100.0)
    x, (q, k, v) = torch.randn(2, 150, WIDTH), torch.randn(3, 2, HEADS, 150, DIM)
    made = attend(q, k, v, wall, prepared(wall, x), mask=mask)
    torch.testing.assert_close(made, attend(q, k, v, NoPE(), mask=mask))


def test_with_constant_gates_it_is_xpos_that_does_not_turn():
    span = 16
    wall, xpos = (
        Wall(WIDTH, HEADS),
        XPos(torch.zeros(DIM // 2, dtype=torch.float64), span, centre=75),
    )
    step = zeta(DIM // 2).log() / span  # of a pair, a token
    kept = (1 + step / MOST) ** MOST  # σ
    wall.gate.weight.data.zero_()
    wall.gate.bias.data = kept.logit().float().repeat_interleave(2).repeat(HEADS)
    x, (q, k, v) = torch.randn(2, 150, WIDTH), torch.randn(3, 2, HEADS, 150, DIM)
    made = attend(q, k, v, wall, prepared(wall, x), mask=masks.causal())
    expected = attend(q, k, v, xpos, mask=masks.causal())
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


def test_gradients_stay_finite_where_everything_is_forgotten():
    wall = Wall(WIDTH, HEADS)
    wall.gate.bias.data.fill_(-50.0)
    x, (q, k, v) = torch.randn(1, 200, WIDTH), torch.randn(3, 1, HEADS, 200, DIM)
    for leaf in (x, q, k, v):
        leaf.requires_grad_()
    attend(q, k, v, wall, prepared(wall, x), mask=masks.causal()).square().sum().backward()
    for leaf in (x, q, k, v, *wall.parameters()):
        assert leaf.grad.isfinite().all()


def test_begins_almost_open():
    wall = Wall(512, 8)
    assert wall.gate.bias.eq(8).all()
    assert -0.001 < prepared(wall, torch.randn(1, 1, 512)).total.mean() < 0


def test_says_which_heads_do_not_fit():
    with refused(ValueError, "`heads`", "`width`", 30, 4):
        Wall(30, 4)
