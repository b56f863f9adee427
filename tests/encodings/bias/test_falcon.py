"""Falcon's ALiBi against the function of transformers, and against ALiBi where nothing is lost."""

import pytest
import torch
from transformers.models.falcon.modeling_falcon import build_alibi_tensor

from posenc import ALiBi, attend, masks
from posenc.attention.scores import scores
from posenc.encodings.bias.falcon import FalconALiBi


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
def test_adds_what_falcon_adds(heads):
    tokens, dim = 700, 4
    zeros = torch.zeros(1, heads, tokens, dim)
    pos = torch.arange(tokens)
    mine = scores(FalconALiBi(heads), zeros, zeros, pos, pos)
    theirs = build_alibi_tensor(torch.ones(1, tokens, dtype=torch.long), heads, torch.float32)
    expected = theirs.view(1, heads, 1, tokens).expand(-1, -1, tokens, -1) * dim**-0.5
    torch.testing.assert_close(mine, expected, rtol=1e-7, atol=0)


def test_is_alibi_in_short_texts_with_slopes_that_are_powers_of_two():
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 8, 100, 16, generator=generator)
    falcon = attend(q, k, v, FalconALiBi(8), mask=masks.causal())
    alibi = attend(q, k, v, ALiBi(8, 16**-0.5), mask=masks.causal())
    torch.testing.assert_close(falcon, alibi, rtol=1e-4, atol=1e-5)


def test_positions_in_a_cache_are_those_of_the_keys():
    q, k, v = torch.randn(3, 1, 4, 300, 8, generator=torch.Generator().manual_seed(0))
    whole = attend(q, k, v, falcon := FalconALiBi(4), mask=masks.causal())
    pos = torch.arange(300)
    at, k_at = falcon.prepare(pos[-1:]), falcon.prepare(pos)
    last = attend(q[:, :, -1:], k, v, falcon, at, k_at, masks.causal(pos[-1:], pos))
    torch.testing.assert_close(last, whole[:, :, -1:])


def test_in_float16_no_more_is_rounded_far_into_a_text():
    """Slopes and positions are, to bfloat16; their products times the scale are not."""
    q, k, v = torch.randn(3, 1, 6, 200, 24, dtype=torch.float16).unbind()
    falcon, pos = FalconALiBi(6), torch.arange(3000, 3200)
    made = scores(falcon, torch.zeros_like(q), k, pos, pos)
    assert made.equal(scores(falcon, torch.zeros_like(q).float(), k.float(), pos, pos))
    out = attend(q, k, v, falcon, pos, mask=masks.causal())
    expected = attend(*(x.double() for x in (q, k, v)), falcon, pos, mask=masks.causal())
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=4e-3)
