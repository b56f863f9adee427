"""A block against its steps done by hand, and against torch's own."""

import pytest
import torch
from torch import nn

from posenc import ALiBi, Block, Cache, NoPE, RoPE, Sinusoidal, Sum, masks


def test_without_positions_it_is_the_block_of_torch():
    theirs = nn.TransformerEncoderLayer(32, 4, 128, 0.0, "gelu", norm_first=True, batch_first=True)
    ours = Block(32, 4, NoPE(), causal=True)
    attention, own = theirs.self_attn, ours.attention
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([to.weight for to in (own.q, own.k, own.v)]))
        attention.in_proj_bias.copy_(torch.cat([to.bias for to in (own.q, own.k, own.v)]))
    for to, given in (
        (attention.out_proj, own.out),
        (theirs.norm1, ours.before_attention),
        (theirs.norm2, ours.before_mlp),
        (theirs.linear1, ours.mlp[0]),
        (theirs.linear2, ours.mlp[2]),
    ):
        to.load_state_dict(given.state_dict())
    x, ahead = torch.randn(2, 5, 32), torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x), theirs(x, ahead))


def test_what_acts_on_embeddings_is_added_to_what_comes_in():
    block = Block(32, 4, Sum(Sinusoidal(32), RoPE(8)))
    plain = Block(32, 4, RoPE(8))
    plain.load_state_dict(block.state_dict())
    x, pos = torch.randn(2, 5, 32), torch.arange(5) + 2
    torch.testing.assert_close(block(x, pos), plain(Sinusoidal(32)(x, pos), pos))


def test_a_mask_is_joined_with_that_of_a_causal_block(unchecked):
    x, ids = torch.randn(1, 6, 32), torch.tensor([0, 0, 0, 1, 1, 1])
    causal, open_ = (
        Block(32, 4, ALiBi(4), groups=2, mlp=2, causal=True),
        Block(32, 4, ALiBi(4), 2, 2),
    )
    open_.load_state_dict(causal.state_dict())
    both = masks.documents(ids) & masks.causal()
    torch.testing.assert_close(causal(x, mask=masks.documents(ids)), open_(x, mask=both))
    with pytest.raises(TypeError, match="`causal` must be True or False, got 1"):
        Block(32, 4, NoPE(), causal=1)  # type: ignore[arg-type]


@torch.no_grad()
def test_a_stack_decodes_with_one_cache():
    encodings = Sum(Sinusoidal(32), ALiBi(4)), RoPE(8), NoPE()
    stack = [Block(32, 4, encoding, causal=True) for encoding in encodings]
    x, cache = torch.randn(2, 7, 32), Cache()
    whole = x
    for block in stack:
        whole = block(whole)
    outs = []
    for piece in x.split([4, 1, 1, 1], 1):
        for block in stack:
            piece = block(piece, cache=cache)
        outs.append(piece)
    torch.testing.assert_close(torch.cat(outs, 1), whole, atol=1e-5, rtol=1e-4)
    assert cache.tokens == 7
