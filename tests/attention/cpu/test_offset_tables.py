"""Attention with rows of a table for each offset, against the definition: shapes, masks, groups."""

import pytest
import torch
from spaced_attention import BY_CONTENT, DIM, MASKS, PLACES, both, by_path, masked, tensors

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
