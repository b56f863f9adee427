"""FoX against its formula in Python's own numbers, and ALiBi, which it is with constant gates."""

import math

import pytest
import torch

from posenc import ALiBi, FoX, attend, masks
from posenc.core.positions import sequence

WIDTH, HEADS = 32, 4


def prepared(fox, x):
    return fox.on_hidden(x, fox.prepare(sequence(x.shape[1])))


def test_is_the_sum_of_the_gates_between_key_and_query():
    fox, x, q = FoX(WIDTH, HEADS), torch.randn(2, 7, WIDTH), torch.randn(2, HEADS, 7, 8)
    torch.nn.init.normal_(fox.gate.bias)
    at = prepared(fox, x)
    bias = fox.on_scores(q, q, at, at, scale=1.0).pair()
    weight, shift = fox.gate.weight.tolist(), fox.gate.bias.tolist()
    gate = lambda b, h, t: (  # noqa: E731
        1
        / (
            1
            + math.exp(
                -sum(map(math.prod, zip(weight[h], x[b, t].tolist(), strict=True))) - shift[h]
            )
        )
    )
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (2, HEADS, 7, 7))):
        low, high = sorted((int(i), int(j)))
        expected = sum(math.log(gate(int(b), int(h), t)) for t in range(low + 1, high + 1))
        assert bias(b, h, i, j).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("mask", [None, masks.causal()])
def test_with_constant_gates_it_is_alibi(mask):
    fox, alibi = FoX(WIDTH, HEADS), ALiBi(HEADS)
    fox.gate.weight.data.zero_()
    fox.gate.bias.data = -torch.expm1(alibi.slopes).log().float()  # σ of it is exp(−m)
    x, (q, k, v) = torch.randn(2, 150, WIDTH), torch.randn(3, 2, HEADS, 150, 8)
    made = attend(q, k, v, fox, prepared(fox, x), mask=mask)
    torch.testing.assert_close(made, attend(q, k, v, alibi, mask=mask))


def test_a_text_far_into_a_row_is_as_exact_as_alone():
    """The tokens before it, of another document, add up to a large number in front of all."""
    fox, q = FoX(WIDTH, HEADS), torch.randn(1, HEADS, 5, 8)
    fox.gate.bias.data.fill_(-20.0)
    x = torch.randn(1, 20_005, WIDTH)
    whole, alone = prepared(fox, x).slice_tokens(slice(-5, None)), prepared(fox, x[:, -5:])
    assert whole.total.max() < -300_000
    made = attend(q, q, q, fox, whole, mask=masks.causal())
    torch.testing.assert_close(made, attend(q, q, q, fox, alone, mask=masks.causal()))


def test_gates_are_rounded_by_no_autocast():
    fox, x = FoX(WIDTH, HEADS), torch.randn(1, 9, WIDTH)
    expected = prepared(fox, x).total
    with torch.autocast("cpu", torch.bfloat16):
        assert prepared(fox, x).total.equal(expected)


def test_begins_as_the_authors_do():
    fox = FoX(512, 8)
    assert fox.gate.bias.eq(0).all()
    assert fox.gate.weight.std().item() == pytest.approx(0.02, rel=0.1)
