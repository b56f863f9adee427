"""Errors of RoPE, against 50-digit arithmetic and finite differences, in every dtype."""

import mpmath
import numpy as np
import pytest
import torch
from refusals import refused

from posenc import RoPE, rotate, turn
from posenc.core.frequencies import frequencies

FAR = torch.tensor([0, 1, 7, -100, 4095])


def theta(dim):
    return np.array([10_000 ** (-2 * j / dim) for j in range(dim // 2)])


def as_complex(x):
    return np.asarray(x[..., 0::2]) + 1j * np.asarray(x[..., 1::2])


def test_cosines_and_sines_are_correctly_rounded_far_out():
    far = [1, 4097, 10**5, 999_983, 10**7]
    cos, sin = turn(torch.tensor(far), frequencies(64))
    with mpmath.workdps(50):
        for token, p in enumerate(far):
            for j in range(32):
                angle = p * mpmath.mpf(10_000) ** (mpmath.mpf(-2 * j) / 64)
                assert abs(cos[0, token, j].item() - mpmath.cos(angle)) < 3.1e-8
                assert abs(sin[0, token, j].item() - mpmath.sin(angle)) < 3.1e-8


def test_scores_depend_on_the_offset_only_even_a_million_tokens_on():
    q, k = torch.randn(2, 1, 2, 6, 64).unbind()
    pos = torch.arange(6) * 37
    here, there = (RoPE(64)(q, k, pos + shift) for shift in (0, 10**6))
    moved = (there[0] @ there[1].mT - here[0] @ here[1].mT).abs().max()
    assert moved < 1e-4


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_gradients_of_the_channels(layout):
    x = torch.randn(1, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    by = turn(torch.tensor([0, 3, 40]), frequencies(6))
    assert torch.autograd.gradcheck(lambda x: rotate(x, by, layout), x)


def test_learned_frequencies_get_the_gradient_of_finite_differences():
    x, weight = torch.randn(2, 1, 1, 5, 8, dtype=torch.float64).unbind()
    rope = RoPE(torch.nn.Parameter(frequencies(8)))
    (rope(x, x, FAR)[0] * weight).sum().backward()

    def loss(theta):
        turned = as_complex(x[0, 0]) * np.exp(1j * np.outer(FAR, theta))
        return (turned * as_complex(weight[0, 0]).conj()).real.sum()

    for j, step in enumerate(1e-6 * np.eye(4)):
        slope = (loss(theta(8) + step) - loss(theta(8) - step)) / 2e-6
        assert rope.freqs.grad[j].item() == pytest.approx(slope, rel=1e-4, abs=1e-3)


def test_casting_the_model_leaves_the_angles_exact():
    x, pos = torch.randn(1, 1, 2, 8, dtype=torch.bfloat16), torch.tensor([257, 9999])
    for cast in ("bfloat16", "half", "double"):
        assert getattr(RoPE(8), cast)()(x, x, pos)[0].equal(RoPE(8)(x, x, pos)[0])


def test_a_16_bit_result_is_the_float32_result_rounded_once():
    x = torch.randn(1, 2, 5, 8, dtype=torch.bfloat16)
    out = RoPE(8)(x, x, FAR)[0]
    assert out.dtype == torch.bfloat16
    assert out.equal(RoPE(8)(x.float(), x.float(), FAR)[0].bfloat16())


def test_a_model_built_on_meta_needs_no_repair():
    with torch.device("meta"):
        rope = RoPE(8)
    x = torch.randn(1, 1, 5, 8)
    assert rope.to_empty(device="cpu")(x, x, FAR)[0].equal(RoPE(8)(x, x, FAR)[0])
    assert not rope.state_dict()


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_positions_in_16_bits_are_refused(dtype, most):
    with refused(TypeError, most):
        RoPE(8).prepare(torch.arange(4).to(dtype))


def test_a_learned_theta_starts_where_the_constant_is_and_no_cast_moves_it():
    pos, x = torch.tensor([0, 3, 10**6 + 1]), torch.randn(1, 1, 3, 64)
    expected = RoPE(frequencies(64, 500_000.0)).prepare(pos)
    for cast in (torch.float32, torch.bfloat16, torch.float64):
        rope = RoPE(frequencies(64, 500_000.0), learned=True).to(cast)
        assert [(name, p.dtype) for name, p in rope.named_parameters()] == [("delta", cast)]
        made = rope.prepare(pos)
        assert made.cos.equal(expected.cos)
        assert made.sin.equal(expected.sin)
        assert rope.on_queries(x, made).isfinite().all()


def test_its_gradient_is_that_of_theta_itself():
    pos, q = torch.tensor([0, 3, 50]), torch.randn(1, 2, 3, 8, dtype=torch.float64)
    whole, part = RoPE(torch.nn.Parameter(frequencies(8))), RoPE(8, learned=True).double()
    for rope in (whole, part):
        rope.on_queries(q, rope.prepare(pos)).pow(3).sum().backward()
    torch.testing.assert_close(part.delta.grad, whole.freqs.grad)
    assert part.theta.equal(frequencies(8))
    with torch.no_grad():
        part.delta += 0.25
    torch.testing.assert_close(part.theta, frequencies(8) + 0.25)
