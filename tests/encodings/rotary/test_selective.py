"""Selective RoPE against complex numbers, and RoPE, which it is where all steps are alike."""

import cmath

import pytest
import torch
from refusals import refused

from posenc import RoPE, SelectiveRoPE, attend, frequencies, masks
from posenc.core.positions import sequence

WIDTH, HEADS, DIM = 32, 4, 8


def test_each_pair_turns_by_the_steps_so_far():
    rope = SelectiveRoPE(WIDTH, HEADS, base=100.0)
    for weight in (rope.down.weight, rope.up.weight, rope.pace):
        weight.data.normal_()
    x, q, pos = (
        torch.randn(1, 6, WIDTH),
        torch.randn(1, HEADS, 6, DIM),
        torch.tensor([0, 1, 2, 5, 6, 9]),
    )
    turned = rope.on_queries(q, rope.on_hidden(x, rope.prepare(pos)))
    said = torch.stack([part / part.norm() for part in x.view(-1, DIM)]).view(6, WIDTH)
    steps = (said @ rope.down.weight.mT @ rope.up.weight.mT).view(6, HEADS, DIM // 2).tolist()
    for h, n, j in torch.cartesian_prod(*map(torch.arange, (HEADS, 6, DIM // 2))).tolist():
        far = pos[n].item() * cmath.exp(rope.pace[h, 0, j].item()).real
        angle = 100.0 ** (-2 * j / DIM) * (far + sum(steps[t][h][j] for t in range(n + 1)))
        value = complex(*q[0, h, n, 2 * j : 2 * j + 2].tolist()) * cmath.exp(1j * angle)
        expected = torch.tensor([value.real, value.imag])
        torch.testing.assert_close(
            turned[0, h, n, 2 * j : 2 * j + 2], expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("pace", [1.0, 3.0])
def test_with_constant_steps_it_is_rope(layout, pace):
    selective = SelectiveRoPE(WIDTH, HEADS, layout=layout)
    selective.up.weight.data.zero_()
    selective.pace.data.fill_(pace).log_()
    rope = RoPE(frequencies(DIM, 500_000.0) * pace, layout=layout)
    pos = torch.stack((sequence(9), 7 * sequence(9, 100)))
    x, q, (k, v) = (
        torch.randn(2, 9, WIDTH),
        torch.randn(2, HEADS, 9, DIM),
        torch.randn(2, 2, 2, 9, DIM),
    )
    at = selective.on_hidden(x, selective.prepare(pos))
    made = attend(q, k, v, selective, at, mask=masks.causal())
    expected = attend(q, k, v, rope, pos, mask=masks.causal())
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


def test_a_million_tokens_further_angles_are_as_exact():
    rope, x, q = (
        SelectiveRoPE(WIDTH, HEADS),
        torch.randn(1, 6, WIDTH),
        torch.randn(1, HEADS, 6, DIM),
    )
    scores = []
    for start in (0, 10**6):
        at = rope.on_hidden(x, rope.prepare(sequence(6, start)))
        scores.append(rope.on_queries(q, at) @ rope.on_keys(q, at).mT)
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)


def test_begins_near_rope():
    rope, x = SelectiveRoPE(512, 8), torch.randn(1, 64, 512)
    at = rope.on_hidden(x, rope.prepare(sequence(64)))
    assert rope.pace.eq(0).all()
    assert 0 < at.total.abs().max() < 0.5


def test_says_which_heads_do_not_fit():
    with refused(ValueError, "`heads`", "`width`", 30, 4):
        SelectiveRoPE(30, 4)
