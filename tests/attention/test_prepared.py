"""Results of `prepare` after writes: against the result before them, and against a fresh one.

A later write to any tensor, such as an optimiser's step, must not change the result silently.
"""

import copy

import pytest
import torch
from refusals import refused
from torch import nn
from torch.utils._pytree import tree_leaves

from posenc import (
    CATALOG,
    ALiBi,
    Cache,
    DeBERTa,
    Learned,
    Mixed,
    NoPE,
    RoPE,
    SelfAttention,
    Shaw,
    Sinusoidal,
    Sum,
    T5Bias,
    TransformerXL,
    XPos,
    attend,
    axial,
    frequencies,
    masks,
)
from posenc.core.positions import folded
from posenc.encodings.temperature import Temperature

every = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
EXTRA = [Temperature(4), Sum(RoPE(8), ALiBi(4)), Sum(NoPE(), Sum(TransformerXL(8, 4)))]


def used(encoding, at):
    """All that the hooks make of it."""
    torch.manual_seed(1)
    q, x = torch.randn(1, 4, 6, 8), torch.randn(1, 6, 32)
    embedded = encoding.on_embeddings(x, at)
    return embedded, attend(q, q, q, encoding, encoding.on_hidden(x, at), mask=masks.causal())


@every
def test_positions_written_to_afterwards_change_nothing(card):
    encoding = card.make(8, 4)
    pos = folded(6, encoding.axes)
    at, before = encoding.prepare(pos), pos.clone()
    expected = used(encoding, at)
    pos += 3
    for made, was in zip(used(encoding, at), expected, strict=True):
        torch.testing.assert_close(made, was, rtol=0, atol=0)
    assert not pos.equal(before)


@pytest.mark.parametrize("encoding", EXTRA, ids=type)
def test_nor_do_they_in_sums(encoding):
    pos = torch.arange(6)
    at = encoding.prepare(pos)
    expected = used(encoding, at)[1]
    pos.mul_(7)
    assert used(encoding, at)[1].equal(expected)


@every
def test_what_was_prepared_is_not_the_positions(card):
    encoding = card.make(8, 4)
    for dtype in (torch.int64, torch.int32, torch.float64):
        if dtype.is_floating_point and card.slug in ("learned", "binary"):
            continue  # by whole numbers only
        pos = folded(6, encoding.axes).to(dtype)
        own = {x.untyped_storage().data_ptr() for x in tree_leaves(encoding.prepare(pos))}
        assert pos.untyped_storage().data_ptr() not in own


SERVED = {card.slug: card.make for card in CATALOG} | {
    "rope in halves": lambda dim, heads: RoPE(dim, layout="half"),
    "rope that learns": lambda dim, heads: RoPE(dim, learned=True),
    "sum": lambda dim, heads: Sum(RoPE(dim), ALiBi(heads), Temperature(heads)),
}


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize(
    ("made", "used"),
    [
        (torch.inference_mode, torch.inference_mode),
        (torch.inference_mode, torch.no_grad),
        (torch.no_grad, torch.inference_mode),
    ],
)
def test_in_inference_mode_a_layer_says_the_same_and_learns_as_before(made, used, name):
    layer = SelfAttention(32, 4, SERVED[name](8, 4))
    fresh, x, pos = copy.deepcopy(layer), torch.randn(1, 6, 32), folded(6, layer.encoding.axes)
    expected = fresh(x, pos, masks.causal())
    with made():
        at, cache = layer.prepare(x, pos.clone()), Cache()
        if not layer.encoding.by_length:  # the encoding does not support a cache
            first = layer(x[:, :4], pos[:4], masks.causal(), cache=cache)
    with used():
        embedded = layer.encoding.on_embeddings(x, at)
        torch.testing.assert_close(layer.attended(embedded, at, masks.causal()), expected)
        if not layer.encoding.by_length:
            rest = layer(x[:, 4:], pos[4:], masks.causal(), cache=cache)
            torch.testing.assert_close(torch.cat((first, rest), 1), expected)
    layer(x, pos, masks.causal()).square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip(layer.parameters(), fresh.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_cos_and_sin_that_were_written_to_are_taken_as_they_are(layout):
    """Beside them lies the same in another form, which nobody wrote to."""
    rope, q = RoPE(64, layout=layout), torch.randn(1, 2, 9, 64)
    at = rope.prepare(torch.arange(9))
    at.cos.zero_()
    at.sin.fill_(1.0)
    quarter = RoPE(torch.full((32,), torch.pi / 2, dtype=torch.float64), layout=layout)
    expected = quarter.on_queries(q, quarter.prepare(torch.ones(9, dtype=torch.long)))
    torch.testing.assert_close(rope.on_queries(q, at), expected, rtol=1e-6, atol=1e-6)


def test_rows_of_a_table_are_looked_up_when_they_are_added():
    encoding, x = Learned(8, 4), torch.zeros(1, 3, 4)
    at = encoding.prepare(torch.tensor([5, 0, 5]))
    for _ in range(2):  # a step in between, and the graph of the first is gone
        encoding.on_embeddings(x, at).sum().backward()
        torch.optim.SGD(encoding.parameters(), lr=0.5).step()
        assert encoding.on_embeddings(x, at)[0].equal(encoding.table[[5, 0, 5]])


THETA = frequencies(8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RoPE(nn.Parameter(THETA.clone())),
        lambda: RoPE(THETA, learned=True),
        lambda: RoPE(THETA, learned=True, layout="half"),
        lambda: XPos(nn.Parameter(THETA.clone())),
        lambda: Mixed(8, 4),
        lambda: Sum(NoPE(), Sum(RoPE(THETA, learned=True))),
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_angles_are_those_of_the_frequencies_when_they_were_prepared(make, gradients):
    encoding, q = make(), torch.randn(1, 4, 6, 8)
    pos = folded(6, encoding.axes)
    with torch.set_grad_enabled(gradients):
        at = encoding.prepare(pos)
        first = attend(q, q, q, encoding, at)
    step = torch.optim.SGD(encoding.parameters(), lr=0.1)
    attend(q, q, q, encoding, encoding.prepare(pos)).square().sum().backward()
    step.step()
    assert attend(q, q, q, encoding, at).equal(first)
    assert not attend(q, q, q, encoding, encoding.prepare(pos)).equal(first)


@every
def test_positions_are_given_by_name_too(card):
    encoding = card.make(8, 4)
    pos = 3 + folded(5, encoding.axes)
    x, q = torch.randn(1, 5, 32), torch.randn(1, 4, 5, 8)
    if "on_embeddings" in encoding.acts_on:
        assert encoding(x, pos=pos).equal(encoding(x, pos))
    elif encoding.acts_on == ("on_scores",) and card.slug not in (
        "deberta",
        "cope",
        "transformer-xl",
        "rerope",
        "grape-a",
        "mvitv2",
    ):
        assert encoding(pos=pos).equal(encoding(pos))
    elif encoding.acts_on == ("on_queries", "on_keys"):
        for by_name, by_place in zip(encoding(q, q, pos=pos), encoding(q, q, pos), strict=True):
            assert by_name.equal(by_place)


@every
def test_bare_positions_are_what_prepare_makes_of_them(card):
    encoding, q = card.make(8, 4), torch.randn(2, 4, 5, 8)
    for pos in (3 + folded(5, encoding.axes), 2 * folded(5, encoding.axes).int()):
        if "on_embeddings" in encoding.acts_on:
            with refused(ValueError, "`x = encoding.on_embeddings(x, at)`"):
                attend(q, q, q, encoding, pos)
            continue
        if "on_hidden" in encoding.acts_on:
            with refused(TypeError, "`at = encoding.on_hidden(x, encoding.prepare(pos))`"):
                attend(q, q, q, encoding, pos)
            continue
        expected = attend(q, q, q, encoding, encoding.prepare(pos), mask=masks.causal())
        assert attend(q, q, q, encoding, pos, mask=masks.causal()).equal(expected)
        batch = torch.stack((pos, pos + 1))
        expected = attend(q, q, q, encoding, encoding.prepare(batch), encoding.prepare(pos))
        assert attend(q, q, q, encoding, batch, pos).equal(expected)


def test_bare_positions_of_a_sum_are_prepared_by_each_part():
    encoding, q, pos = (
        Sum(RoPE(8), Sum(ALiBi(4), Shaw(8))),
        torch.randn(1, 4, 5, 8),
        torch.arange(5),
    )
    assert attend(q, q, q, encoding, pos).equal(attend(q, q, q, encoding, encoding.prepare(pos)))


def test_an_encoding_of_your_own_may_prepare_a_tensor():
    class Louder(NoPE):
        def prepare(self, pos):
            return 1 + pos.double()

        def on_queries(self, q, at):
            return (q * at.unsqueeze(-1)).to(q.dtype)

    q, pos = torch.randn(1, 4, 5, 8), torch.arange(5)
    own = Louder()
    torch.testing.assert_close(
        attend(q, q, q, own, own.prepare(pos)), attend(q * (1 + pos).view(5, 1), q, q, NoPE())
    )


# What acts on embeddings


def test_attend_takes_what_was_added_and_refuses_what_was_not():
    encoding, x = Sum(Sinusoidal(32), RoPE(8)), torch.randn(1, 5, 32)
    at = encoding.prepare(torch.arange(5))
    q = encoding.on_embeddings(x, at).unflatten(-1, (4, 8)).transpose(1, 2)
    assert attend(q, q, q, encoding, at).equal(attend(q, q, q, RoPE(8)))
    with refused(ValueError, "Sum", "`x = encoding.on_embeddings(x, at)`"):
        attend(q, q, q, encoding)


def test_one_instance_in_two_layers_is_said_once_it_is_added_twice():
    wave = Sinusoidal(32)
    bottom = SelfAttention(32, 4, wave)
    with pytest.warns(UserWarning, match="two layers .* `NoPE"):
        above = SelfAttention(32, 4, wave)
    assert above.encoding is bottom.encoding
    SelfAttention(32, 4, Sinusoidal(32))  # its own: on purpose
    rope = RoPE(8)
    assert len({SelfAttention(32, 4, rope), SelfAttention(32, 4, rope)}) == 2  # turned in each
    del above, bottom
    SelfAttention(32, 4, wave)


# Weights without values


@pytest.mark.parametrize(
    "encoding",
    [Shaw(8), T5Bias(4), DeBERTa(8, 4), TransformerXL(8, 4), Sum(NoPE(), Sum(T5Bias(4)))],
    ids=type,
)
def test_weights_left_on_meta_are_refused(encoding):
    encoding, q, pos = encoding.to("meta"), torch.randn(1, 4, 5, 8), torch.arange(5)
    with refused(ValueError, "meta"):
        attend(q, q, q, encoding, encoding.prepare(pos))
    if isinstance(encoding, T5Bias):
        with refused(ValueError, "meta"):
            encoding(pos)
    on_meta = q.to("meta")
    at = encoding.prepare(pos.to("meta"))
    assert attend(on_meta, on_meta, on_meta, encoding, at).is_meta


def test_tables_and_frequencies_left_on_meta_are_refused():
    with refused(ValueError, "meta"):
        Learned(8, 4).to("meta")(torch.zeros(1, 3, 4))
    for encoding in (RoPE(8, learned=True), Mixed(8, 4), RoPE(nn.Parameter(axial(8)))):
        with refused(ValueError, "meta"):
            encoding.to("meta").prepare(folded(5, encoding.axes))
