"""A text in pieces with a cache, against the whole text at once."""

from typing import NamedTuple

import pytest
import torch
from refusals import refused
from torch import Tensor

from posenc import (
    CATALOG,
    ALiBi,
    Block,
    DeBERTa,
    NoPE,
    Normalized,
    RoPE,
    SelfAttention,
    Shaw,
    Sinusoidal,
    Sum,
    T5Bias,
    attend,
    masks,
)
from posenc.attention.cache import Cache, attend_cached, of_last
from posenc.core.biases import pairs
from posenc.core.encoding import Encoding
from posenc.core.positions import documents, folded, packed, padded
from posenc.core.prepared import Prepared
from posenc.encodings.temperature import Temperature


class Sums(Prepared, NamedTuple("Sums", [("sums", Tensor)])):
    """Running sums of gates, (batch, token), which go on from the last."""

    shape = "token"

    def append(self, more):
        return Sums(torch.cat((self.sums, more.sums + self.sums[:, -1:]), -1))


class Forgetful(Encoding):
    """Gates computed from the layer's input lower scores; their sum scales queries and output."""

    prepared = Sums

    def on_hidden(self, x, at):
        return Sums(x.mean(-1).sigmoid().cumsum(-1))

    def on_queries(self, q, at):
        return q * at.sums[:, None, :, None]

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: k_at.sums[b, j] - q_at.sums[b, i]

    def on_values(self, v, at):
        return v * at.sums[:, None, :, None]

    def on_output(self, out, at):
        return out / at.sums[:, None, :, None]


SUMS = [
    lambda: Sum(),
    lambda: Sum(RoPE(8), ALiBi(4)),
    Forgetful,
    lambda: Sum(RoPE(8), Sum(ALiBi(4), Forgetful())),
    lambda: Sum(Sinusoidal(32), Sum(Shaw(8), Sum(Temperature(3), Shaw(8)))),
]
# A position of `Normalized` is a share of the length: with it, a cache is refused.
EVERY = {card.slug: card.make for card in CATALOG if card.slug != "normalized"}
EVERY |= {f"sum-{n}": lambda dim, heads, make=make: make() for n, make in enumerate(SUMS)}
every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
TOKENS = 11
PIECES = [1] * TOKENS, [7, 1, 1, 1, 1], [4, 5, 2]


def in_pieces(layer, x, pos, mask_of, sizes):
    """Each piece with the mask of the text so far."""
    cache, outs = Cache(), []
    for size in sizes:
        start = cache.tokens
        some = slice(start, start + size)
        text = slice(0, start + size)
        here = pos[some] if layer.encoding.axes > 1 or pos.ndim == 1 else pos[:, some]
        outs.append(layer(x[:, some], here, mask_of(text), cache=cache))
    assert cache.tokens == TOKENS
    return torch.cat(outs, 1)


@every
@pytest.mark.parametrize("groups", [4, 2])
@torch.no_grad()
def test_a_text_in_pieces_is_the_whole_text(make, groups):
    layer = SelfAttention(32, 4, make(8, 4), groups)
    x, pos = torch.randn(2, TOKENS, 32), folded(TOKENS, layer.encoding.axes)
    whole = layer(x, pos, masks.causal())
    for sizes in PIECES:
        pieces = in_pieces(layer, x, pos, lambda text: masks.causal(), sizes)
        torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-5)
    if layer.encoding.axes == 1:  # and so without positions
        cache = Cache()
        outs = [layer(one, mask=masks.causal(), cache=cache) for one in x.split(1, 1)]
        torch.testing.assert_close(
            torch.cat(outs, 1), layer(x, mask=masks.causal()), atol=1e-5, rtol=1e-4
        )


@every
@torch.no_grad()
def test_packed_documents_stay_apart(make):
    layer = SelfAttention(32, 4, make(8, 4))
    lengths = [5, 6]
    if layer.encoding.axes > 1:
        pos = torch.cat([folded(n, layer.encoding.axes) for n in lengths])
    else:
        pos = packed(lengths)
    x, ids = torch.randn(2, TOKENS, 32), documents(lengths)
    whole = layer(x, pos, masks.documents(ids) & masks.causal())
    for sizes in PIECES[1:]:
        pieces = in_pieces(
            layer, x, pos, lambda text: masks.documents(ids[text]) & masks.causal(), sizes
        )
        torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-5)


@every
@torch.no_grad()
def test_left_padding_is_no_part_of_the_text(make):
    layer = SelfAttention(32, 4, make(8, 4))
    if layer.encoding.axes > 1 or "on_hidden" in layer.encoding.acts_on:
        pytest.skip("a text has one axis, and a gate is of every token, filling too")
    lengths = [11, 8]
    pos, x = padded(lengths, "left"), torch.randn(2, TOKENS, 32)
    alone = layer(x[1:, 3:], mask=masks.causal())
    filling = torch.tensor([0, 3])

    def mask_of(text):
        tokens = text.stop
        real = lambda b, h, i, j: j >= filling[b]  # noqa: E731
        return masks.causal() & real if tokens else None

    pieces = in_pieces(layer, x, pos, mask_of, [7, 1, 1, 1, 1])
    torch.testing.assert_close(pieces[1:, 3:], alone, rtol=1e-4, atol=1e-5)


def test_rotated_keys_are_kept_rotated():
    layer, x, cache = SelfAttention(32, 4, RoPE(8), groups=2), torch.randn(1, 5, 32), Cache()
    layer(x[:, :3], cache=cache)
    layer(x[:, 3:], cache=cache)
    keys = layer.k(x).unflatten(-1, (2, 8)).transpose(1, 2)
    expected = RoPE(8)(keys, keys, torch.arange(5))[1]
    torch.testing.assert_close(cache.held[layer].k, expected)
    assert cache.held[layer].ats == [None]  # and no table of theirs


def test_one_cache_serves_a_stack_of_layers():
    layers, x, cache = (
        [SelfAttention(32, 4, RoPE(8)) for _ in range(3)],
        torch.randn(1, 5, 32),
        Cache(),
    )
    assert cache.tokens == 0
    whole = x
    for layer in layers:
        whole = layer(whole, mask=masks.causal())
    for n in range(5):
        one = x[:, n : n + 1]
        for layer in layers:
            one = layer(one, mask=masks.causal(), cache=cache)
        torch.testing.assert_close(one, whole[:, n : n + 1])
    assert cache.tokens == 5


@pytest.mark.parametrize("name", ["rope", "transformer-xl", "alibi", "sum-1", "sum-4"])
def test_a_cache_is_moved(name):
    encoding = EVERY[name](8, 4)
    layer, x = SelfAttention(32, 4, encoding), torch.randn(1, 4, 32)
    pos, cache = folded(4, encoding.axes), Cache()
    layer(x, pos, cache=cache)
    assert cache.to("cpu").tokens == 4
    layer.to("meta")
    moved = cache.to("meta")
    assert layer(x.to("meta")[:, :1], pos[:1].to("meta"), cache=moved).is_meta
    assert (cache.tokens, moved.tokens) == (4, 5)


def test_gradients_flow_through_a_cache():
    layer, x, cache = SelfAttention(32, 4, Sum(RoPE(8), ALiBi(4))), torch.randn(1, 6, 32), Cache()
    x.requires_grad_()
    whole = torch.autograd.grad(layer(x, mask=masks.causal()).square().sum(), x)[0]
    outs = [layer(one, mask=masks.causal(), cache=cache) for one in x.split(2, 1)]
    torch.testing.assert_close(torch.autograd.grad(torch.cat(outs, 1).square().sum(), x)[0], whole)


def test_says_what_does_not_fit(unchecked):
    layer, cache = SelfAttention(32, 4, NoPE()), Cache()
    layer(torch.randn(2, 3, 32), cache=cache)
    with refused(ValueError, "`cache`", 2, "`x`", 1):
        layer(torch.randn(1, 1, 32), cache=cache)
    with refused(TypeError, "`cache`", "`posenc.Cache`"):
        layer(torch.randn(1, 1, 32), cache=[])
    with refused(ValueError, 1, 4):
        layer(torch.randn(2, 1, 32), mask=masks.documents(torch.zeros(1).long()), cache=cache)


@torch.no_grad()
def test_caps_and_sinks_are_those_of_the_layer():
    layer = SelfAttention(32, 4, Sum(RoPE(8), ALiBi(4)), softcap=2.0, sinks=True)
    layer.sinks.copy_(torch.randn(4))
    x, cache = 3 * torch.randn(2, 6, 32), Cache()
    outs = [layer(one, mask=masks.causal(), cache=cache) for one in x.split([3, 1, 2], 1)]
    torch.testing.assert_close(torch.cat(outs, 1), layer(x, mask=masks.causal()))


class Counting(RoPE):
    """RoPE that counts the keys that it has turned."""

    keys = 0

    def on_keys(self, k, at):
        self.keys += k.shape[-2]
        return super().on_keys(k, at)


@torch.no_grad()
def test_the_keys_of_a_prompt_are_encoded_once():
    """One token shows whether keys keep their shape, without encoding the whole prompt twice."""
    encoding = Counting(8)
    layer, cache = SelfAttention(32, 4, encoding), Cache()
    layer(torch.randn(2, TOKENS, 32), cache=cache)
    assert encoding.keys == TOKENS + 1
    layer(torch.randn(2, 1, 32), cache=cache)
    assert encoding.keys == TOKENS + 2


@pytest.mark.parametrize("encoding", [DeBERTa(8, 2, reach=4), T5Bias(2), Shaw(8)], ids=repr)
def test_a_step_of_an_optimiser_between_two_tokens_is_seen(encoding):
    """Compare with attention to all tokens at once, without a cache."""
    layer, cache, pos = torch.nn.Identity(), Cache(), torch.arange(12)
    q, k, v = torch.randn(3, 1, 2, 12, 8).unbind()
    with torch.no_grad():
        for n in range(12):
            now = slice(n, n + 1)
            parts = (x[:, :, now] for x in (q, k, v))
            at = encoding.prepare(pos[now])
            out = attend_cached(layer, cache, *parts, encoding, at, masks.causal())
            seen = (x[:, :, : n + 1] for x in (k, v))
            k_at = encoding.prepare(pos[: n + 1])
            expected = attend(q[:, :, now], *seen, encoding, at, k_at, implementation="reference")
            torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
            if n == 8:
                for x in encoding.parameters():
                    x.data.mul_(1.5)


@torch.no_grad()
@pytest.mark.parametrize("groups", [4, 2])
def test_an_empty_batch_decodes(groups):
    layer, cache = SelfAttention(32, 4, RoPE(8), groups), Cache()
    for tokens in (5, 1, 1):
        out = layer(torch.zeros(0, tokens, 32), mask=masks.causal(), cache=cache)
        assert out.shape == (0, tokens, 32)


@pytest.mark.parametrize("encoding", [Normalized(32), Normalized(32, "N-1"), "in a sum"], ids=str)
@pytest.mark.parametrize("kind", [SelfAttention, Block])
def test_an_encoding_of_the_length_is_refused_with_a_cache(kind, encoding):
    """Reading the first tokens would give each another code than the whole text does."""
    encoding = Sum(Normalized(32), ALiBi(4)) if encoding == "in a sum" else encoding
    layer, x, cache = kind(32, 4, encoding), torch.randn(1, 3, 32), Cache()
    with refused(ValueError, "`cache`", "None", "Normalized"):
        layer(x, cache=cache)
    assert cache.tokens == 0
    assert layer(x).shape == x.shape


def test_the_mask_of_last_queries_is_made_only_where_it_hides_something():
    """A decoded token sees all before it; two hide one key, and padding stays."""
    assert of_last(masks.causal(), 4, 5, 1) is None
    two = of_last(masks.causal(), 3, 5, 1)
    assert two(*pairs((1, 1, 2, 5))).squeeze().tolist() == [[True] * 4 + [False], [True] * 5]
    left = of_last(masks.padding([2], "left", 5), 4, 5, 1)
    assert left(*pairs((1, 1, 1, 5))).squeeze().tolist() == [False] * 3 + [True] * 2
