"""What fits together: positions for each head against one call for each head, and what the input
of a layer says against the same steps done by hand.
"""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from posenc import (
    ALiBi,
    Block,
    NoPE,
    RoPE,
    SelfAttention,
    Sinusoidal,
    Sum,
    XPos,
    attend,
    axial,
    explain,
    masks,
)
from posenc.core.encoding import Encoding
from posenc.core.fits import stand
from posenc.core.prepared import Prepared
from posenc.encodings.temperature import Temperature

# Positions for each head


@pytest.mark.parametrize(
    "encoding",
    [
        NoPE(),
        RoPE(8),
        RoPE(4, dim=8, layout="half"),
        RoPE(axial(8)),
        XPos(8),
        Temperature(3),
        Sum(RoPE(8), Sum(Temperature(3))),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("batch", [1, 2])
def test_positions_for_each_head_are_one_call_for_each_head(encoding, groups, batch):
    q, k, v = (torch.randn(2, heads, 6, 8) for heads in (4, groups, groups))
    pos = torch.randint(20, (batch, 4, 6, *[2] * (encoding.axes > 1)))
    made = attend(q, k, v, encoding, pos, mask=masks.causal())
    for head in range(4):
        kv = head * groups // 4
        alone = (x[:, one : one + 1] for x, one in ((q, head), (k, kv), (v, kv)))
        expected = attend(*alone, encoding, pos[:, head], mask=masks.causal())
        torch.testing.assert_close(made[:, head : head + 1], expected)


def test_keys_that_heads_share_may_stand_where_they_like():
    q, k, pos, k_pos = *torch.randn(2, 1, 4, 6, 8), torch.randint(9, (1, 4, 6)), torch.arange(6)
    at, k_at = RoPE(8).prepare(pos), RoPE(8).prepare(k_pos.expand(1, 2, 6))
    two = k[:, :2]
    expected = attend(q, two, two, RoPE(8), at, RoPE(8).prepare(k_pos))
    torch.testing.assert_close(attend(q, two, two, RoPE(8), at, k_at), expected)


def test_a_layer_takes_positions_for_each_head():
    layer, x, pos = SelfAttention(32, 4, RoPE(8)), torch.randn(2, 5, 32), torch.randint(9, (2, 5))
    torch.testing.assert_close(layer(x, pos.unsqueeze(1).expand(2, 4, 5)), layer(x, pos))


# The input of a layer


class Gates(Prepared, NamedTuple("Gates", [("gates", Tensor)])):
    """(batch, 1, token, 1)"""


class Gated(Encoding):
    """Queries are multiplied by what the input of the layer says."""

    prepared = Gates

    def on_hidden(self, x, at):
        return Gates((x.sum(-1) + at).view(len(x), 1, -1, 1))

    def on_queries(self, q, at):
        return q * at.gates


@pytest.mark.parametrize(
    "encoding",
    [Gated(), Sum(RoPE(8), Gated()), Sum(Sinusoidal(32), Sum(RoPE(8), Sum(Gated())))],
    ids=lambda value: type(value).__name__,
)
def test_a_layer_hands_the_encoding_what_comes_in(encoding):
    layer, x, pos = SelfAttention(32, 4, encoding), torch.randn(2, 5, 32), torch.arange(5) + 3
    embedded = Sinusoidal(32)(x, pos) if "on_embeddings" in encoding.acts_on else x
    q, k, v = (
        to(embedded).unflatten(-1, (4, 8)).transpose(1, 2) for to in (layer.q, layer.k, layer.v)
    )
    if isinstance(encoding, Sum):
        q, k = RoPE(8)(q, k, pos)
    q = q * (embedded.sum(-1) + pos).view(2, 1, 5, 1)
    expected = attend(q, k, v, NoPE(), mask=masks.causal())
    torch.testing.assert_close(
        layer(x, pos, masks.causal()), layer.out(expected.transpose(1, 2).flatten(2))
    )


@pytest.mark.parametrize("given", [None, torch.arange(5)])
@pytest.mark.parametrize("encoding", [Gated(), Sum(RoPE(8), Gated())], ids=type)
def test_attend_says_that_the_input_of_the_layer_is_needed(encoding, given):
    q = torch.randn(2, 4, 5, 8)
    says = r"Gated reads the input .*on_hidden\(x, encoding.prepare\(pos\)\)`, or use `SelfAtt"
    for call in (attend, explain):
        with pytest.raises(TypeError, match=says.replace("Gated", type(encoding).__name__)):
            call(q, q, q, encoding, given)
    at = encoding.prepare(torch.arange(5))
    with pytest.raises(TypeError, match="Gated reads the input of the layer"):
        attend(q, q, q, encoding, at)
    at = encoding.on_hidden(torch.randn(2, 5, 32), at)
    assert attend(q, q, q, encoding, at).shape == q.shape
    assert stand(encoding, at, q, "`at`") == at


# Sizes


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        (RoPE(16), "`dim`=16, this layer has 8: make its RoPE"),
        (ALiBi(8), "`heads`=8, this layer has 4: make its ALiBi"),
        (Sinusoidal(64), "`width`=64, this layer has 32: make its Sinusoidal"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_layer_refuses_every_part_of_a_sum_that_does_not_fit(encoding, says, depth):
    for _ in range(depth):
        encoding = Sum(NoPE(), encoding)
    for make in (SelfAttention, Block):
        with pytest.raises(ValueError, match=says):
            make(32, 4, encoding)


def test_a_part_that_was_changed_afterwards_is_refused_too():
    encoding, q = Sum(NoPE(), Sum(ALiBi(4))), torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match="this ALiBi was made for 4 heads, `q` has 2: make it for"):
        attend(q, q, q, encoding)
