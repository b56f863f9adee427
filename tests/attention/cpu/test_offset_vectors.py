"""A bias of content by offset, read skewed, against the definition, which gathers every pair."""

import pytest
import torch
from spaced_attention import BY_CONTENT, MASKS, PLACES, both, by_path, masked, tensors


@both
@masked
@pytest.mark.parametrize("groups", [4, 1])
@torch.no_grad()
def test_a_view_of_content_by_offset_is_the_reference(mask, place, groups):
    encoding, at = BY_CONTENT["transformer-xl"], PLACES[place]
    q, k, v = tensors(*at, groups, values=11)
    run = lambda path: by_path(path, q, k, v, encoding, *at, MASKS[mask](*at), scale=0.9)  # noqa: E731
    torch.testing.assert_close(run("toeplitz"), run("reference"), rtol=1e-5, atol=2e-5)


def test_its_terms_add_up_to_the_bias():
    encoding, (pos, k_pos) = BY_CONTENT["transformer-xl"], PLACES["cached"]
    q, k, _ = tensors(pos, k_pos)
    bias = encoding.on_scores(q, k, encoding.prepare(pos), encoding.prepare(k_pos), 0.9)
    rows, keys = slice(2, 7), slice(0, 300)
    terms = bias.terms()
    assert list(terms) == ["u·k", "q·r", "v·r"]
    added = sum(term.block(rows, keys) for term in terms.values())
    torch.testing.assert_close(added, bias.block(rows, keys).expand_as(added))
