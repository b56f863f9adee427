"""The rotation on a GPU: Triton's kernel against the formula and float64."""

from pathlib import Path

import pytest
import torch
from rotation_cases import (
    LAYOUTS,
    PAIRS,
    TOKENS,
    WIDTHS,
    as_complex,
    by,
    dtypes,
    heads,
    layouts,
    run,
    ulps,
)
from rotation_cases import widths as each_width

from posenc import frequencies
from posenc.encodings.rotary.rope import RoPE
from posenc.rotation.kernels import kernel_for
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import Turn, turn


def on_gpu(turned):
    return Turn(*(x.cuda() for x in turned))


def test_the_kernel_equals_the_formula_to_the_last_bit():
    code = Path(__file__).parents[1].joinpath("rotation", "in_triton.py").read_text()
    assert run(code) == ["turned", "24"]


@layouts
@dtypes
@each_width
def test_equals_the_rotation_of_complex_numbers(layout, dtype, width):
    start, channels = WIDTHS[width]
    x = heads(channels, dtype)
    turned = by()
    assert kernel_for(x.cuda(), on_gpu(turned), layout, start) == "triton"
    out = rotate(x.cuda(), on_gpu(turned), layout, start).cpu()
    expected = as_complex(x, turned, layout, start)
    torch.testing.assert_close(out.double(), expected, rtol=ulps(dtype), atol=ulps(dtype))


@layouts
@dtypes
def test_equals_the_kernels_of_the_cpu(layout, dtype):
    x = heads(32, dtype)
    there = rotate(x.cuda(), on_gpu(by()), layout).cpu()
    torch.testing.assert_close(there, formula(x, by(), layout), rtol=0, atol=0)


@layouts
def test_gradients_equal_those_of_the_cpu(layout):
    grads = []
    for device in ("cpu", "cuda"):
        x = torch.linspace(-2, 2, 2 * 3 * TOKENS * 32).reshape(2, 3, TOKENS, 32).to(device)
        x.requires_grad_()
        turned = Turn(*(t.to(device) for t in by()))
        rotate(x, turned, layout).square().mul(torch.arange(32.0, device=device)).sum().backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads, rtol=1e-6, atol=1e-5)


def test_learned_frequencies_have_gradients():
    grads = []
    for device in ("cpu", "cuda"):
        freqs = frequencies(32).to(device).requires_grad_()
        x = torch.linspace(-2, 2, 3 * TOKENS * 32).reshape(1, 3, TOKENS, 32).to(device)
        rotate(x, turn(torch.arange(TOKENS, device=device), freqs), "half").cumsum(-1).square()[
            ..., 5
        ].sum().backward()
        grads.append(freqs.grad.cpu())
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("first", [0, 10**6, 2**31 - 2**10])
def test_angles_are_exact_at_far_positions(first):
    pos = torch.arange(first, first + 1000)
    here, there = turn(pos, frequencies(128)), turn(pos.cuda(), frequencies(128).cuda())
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(other.cpu(), one, rtol=0, atol=6e-8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_numbers_than_a_32_bit_index_counts(layout):
    tokens = 2**19 + 3
    x = torch.randn(1, 33, tokens, 128, dtype=torch.bfloat16, device="cuda")
    turned = turn(torch.arange(tokens, device="cuda"), frequencies(128).cuda())
    out = rotate(x, turned, layout)
    last = slice(tokens - 5, None)
    rows = Turn(*(table[..., last, :] for table in turned))
    expected = formula(x[:, 32:, last], rows, layout)
    torch.testing.assert_close(out[:, 32:, last], expected, rtol=0, atol=0)


def test_scores_of_rope_depend_on_the_offset_at_far_positions():
    rope, q = RoPE(2 * PAIRS), torch.randn(1, 1, 1, 2 * PAIRS).cuda()
    scores = []
    for first in (0, 10**6):
        at = rope.prepare(torch.arange(first, first + 9, device="cuda"))
        turned = rope.on_queries(q.expand(1, 1, 9, -1).contiguous(), at).double()
        scores.append(turned @ turned.mT)
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)
