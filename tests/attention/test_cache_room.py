"""Room behind the keys and values of a cache, against the whole text, and copies kept aside.

A token is written behind those before it. Whoever holds what came before, a copy of the cache, a
view of its keys or a graph of gradients, finds it as it was.
"""

import copy
import pickle
from itertools import pairwise

import pytest
import torch

from posenc import (
    ALiBi,
    Cache,
    FoX,
    NoPE,
    RoPE,
    SelfAttention,
    Shaw,
    Sum,
    T5Bias,
    TransformerXL,
    masks,
)
from posenc.attention.cache import SMALLEST_BUFFER

WIDTH, DIM, HEADS, TOKENS = 32, 8, 4, 12
MAKE = {
    "nope": NoPE,
    "rope": lambda: RoPE(DIM),
    "alibi": lambda: ALiBi(HEADS),
    "t5": lambda: T5Bias(HEADS),
    "shaw": lambda: Shaw(DIM, reach=3),
    "transformer-xl": lambda: TransformerXL(DIM, HEADS),
    "fox": lambda: FoX(WIDTH, HEADS),
    "sum": lambda: Sum(RoPE(DIM), ALiBi(HEADS)),
}
each = pytest.mark.parametrize("name", MAKE)
causal = masks.causal()


def begun(name, tokens=TOKENS, first=3):
    """A layer, a text in a batch of two, and a cache of its first tokens, the last of one call."""
    layer, x = SelfAttention(WIDTH, HEADS, MAKE[name](), groups=2), torch.randn(2, tokens, WIDTH)
    cache = Cache()
    for some in (x[:, : first - 1], x[:, first - 1 : first]):
        layer(some, mask=causal, cache=cache)
    return layer, x, cache


def tokens_after(layer, x, cache):
    """Return the outputs of the tokens of x that are not cached yet, one by one."""
    later = x[:, cache.tokens :].split(1, 1)
    return torch.cat([layer(one, mask=causal, cache=cache) for one in later], 1)


def check_goes_on(layer, x, cache):
    start = cache.tokens
    whole = layer(x, mask=causal)[:, start:]
    torch.testing.assert_close(tokens_after(layer, x, cache), whole, rtol=1e-4, atol=1e-5)


def changed(x, tokens):
    """The same first tokens, then others."""
    return torch.cat((x[:, :tokens], torch.randn_like(x[:, tokens:])), 1)


class Aside:
    """Views of what a cache holds of a layer, and what they said when they were taken."""

    def __init__(self, cache, layer):
        held = cache.held[layer]
        self.views = held.k, held.v
        self.said = [view.clone() for view in self.views]

    def check(self):
        torch.testing.assert_close(self.views, (*self.said,), rtol=0, atol=0)


@each
@torch.no_grad()
def test_a_token_is_written_behind_those_before_it(name):
    """A full cache doubles its room, so keys and values move twice, as their addresses show."""
    tokens = 3 * SMALLEST_BUFFER
    layer, x, cache = begun(name, tokens)
    places = []
    for one in x[:, 3:].split(1, 1):
        layer(one, mask=causal, cache=cache)
        places.append((cache.held[layer].k.data_ptr(), cache.held[layer].v.data_ptr()))
    moves = sum(before != after for before, after in pairwise(places))
    assert moves == 2


@each
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@torch.no_grad()
def test_neither_a_branch_nor_what_it_came_from_writes_into_the_other(name, copied):
    layer, x, cache = begun(name)
    for first in ("branch", "cache"):
        branch, aside = copied(cache), Aside(cache, layer)
        in_turn = [(branch, changed(x, 3)), (copied(cache), changed(x, 3))]
        for one, text in in_turn if first == "branch" else in_turn[::-1]:
            check_goes_on(layer, text, one)
        aside.check()
    branches = [copied(cache), cache, copied(cache)]
    texts = [changed(x, 3) for _ in branches]
    wholes = [layer(text, mask=causal) for text in texts]
    for n in range(3, TOKENS):
        for branch, text, whole in zip(branches, texts, wholes, strict=True):
            out = layer(text[:, n : n + 1], mask=causal, cache=branch)
            torch.testing.assert_close(out, whole[:, n : n + 1], rtol=1e-4, atol=1e-5)
    aside.check()


CHANGES = {
    "cropped": lambda cache: cache.crop(2),
    "cropped to none": lambda cache: cache.crop(0),
    "cropped by nothing": lambda cache: cache.crop(cache.tokens),
    "reordered": lambda cache: cache.reorder(torch.tensor([1, 0])),
}


@each
@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_views_from_before_a_change_stay_as_they_were(name, change):
    layer, x, cache = begun(name, first=5)
    aside, moved = Aside(cache, layer), cache.to("cpu")
    CHANGES[change](cache)
    x_now = x[[1, 0]] if change == "reordered" else x
    for text in (changed(x_now, cache.tokens), x_now):
        check_goes_on(layer, text, copy.copy(cache))
    check_goes_on(layer, changed(x_now, cache.tokens), cache)
    check_goes_on(layer, x, moved)
    aside.check()


@each
def test_gradients_of_a_view_are_those_of_the_tokens_that_it_had(name):
    """The cache is written to before `backward`; torch does not count a write to the view."""
    layer, x, cache = begun(name)
    with torch.no_grad():
        layer(x[:, 3:4], mask=causal, cache=cache)
    keys, weight = cache.held[layer].k, torch.randn(DIM, requires_grad=True)
    expected = keys.sum((0, 1, 2)).detach()
    total = (keys.detach() * weight).sum()
    with torch.no_grad():
        tokens_after(layer, x, cache)
    total.backward()
    torch.testing.assert_close(weight.grad, expected)


@each
def test_gradients_flow_through_tokens_that_follow_others_without(name):
    """Some tokens without gradients, some with, and some without: against a cache copied afresh."""
    layer, x, _ = begun(name)
    grads = []
    for fresh in (False, True):
        cache = Cache()
        with torch.no_grad():
            for one in x[:, :4].split(1, 1):
                layer(one, mask=causal, cache=cache)
        if fresh:
            layer, cache = pickle.loads(pickle.dumps((layer, cache)))
        outs = [layer(one, mask=causal, cache=cache) for one in x[:, 4:8].split(1, 1)]
        with torch.no_grad():
            tokens_after(layer, x, cache)
        grads.append(torch.autograd.grad(torch.cat(outs, 1).square().sum(), layer.parameters()))
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


@each
@torch.no_grad()
def test_empty_room_is_never_read(name, monkeypatch):
    """New memory is filled with NaN, which would be in every token that had seen some of it."""
    empty = torch.Tensor.new_empty
    filled = lambda x, *size, **how: empty(x, *size, **how).fill_(float("nan"))  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "new_empty", filled)
    layer, x, cache = begun(name)
    check_goes_on(layer, x, copy.copy(cache))
    check_goes_on(layer, x, cache)
    assert cache.held[layer].k.isfinite().all()


@each
@torch.no_grad()
def test_a_pickle_has_the_tokens_and_no_room(name):
    layer, x, cache = begun(name, first=6)
    cache.crop(4)
    tokens_after(layer, x[:, :5], cache)
    branch = pickle.loads(pickle.dumps((layer, cache)))[1]
    (held,) = branch.held.values()
    for tensor in (held.k, held.v):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    assert branch.tokens == 5
    check_goes_on(layer, x, cache)


@each
def test_a_cache_goes_into_inference_mode_and_out_of_it(name):
    layer, x, _ = begun(name)
    layer.requires_grad_(False)
    whole = layer(x, mask=causal)
    modes = [torch.inference_mode, torch.no_grad, torch.enable_grad] * 2
    for first in range(3):
        cache = Cache()
        for n, one in enumerate(x.split(1, 1)):
            with modes[first + n % 3]():
                out = layer(one, mask=causal, cache=cache)
            torch.testing.assert_close(out, whole[:, n : n + 1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_keys_of_more_digits_are_not_rounded_into_room_of_fewer():
    layer, x, cache = begun("nope")
    layer, x = layer.double(), x.double()
    tokens_after(layer, x, cache)
    keys = layer.k(x).unflatten(-1, (2, DIM)).transpose(1, 2)
    torch.testing.assert_close(cache.held[layer].k[:, :, 3:], keys[:, :, 3:], rtol=0, atol=1e-12)
