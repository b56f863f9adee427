"""Positions that fit: per head, against one call for each head; computed from the input of a
layer, against the same steps done by hand.
"""

from typing import NamedTuple

import pytest
import torch
from refusals import refused
from thorough import some
from torch import Tensor

from posenc import (
    CATALOG,
    FIRE,
    ALiBi,
    Block,
    Cache,
    DeBERTa,
    Kerple,
    LieRE,
    NoPE,
    RoPE,
    SelfAttention,
    Shaw,
    Sinusoidal,
    Sum,
    T5Bias,
    XPos,
    attend,
    axial,
    create,
    explain,
    masks,
)
from posenc.core.check_positions import checked_at
from posenc.core.encoding import Encoding
from posenc.core.positions import folded
from posenc.core.prepared import Prepared
from posenc.encodings.bias.falcon import FalconALiBi
from posenc.encodings.temperature import Temperature

# Positions for each head


def placed(encoding, pos, x):
    """Positions of an encoding that may read the input of the layer."""
    return encoding.on_hidden(x, encoding.prepare(pos))


INTO_ATTENTION = {
    card.slug: card.make for card in CATALOG if "on_embeddings" not in card.make(8, 4).acts_on
}
INTO_ATTENTION |= {
    "partial": lambda dim, heads: RoPE(4, dim=8, layout="half"),
    "axial": lambda dim, heads: RoPE(axial(8)),
    "one-axis": lambda dim, heads: LieRE(8, axes=1),
    "falcon": lambda dim, heads: FalconALiBi(4),
    "buckets": lambda dim, heads: DeBERTa(8, 4, reach=9, buckets=4),
    "far": lambda dim, heads: FIRE(4, length=2.0),
    "temperature": lambda dim, heads: Temperature(3),
    "sum": lambda dim, heads: Sum(RoPE(8), Sum(ALiBi(4), Shaw(8), Temperature(3))),
}
into_attention = pytest.mark.parametrize("make", INTO_ATTENTION.values(), ids=INTO_ATTENTION)


def wherever(encoding, *shape):
    return torch.randint(20, (*shape, *[encoding.axes] * (encoding.axes > 1)))


@into_attention
@pytest.mark.parametrize(("groups", "batch"), some([(1, 2), (1, 1), (4, 1), (4, 2)], 2))
@pytest.mark.parametrize("path", ["auto", "reference", "blocks"])
def test_every_encoding_takes_positions_for_each_head(make, groups, batch, path):
    """Head by head, all heads at the positions of that one; gradients too."""
    encoding, x = make(8, 4), torch.randn(2, 6, 32)
    learned = [weight for weight in encoding.parameters() if weight.requires_grad]
    q, k, v = (torch.randn(2, heads, 6, 8, requires_grad=True) for heads in (4, groups, groups))
    pos, k_pos = (wherever(encoding, n, 4, 6) for n in (batch, 1))
    outs = []

    def at(pos):
        return placed(encoding, pos, x)

    outs.append(attend(q, k, v, encoding, at(pos), at(k_pos), masks.causal(), None, path))
    each = [
        attend(q, k, v, encoding, at(pos[:, h]), at(k_pos[:, h]), masks.causal(), None, path)[:, h]
        for h in range(4)
    ]
    outs.append(torch.stack(each, 1))
    torch.testing.assert_close(*outs, atol=2e-5, rtol=1e-4)
    inputs = [q, k, v, *learned]
    grads = [torch.autograd.grad(out.sin().sum(), inputs, allow_unused=True) for out in outs]
    torch.testing.assert_close(*grads, atol=1e-4, rtol=1e-3)


@into_attention
@torch.no_grad()
def test_keys_that_heads_share_have_positions_for_each_of_them(make):
    """The expected positions are one row per query head: those of its key head."""
    encoding, x = make(8, 4), torch.randn(2, 6, 32)
    q, k, v = (torch.randn(2, heads, 6, 8) for heads in (4, 2, 2))
    k_pos = wherever(encoding, 2, 2, 6)
    each = k_pos.repeat_interleave(2, 1)
    if "on_hidden" in encoding.acts_on:  # it reads heads of the queries
        k_pos = each
    at = placed(encoding, wherever(encoding, 6), x)
    outs = [
        attend(q, k, v, encoding, at, placed(encoding, where, x), masks.causal())
        for where in (k_pos, each)
    ]
    torch.testing.assert_close(*outs)


@into_attention
@torch.no_grad()
def test_positions_for_each_head_can_be_cached(make):
    layer, x = SelfAttention(32, 4, make(8, 4), groups=2), torch.randn(2, 6, 32)
    pos, cache, outs = wherever(layer.encoding, 2, 4, 6), Cache(), []
    for piece in (slice(0, 4), slice(4, 5), slice(5, 6)):
        mask = masks.causal()
        outs.append(layer(x[:, piece], pos[:, :, piece], mask, cache=cache))
    whole = layer(x, pos, masks.causal())
    torch.testing.assert_close(torch.cat(outs, 1), whole, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("encoding", [ALiBi(4), T5Bias(4), Kerple(4)], ids=type)
def test_heads_that_all_stand_alike_have_a_strided_view(encoding):
    q, pos = torch.randn(1, 4, 200, 8), torch.arange(200)
    each = pos.expand(1, 4, 200)
    assert explain(q, q, q, encoding, each, mask=masks.causal()).path == "toeplitz"
    out = attend(q, q, q, encoding, each, mask=masks.causal())
    torch.testing.assert_close(out, attend(q, q, q, encoding, pos, mask=masks.causal()))
    moved = each + torch.arange(4).view(1, 4, 1) * torch.arange(200)
    assert explain(q, q, q, encoding, moved, mask=masks.causal()).path != "toeplitz"


def test_a_bias_alone_takes_positions_for_each_head():
    encoding, pos, k_pos = Kerple(4), torch.randint(9, (2, 4, 5)), torch.randint(9, (7,))
    bias = encoding(pos, k_pos)
    assert bias.shape == (2, 4, 5, 7)
    for head in range(4):
        expected = encoding(pos[:, head], k_pos)[:, head]
        torch.testing.assert_close(bias[:, head], expected)


@pytest.mark.parametrize("slug", [card.slug for card in CATALOG])
def test_what_is_added_to_embeddings_has_no_positions_for_each_head(slug, unchecked):
    encoding = create(slug, 8, 4)
    if "on_embeddings" not in encoding.acts_on:
        return
    pos = folded(5, encoding.axes)
    x, pos = torch.randn(2, 5, 32), pos.expand(2, 4, *pos.shape)
    with refused(ValueError, "(2, 4, 5)", "(batch, token)"):
        SelfAttention(32, 4, encoding)(x, pos)


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
    """Queries are multiplied by gates computed from the layer's input."""

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
    remedies = "`at = encoding.on_hidden(x, encoding.prepare(pos))`", "`SelfAttention`"
    for call in (attend, explain):
        with refused(TypeError, type(encoding).__name__, *remedies):
            call(q, q, q, encoding, given)
    at = encoding.prepare(torch.arange(5))
    with refused(TypeError, "Gated", *remedies):
        attend(q, q, q, encoding, at)
    at = encoding.on_hidden(torch.randn(2, 5, 32), at)
    assert attend(q, q, q, encoding, at).shape == q.shape
    assert checked_at(encoding, at, q, "`at`") == at


# Sizes


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        (RoPE(16), ["`dim`", 16, 8, "RoPE"]),
        (ALiBi(8), ["`heads`", 8, 4, "ALiBi"]),
        (Sinusoidal(64), ["`width`", 64, 32, "Sinusoidal"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_layer_refuses_every_part_of_a_sum_that_does_not_fit(encoding, says, depth):
    for _ in range(depth):
        encoding = Sum(NoPE(), encoding)
    for make in (SelfAttention, Block):
        with refused(ValueError, *says):
            make(32, 4, encoding)


def test_a_part_that_was_changed_afterwards_is_refused_too():
    encoding, q = Sum(NoPE(), Sum(ALiBi(4))), torch.randn(1, 2, 5, 8)
    with refused(ValueError, "ALiBi", 4, "`q`", 2):
        attend(q, q, q, encoding)


class Points(Encoding):
    """Acts on points of two axes, which it leaves to `prepare` of the base class."""

    axes = 2


def test_positions_in_the_shape_that_prepare_returns_are_checked_as_well(unchecked):
    """On another device, and one point for what are two tokens."""
    q = torch.randn(1, 2, 2, 8)
    with refused(ValueError, "`at`", "cpu", "meta"):
        attend(q, q, q, NoPE(), torch.arange(2, device="meta").view(1, 1, 2))
    with refused(ValueError, 1, 2):
        attend(q, q, q, Points(), torch.zeros(1, 1, 2))
    assert attend(q, q, q, Points(), torch.zeros(1, 1, 2, 2)).shape == q.shape


class Squared(Encoding):
    """An encoding of one's own, whose `prepare` returns what it likes."""

    def prepare(self, pos):
        return {"squares": pos**2}

    def on_queries(self, q, at):
        return q + at["squares"].unsqueeze(-1)


@pytest.mark.parametrize("at", [[0, 1, 2], range(3), torch.arange(3).numpy()], ids=type)
def test_positions_outside_of_a_tensor_are_refused_for_encodings_of_ones_own_too(at):
    q = torch.randn(1, 2, 3, 8)
    own = Squared()
    attend(q, q, q, own, own.prepare(torch.arange(3)))
    with refused(TypeError, "Squared", "prepare"):
        attend(q, q, q, own, at)
