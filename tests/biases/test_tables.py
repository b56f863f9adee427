"""Attention with rows of a table for each offset, against the definition, forward and backward."""

from copy import deepcopy

import pytest
import torch
from spaced_attention import (
    BY_CONTENT,
    DIM,
    HEADS,
    MASKS,
    PLACES,
    both,
    by_path,
    heads,
    masked,
    tensors,
)

from posenc import attend
from posenc.core.masks import causal
from posenc.core.positions import sequence

TABLES = [name for name in BY_CONTENT if name != "transformer-xl"]  # in test_vectors


@both
@masked
@pytest.mark.parametrize("groups", [4, 1])
@pytest.mark.parametrize("name", TABLES)
@torch.no_grad()
def test_rows_of_a_table_for_each_offset_are_the_reference(name, mask, place, groups):
    encoding, at = BY_CONTENT[name], PLACES[place]
    q, k, v = tensors(*at, groups, values=DIM if "shaw" in name else 11)
    run = lambda path: by_path(path, q, k, v, encoding, *at, MASKS[mask](*at), scale=0.9)  # noqa: E731
    torch.testing.assert_close(run("toeplitz"), run("reference"), rtol=1e-5, atol=2e-5)


@both
@masked
@pytest.mark.parametrize("name", TABLES)
def test_gradients_of_all_inputs_and_tables_are_the_reference(name, mask, place):
    encoding, at = deepcopy(BY_CONTENT[name]).double(), PLACES[place]
    inputs = tensors(*at, groups=2, values=DIM if "shaw" in name else 11)
    inputs = [x.double().requires_grad_() for x in inputs]
    factor = torch.randn(*inputs[0].shape[:3], inputs[2].shape[-1], dtype=torch.float64)

    def gradients(path):
        out = by_path(path, *inputs, encoding, *at, MASKS[mask](*at), scale=0.9)
        return torch.autograd.grad(out, [*inputs, *encoding.parameters()], factor)

    torch.testing.assert_close(gradients("toeplitz"), gradients("reference"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["shaw", "deberta"])
def test_gradients_under_autocast_are_those_of_float32(name):
    encoding, q = deepcopy(BY_CONTENT[name]), heads(HEADS, 300).requires_grad_()
    run = lambda: attend(q, q, q, encoding, mask=causal(), implementation="toeplitz")  # noqa: E731
    expected = torch.autograd.grad(run().sum(), q)
    with torch.autocast("cpu", torch.bfloat16):  # DeBERTa's tables are products in 16 bits
        made = torch.autograd.grad(run().sum(), q)
    torch.testing.assert_close(made, expected, rtol=1e-2, atol=1e-2 if name == "deberta" else 1e-5)


@pytest.mark.parametrize("name", ["shaw", "deberta"])
def test_what_is_kept_for_gradients_grows_with_tokens_times_channels(name):
    tokens, kept = 2048, []
    q = heads(HEADS, tokens).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x.numel()) or x, lambda x: x
    ):
        attend(q, q, q, BY_CONTENT[name], mask=causal(), implementation="toeplitz")
    assert max(kept) <= 2 * HEADS * tokens * DIM


def test_a_second_derivative_is_refused():
    q = heads(HEADS, 20).requires_grad_()
    out = attend(q, q, q, BY_CONTENT["shaw"], implementation="toeplitz")
    with pytest.raises(RuntimeError, match=r"near and far keys has no second deriv.*reference"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


@pytest.mark.parametrize("name", ["shaw", "deberta"])
def test_gradients_in_bfloat16_of_rows_that_thousands_share_are_near_those_of_float64(name):
    """The keys beyond the reach share a row: their gradients are summed in float32."""
    encoding, at, k_at = BY_CONTENT[name], sequence(64, 2000), sequence(2064)
    inputs = [heads(HEADS, n, dtype=torch.bfloat16) for n in (64, 2064, 2064, 64)]

    def gradients(dtype):
        learned = deepcopy(encoding).to(torch.promote_types(dtype, torch.float32))
        q, k, v, factor = (x.to(dtype) for x in inputs)
        out = attend(q, k, v, learned, at, k_at, causal(at, k_at))
        return torch.autograd.grad((out * factor).sum(), [*learned.parameters()])

    exact = gradients(torch.float64)
    for made, expected in zip(gradients(torch.bfloat16), exact, strict=True):
        assert (made - expected).norm() < 2**-7 * expected.norm()
