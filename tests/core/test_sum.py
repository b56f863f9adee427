"""Several encodings in one attention, against the same steps done one by one."""

import pytest
import torch
from refusals import refused

from posenc.attention.attend import attend
from posenc.attention.scores import scores
from posenc.core.encoding import Sum
from posenc.core.frequencies import frequencies
from posenc.core.masks import causal
from posenc.core.positions import sequence
from posenc.encodings.additive.sinusoidal import Sinusoidal
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.rotary.axial import axial
from posenc.encodings.rotary.rope import RoPE


def test_a_sum_of_biases_is_called_like_one():
    pos, parts = sequence(5), (ALiBi(2), T5Bias(2))
    torch.testing.assert_close(Sum(*parts)(pos), parts[0](pos) + parts[1](pos))
    torch.testing.assert_close(Sum(*parts)(pos, sequence(3)), Sum(*parts)(pos)[..., :3])


def test_a_sum_of_one_is_that_one():
    q = torch.randn(1, 4, 5, 8)
    for encoding in (NoPE(), RoPE(8), ALiBi(4), Shaw(8), DeBERTa(8, 4)):
        torch.testing.assert_close(attend(q, q, q, Sum(encoding)), attend(q, q, q, encoding))
        assert attend(q, q, q, Sum()).equal(attend(q, q, q, NoPE()))


def test_a_sum_lets_each_part_act_where_it_acts():
    x, pos = torch.randn(2, 5, 8), torch.tensor([2, 0, 7, 1, 1])
    wave, rope, alibi, t5, shaw = Sinusoidal(8), RoPE(8), ALiBi(1), T5Bias(1), Shaw(8)
    whole = Sum(wave, rope, alibi, t5, shaw)
    at = whole.prepare(pos)
    assert whole.on_embeddings(x, at).equal(wave(x, pos))
    q = wave(x, pos).unsqueeze(1)
    turned, _ = rope(q, q, pos)
    assert whole.on_queries(q, at).equal(turned)
    assert whole.on_keys(q, at).equal(turned)
    expected = (
        scores(shaw, turned, turned, pos, pos)  # content, and what Shaw makes of it
        + alibi(pos)
        + t5(pos)
    )
    torch.testing.assert_close(scores(whole, q, q, pos, pos), expected)


def test_what_two_parts_add_to_the_values_is_added():
    q, pos, a, b = torch.randn(1, 2, 5, 8), sequence(5), Shaw(8), Shaw(8)
    weights = torch.rand(1, 2, 5, 5)
    whole = Sum(a, NoPE(), b)
    at, rows = whole.prepare(pos), slice(1, 3)
    made = whole.by_weight(weights[..., rows, :], at, at, rows)
    each = [part.by_weight(weights[..., rows, :], pos, pos, rows) for part in (a, b)]
    torch.testing.assert_close(made, each[0] + each[1])
    none = Sum(NoPE(), ALiBi(2))
    assert none.by_weight(weights, none.prepare(pos), none.prepare(pos), rows) is None
    assert attend(q, q, q, whole).shape == q.shape


def test_rotations_after_one_another_add_their_angles():
    q, pos = torch.randn(1, 2, 5, 8), torch.tensor([2, 0, 7, 1, 9])
    twice = Sum(RoPE(8), RoPE(8))
    once = RoPE(2 * frequencies(8))
    torch.testing.assert_close(
        twice.on_queries(q, twice.prepare(pos)), once.on_queries(q, once.prepare(pos))
    )


def test_a_sum_multiplies_the_scales_of_its_parts():
    assert Sum(RoPE(8), ALiBi(4)).scale(16) == 0.25
    assert Sum(DeBERTa(16, 4), RoPE(16)).scale(16) == pytest.approx(DeBERTa(16, 4).scale(16))
    assert Sum().scale(16) == 0.25


def test_a_sum_is_made_for_what_its_parts_are_made_for():
    whole = Sum(NoPE(), Sinusoidal(32), Shaw(8), ALiBi(4))
    assert (whole.width, whole.dim, whole.heads, whole.axes) == (32, 8, 4, 1)
    assert Sum(RoPE(axial(8)), RoPE(axial(8))).axes == 2


def test_sums_can_be_nested():
    q, pos = torch.randn(1, 4, 5, 8), sequence(5)
    flat = Sum(RoPE(8), ALiBi(4), T5Bias(4))
    nested = Sum(flat.parts[0], Sum(*flat.parts[1:]))
    expected = attend(q, q, q, flat, flat.prepare(pos), mask=causal())
    torch.testing.assert_close(
        attend(q, q, q, nested, nested.prepare(pos), mask=causal()), expected
    )


def test_a_sum_is_iterated_part_by_part():
    parts = [RoPE(8), ALiBi(4)]
    assert list(Sum(*parts)) == parts


def test_parts_with_other_axes_are_refused():
    with refused(ValueError, "RoPE", 1, 2):
        Sum(RoPE(8), RoPE(axial(8)))


def test_plus_makes_a_sum_and_three_make_one_sum_of_three():
    rope, alibi, wave = RoPE(8), ALiBi(4), Sinusoidal(32)
    both, three = rope + alibi, rope + alibi + wave
    assert type(both) is Sum
    assert [*both.parts] == [rope, alibi]
    assert [*three.parts] == [rope, alibi, wave]
    q = torch.randn(1, 4, 5, 8)
    assert attend(q, q, q, both).equal(attend(q, q, q, Sum(rope, alibi)))
    with refused(TypeError, "RoPE"):
        rope + 3
