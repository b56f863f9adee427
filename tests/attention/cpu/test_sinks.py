"""Sinks at their limits, against attention without them and gradients by Jacobians."""

import math
from itertools import product

import pytest
import torch

from posenc import masks
from posenc.attention.attend import attend
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.nope import NoPE

DIM, HEADS = 8, 4
PATHS = ("auto", "reference", "blocks", "sdpa", "toeplitz")


def heads(heads, tokens, channels=DIM, dtype=torch.float64):
    return torch.randn(2, heads, tokens, channels, dtype=dtype)


def test_a_sink_of_minus_infinity_takes_nothing_and_a_high_one_takes_all():
    q, none, all_of_it = heads(4, 6), torch.full((4,), -math.inf), torch.full((4,), 200.0)
    for path in PATHS:
        options = dict(mask=masks.causal(), implementation=path)
        plain = attend(q, q, q, NoPE(), **options)
        torch.testing.assert_close(attend(q, q, q, NoPE(), sinks=none, **options), plain)
        assert attend(q, q, q, NoPE(), sinks=all_of_it, **options).abs().max() < 1e-40


def test_what_nobody_sees_changes_nothing_beside_a_sink():
    q, sinks = heads(4, 5), torch.randn(4)
    dirty = q.clone()
    dirty[..., 3:, :] = math.nan
    mask = masks.padding([3, 3], tokens=5)
    for path, options in product(("auto", "reference", "blocks", "sdpa"), ({}, {"softcap": 0.4})):
        if options and path == "sdpa":
            continue
        some = dict(mask=mask, implementation=path, sinks=sinks, **options)
        assert attend(q, dirty, dirty, NoPE(), **some).equal(attend(q, q, q, NoPE(), **some))


def test_where_there_is_nothing_to_attend_to_the_output_is_0():
    q, nothing, sinks = heads(4, 3), heads(4, 0), torch.randn(4, requires_grad=True)
    pos = torch.arange(3)
    for encoding in (NoPE(), ALiBi(4)):
        out = attend(q, nothing, nothing, encoding, pos, pos[:0], sinks=sinks)
        assert out.eq(0).all()
        assert out.shape == q.shape
        out.sum().backward()
        assert sinks.grad.eq(0).all()
        assert attend(nothing, q, q, encoding, pos[:0], pos, sinks=sinks).shape == nothing.shape


def test_the_gradient_of_sinks_alone_can_be_taken_as_a_function():
    q, sinks = heads(4, 5), torch.randn(4, dtype=torch.float64)
    for encoding, mask in ((NoPE(), None), (ALiBi(4), masks.causal())):
        f = lambda x: attend(q, q, q, encoding, mask=mask, sinks=x).sum()  # noqa: B023, E731
        expected = torch.autograd.functional.jacobian(f, sinks)
        torch.testing.assert_close(torch.func.grad(f)(sinks), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", [None, masks.causal(), masks.causal() & masks.window(9)])
def test_gradients_of_sinks_in_16_bits_are_those_of_float64(dtype, mask):
    """Against the definition; a sum of dout · out would show the rounding of `out`."""
    q, k, v, factor = (heads(n, 60, dtype=dtype) for n in (4, 2, 2, 4))
    sinks = torch.randn(4, requires_grad=True)

    def gradient(encoding, path, *inputs):
        *qkv, factor = inputs
        out = attend(*qkv, encoding, mask=mask, sinks=sinks, implementation=path)
        assert out.dtype == factor.dtype
        return torch.autograd.grad((out * factor).sum(), sinks)[0]

    for encoding in (NoPE(), ALiBi(4)):
        made = gradient(encoding, "auto", q, k, v, factor)
        exact = gradient(encoding, "reference", *(x.double() for x in (q, k, v, factor)))
        torch.testing.assert_close(made, exact, rtol=1e-5, atol=1e-5 * exact.abs().max().item())
