"""Attention with rows of a table for each offset, against the definition: shapes, masks, groups."""

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

TABLES = [name for name in BY_CONTENT if name != "transformer-xl"]  # in test_offset_vectors


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
