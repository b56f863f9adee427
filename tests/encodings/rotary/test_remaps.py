"""Maps of offsets: the largest offset of each, found by hand, and invalid maps."""

import pytest
import torch

from posenc import Remapped, dual_chunk, rerope, self_extend
from posenc.encodings.rotary.remaps import regions

TOKENS = 14


def offsets(remap):
    """Return the offsets of all pairs that a causal mask shows."""
    region, places = regions(remap)
    pos = torch.arange(TOKENS)
    i, j = pos[:, None], pos[None]
    each = [query(i) - key(j) for query, key in places]
    found = each[0].expand(TOKENS, TOKENS)
    for r, further in enumerate(each):
        found = torch.where(region(i, j) == r, further, found)
    return found.tril()


@pytest.mark.parametrize(
    ("remap", "largest"), [(rerope(5), 5), (self_extend(2, 4), 8), (dual_chunk(5, 1), 5)]
)
def test_no_offset_leaves_the_trained_ones(remap, largest):
    """With 14 tokens, plain offsets reach 13."""
    found = offsets(remap)
    assert found.max() == largest
    assert found.min() == 0


def test_self_extend_counts_in_groups_beyond_its_window():
    """The last row, at position 13, whose group is 6: 6 + 4 − 2 − ⌊j / 2⌋ beyond 3 tokens."""
    assert offsets(self_extend(2, 4))[-1].tolist() == [8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 2, 1, 0]


def test_what_is_no_map_is_refused(unchecked):
    for given in (512, "rerope", ("grouped", 3), ("stretched", 5)):
        with pytest.raises(
            TypeError, match=r"`remap` must be a map of offsets.*`rerope\(window\)`"
        ):
            Remapped(64, given)
