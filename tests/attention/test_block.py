"""A block against its steps done by hand, and against torch's own."""

import pytest
import torch
from refusals import refused
from torch import nn

from posenc import ALiBi, Block, Cache, NoPE, RoPE, SelfAttention, Sinusoidal, Sum, masks


def blocks_alike(dropout=0.0):
    """Torch's block and ours, with the same weights."""
    theirs = nn.TransformerEncoderLayer(
        32, 4, 128, dropout, "gelu", norm_first=True, batch_first=True
    )
    ours = Block(32, 4, NoPE(), causal=True, dropout=dropout)
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
    return theirs, ours


AHEAD = torch.ones(5, 5, dtype=torch.bool).triu(1)


def test_without_positions_it_is_the_block_of_torch():
    theirs, ours = blocks_alike()
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(ours(x), theirs(x, AHEAD))


def test_while_it_trains_dropout_falls_where_it_does_in_the_block_of_torch():
    """By the same random numbers. Torch drops units within the MLP too: GPT-2 does not."""
    theirs, ours = blocks_alike(dropout=0.5)
    theirs.dropout.p = 0.0
    x, outs = torch.randn(1, 5, 32), []
    for block in (lambda x: ours(x, implementation="sdpa"), lambda x: theirs(x, AHEAD)):
        torch.manual_seed(3)
        outs.append(block(x))
    torch.testing.assert_close(*outs)
    assert not torch.allclose(outs[0], ours.eval()(x))
    torch.testing.assert_close(ours(x), theirs.eval()(x, AHEAD))


def test_softcap_and_sinks_are_those_of_the_layer():
    block = Block(32, 4, ALiBi(4), softcap=0.5, sinks=True)
    with torch.no_grad():
        block.attention.sinks.normal_()
    x, layer = torch.randn(2, 5, 32), block.attention
    assert (layer.softcap, layer.sinks.shape) == (0.5, (4,))
    after = x + layer(block.before_attention(x))
    torch.testing.assert_close(block(x), after + block.mlp(block.before_mlp(after)))
    plain = Block(32, 4, ALiBi(4))
    plain.load_state_dict(block.state_dict(), strict=False)
    assert not torch.allclose(plain(x), block(x))


@pytest.mark.parametrize("make", [SelfAttention, Block])
def test_a_layer_refuses_what_is_no_probability_and_no_cap(make):
    with refused(ValueError, "`dropout`", "1.0"):
        make(32, 4, NoPE(), dropout=1.0)
    with refused(ValueError, "`softcap`", 0):
        make(32, 4, NoPE(), softcap=0)


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
    with refused(TypeError, "`causal`", "True", "False", 1):
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
