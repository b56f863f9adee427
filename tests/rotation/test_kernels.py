"""The choice of a kernel, held against the list of what each can do."""

import warnings

import pytest
import torch
from rotation_cases import KERNELS, LAYOUTS, TOKENS, by, heads

from posenc import frequencies
from posenc.rotation.kernels import kernel_for, load_triton
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import Turn, turn


def learned(x):
    at = by()
    return x.to("meta"), Turn(at.cos.to("meta").requires_grad_(), at.sin.to("meta"))


def watched(x):
    at = by()
    return torch.nn.utils.rnn.pack_sequence([x]).data.as_subclass(Watched), at


class Watched(torch.Tensor):
    """A tensor that is more than a tensor, as distributed ones are."""


PLAIN = {
    "float64": lambda x: (x.double(), by()),
    "learned, and not on the CPU": learned,
    "a subclass": watched,
    "16-bit tables": lambda x: (x, Turn(*(t.half() for t in by()))),
}


@pytest.mark.parametrize("case", PLAIN)
def test_takes_the_formula_where_it_must(case):
    x, at = PLAIN[case](heads(32))
    assert kernel_for(x, at, "half") == "formula"


def test_takes_the_formula_on_other_devices():
    at = by()
    meta = Turn(at.cos.to("meta"), at.sin.to("meta"))
    for layout in LAYOUTS:
        assert kernel_for(heads(32).to("meta"), meta, layout) == "formula"
        assert rotate(heads(32).to("meta"), meta, layout).shape == (2, 3, TOKENS, 32)


@pytest.mark.parametrize("channels", [2, 4, 8, 16])
def test_few_channels_are_turned_as_fast_as_many(channels):
    """Fewer than torch multiplies at a time, against the formula, and so their gradients."""
    few = turn(torch.arange(TOKENS), frequencies(channels))
    for layout in LAYOUTS:
        assert kernel_for(heads(channels), few, layout) == KERNELS[layout]
        x, weights = heads(channels).requires_grad_(), heads(channels)
        ours, expected = rotate(x, few, layout), formula(x, few, layout)
        grads = [torch.autograd.grad((out * weights).sum(), x) for out in (ours, expected)]
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(*grads, rtol=0, atol=1e-6)


def test_numba_turns_many_numbers_of_the_half_layout(monkeypatch):
    monkeypatch.setattr("posenc.rotation.kernels.load_numba", lambda: "its module")
    at = turn(torch.arange(4096), frequencies(128))
    for dtype, count, half in (
        (torch.float32, 1, "halves"),
        (torch.float32, 2, "numba"),
        (torch.bfloat16, 2, "numba"),
        (torch.float16, 2, "halves"),
    ):
        x = torch.empty(1, count, 4096, 128, dtype=dtype)
        assert kernel_for(x, at, "half") == half
        assert kernel_for(x, at, "interleaved") == "complex"


def test_a_machine_without_triton_says_nothing(monkeypatch):
    monkeypatch.setattr("posenc.rotation.kernels.find_spec", lambda name: None)
    load_triton.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_triton() is None
    load_triton.cache_clear()
