"""Bands of pairs, against all pairs of positions, tested one by one."""

from itertools import product

import torch
from spaced_attention import DIM, MASKS, PLACES, both, heads, masked

from posenc import (
    ALiBi,
    NoPE,
    Shaw,
    attend,
)
from posenc.attention.spacing import DiagonalBand, diagonal_band
from posenc.core.masks import Mask, causal


@masked
@both
def test_a_strip_is_what_the_mask_shows(mask, place):
    q_pos, k_pos = PLACES[place]
    made = MASKS[mask](q_pos, k_pos)
    found = diagonal_band(made, q_pos.shape[-1], k_pos.shape[-1])
    i, j = torch.meshgrid(
        torch.arange(q_pos.shape[-1]), torch.arange(k_pos.shape[-1]), indexing="ij"
    )
    seen = torch.ones_like(i).bool()
    if made is not None:
        seen = made(torch.tensor(0), torch.tensor(0), i, j)
    assert ((i - j >= found.low) & (i - j <= found.high)).equal(seen)
    rows = seen.any(-1).nonzero().flatten().tolist()
    assert rows == list(found.rows)
    for start in found.rows[::11]:
        some = slice(start, min(start + 11, found.rows.stop))
        keys = found.seen(some)
        by_some = seen[some].any(0).nonzero().flatten().tolist()
        assert by_some == list(range(keys.start, keys.stop))


def test_a_mask_is_read_once_a_layer_and_a_plain_triangle_never():
    read = []

    def sees(b, h, i, j):
        read.append(i.numel() * j.numel())
        return i >= j

    q, k, v = (heads(4, 300) for _ in range(3))
    for encoding in (NoPE(), ALiBi(4), Shaw(DIM)):
        read.clear()
        attend(q, k, v, encoding, mask=Mask(sees))
        assert sum(read) == 300**2
        read.clear()
        attend(q, k, v, encoding, mask=causal())
        assert not read


def test_a_strip_that_shows_each_key_to_a_query_says_so():
    """Compare with all pairs of every small band."""
    for queries, keys, low, high in product((1, 2, 4), (1, 3, 4), range(-5, 6), range(-5, 6)):
        apart = torch.arange(queries).unsqueeze(-1) - torch.arange(keys)
        shown = ((apart >= low) & (apart <= high)).any(0)
        assert DiagonalBand(queries, keys, low, high).sees_all_keys == bool(shown.all())
