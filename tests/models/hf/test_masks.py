"""Test masks converted from boolean matrices against these matrices."""

from itertools import product

import pytest
import torch

from posenc.attention.spacing import diagonal_band
from posenc.core.biases import pairs
from posenc.models.hf.masks import mask_of


def square(mask, shape):
    if mask is None:
        return torch.ones(shape, dtype=torch.bool)
    return mask(*pairs(shape)).expand(shape)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 7), (5, 5), (3, 8), (8, 3)])
def test_every_strip_is_told_from_its_square(queries, keys):
    offset = torch.arange(queries).unsqueeze(-1) - torch.arange(keys)
    for low, high in product(range(-keys - 1, queries + 1), repeat=2):
        seen = ((offset >= low) & (offset <= high)).expand(2, 1, -1, -1)
        mask = mask_of(seen, 2, queries, keys)
        assert torch.equal(square(mask, (2, 1, queries, keys)), seen)
        if seen[0, 0, 0].any() and seen[0, 0, -1].any():
            assert diagonal_band(mask, queries, keys) is not None


def test_plain_masks_are_those_that_kernels_have_built_in():
    causal = torch.ones(5, 5, dtype=torch.bool).tril().view(1, 1, 5, 5)
    for seen in (causal, None):
        assert mask_of(seen, 3, 5, 5).is_causal
    for seen in (torch.ones(1, 1, 5, 7, dtype=torch.bool), torch.ones(1, 1, 5, 5) > 0):
        assert mask_of(seen, 3, 5, seen.shape[-1]) is None


def test_no_square_is_the_last_queries_of_a_causal_text():
    causal = torch.ones(7, 7, dtype=torch.bool).tril().expand(2, 1, -1, -1)
    for queries in range(1, 8):
        mask = mask_of(None, 2, queries, 7)
        assert torch.equal(square(mask, (2, 1, queries, 7)), causal[:, :, -queries:])


def test_keys_beyond_those_that_count_are_left_out():
    seen = torch.ones(4, 9, dtype=torch.bool).tril(2).view(1, 1, 4, 9)
    mask = mask_of(seen, 1, 4, 6)
    assert torch.equal(square(mask, (1, 1, 4, 6)), seen[..., :6])
    assert diagonal_band(mask, 4, 6) is not None


@pytest.mark.parametrize("shape", [(1, 1, 6, 6), (3, 1, 6, 9), (2, 4, 5, 5)])
def test_any_other_square_stays_as_it_is(shape):
    for holes in (0.1, 0.5, 0.9):
        seen = torch.rand(shape) > holes
        assert torch.equal(square(mask_of(seen, *shape[:1], *shape[2:]), shape), seen)
    seen = torch.ones(shape[-2:], dtype=torch.bool).tril().expand(shape).clone()
    seen[-1, -1, -2, 0] = False  # one hole in the last of the batch
    assert torch.equal(square(mask_of(seen, *shape[:1], *shape[2:]), shape), seen)
