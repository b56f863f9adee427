"""Keys that a cache holds transported past whole chunks, against the whole text at once.

Chunks are of four tokens here, so that a short text has several.
"""

import copy
import pickle

import pytest
import torch
from torch import nn

from posenc import ALiBi, Cache, PaTH, RoPE, SelfAttention, Sum, Wall, masks
from posenc.biases import transported_keys
from posenc.core.encoding import Encoding

WIDTH, HEADS, DIM, TOKENS = 32, 4, 8, 30
PARTS = {
    "PaTH": lambda: PaTH(WIDTH, HEADS),
    "Wall": lambda: Wall(WIDTH, HEADS),
    "turned": lambda: Sum(RoPE(DIM), PaTH(WIDTH, HEADS)),
    "with a bias": lambda: Sum(Wall(WIDTH, HEADS), ALiBi(HEADS)),
    "both": lambda: Sum(PaTH(WIDTH, HEADS), Wall(WIDTH, HEADS)),
}
every = pytest.mark.parametrize("name", PARTS)
causal = masks.causal()


@pytest.fixture(autouse=True)
def chunks_of_four(monkeypatch):
    monkeypatch.setattr(transported_keys, "CHUNK", 4)


def begun(name, groups=2, gate=None, **sizes):
    layer = SelfAttention(WIDTH, HEADS, PARTS[name](), groups, **sizes)
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.3)
    for part in layer.encoding.modules():
        if gate is not None and isinstance(part, PaTH | Wall):
            (part.strength if isinstance(part, PaTH) else part.gate).bias.data.fill_(gate)
    return layer, torch.randn(2, TOKENS, WIDTH), Cache()


def settled(cache):
    """Return the transported keys of each part of the encoding that has some."""
    (held,) = cache.held.values()
    return [at.past.shape[-2] for at in held.ats if hasattr(at, "past")]


def reads(layer, cache, x, *pieces, **how):
    """Read the next tokens of x in pieces of these sizes, then those that are left one by one."""
    start = cache.tokens
    pieces = [*pieces, *[1] * (x.shape[1] - start - sum(pieces))]
    out = [layer(some, cache=cache, **how) for some in x[:, start:].split(pieces, 1)]
    return torch.cat(out, 1)


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=2e-4, atol=2e-4)


@every
@pytest.mark.parametrize("gate", [None, -200.0, 0.0, 200.0])
@pytest.mark.parametrize("pieces", [(), (1, 5, 9), (TOKENS - 1,), (12, 12)], ids=str)
@torch.no_grad()
def test_each_token_has_what_it_has_in_the_whole_text(name, gate, pieces):
    layer, x, cache = begun(name, gate=gate)
    close(reads(layer, cache, x, *pieces, mask=causal), layer(x, mask=causal))
    assert {*settled(cache)} == {24}  # whole chunks, and the last four tokens stay as they are


@every
@torch.no_grad()
def test_a_cache_is_cropped_to_any_length_and_goes_on(name):
    layer, x, cache = begun(name)
    expected = layer(x, mask=causal)
    reads(layer, cache, x, 20, mask=causal)
    for left, kept in ((28, 24), (24, 24), (23, 0), (9, 0), (0, 0)):
        branch = copy.copy(cache)
        branch.crop(left)
        assert {*settled(branch)} == {kept}
        close(reads(layer, branch, x, 2, mask=causal), expected[:, left:])
        assert {*settled(branch)} == {24}
    assert {*settled(cache)} == {24}


@every
@torch.no_grad()
def test_it_is_reordered_copied_pickled_and_moved(name):
    layer, x, cache = begun(name)
    reads(layer, cache, x[:, :20], 15, mask=causal)
    texts = torch.tensor([1, 1, 0])
    expected = layer(x[texts], mask=causal)[:, 20:]
    changes = [copy.copy, lambda held: held.to("cpu")]
    for change in changes:
        branch = change(cache)
        branch.reorder(texts)
        close(reads(layer, branch, x[texts], mask=causal), expected)
    twin, branch = pickle.loads(pickle.dumps((layer, cache)))
    branch.reorder(texts)
    close(reads(twin, branch, x[texts], mask=causal), expected)
    close(reads(layer, cache, x, mask=causal), layer(x, mask=causal)[:, 20:])


MASKS = {
    "documents": causal & masks.documents(torch.arange(TOKENS) // 9),
    "a window": causal & masks.window(7),
    "padding": causal & masks.padding([TOKENS - 8, TOKENS], "left", TOKENS),
}


@every
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("mask", MASKS)
@torch.no_grad()
def test_masks_and_softcaps_are_those_of_the_whole_text(name, mask, softcap):
    layer, x, cache = begun(name, softcap=softcap)
    seen, expected = MASKS[mask], layer(x, mask=MASKS[mask])
    so_far = lambda b, h, i, j: seen(b, h, i, j)  # noqa: E731 of as many tokens as there are
    close(reads(layer, cache, x, mask=so_far), expected)
    assert {*settled(cache)} == {24}


@every
def test_gradients_flow_through_carried_keys(name):
    layer, x, cache = begun(name)
    wanted = torch.autograd.grad(layer(x, mask=causal).square().sum(), [*layer.parameters()])
    out = reads(layer, cache, x, 9, 1, 1, 9, mask=causal)
    for ours, expected in zip(
        torch.autograd.grad(out.square().sum(), [*layer.parameters()]), wanted, strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["PaTH", "Wall"])
@torch.no_grad()
def test_carried_keys_are_as_exact_as_scores(name, dtype):
    layer, x, cache = begun(name)
    reads(layer.to(dtype), cache, x.to(dtype), mask=causal)
    (held,) = cache.held.values()
    assert held.ats[0].past.dtype is torch.promote_types(dtype, torch.float32)


class Copies(Encoding):
    """Gives each head of the queries its own key, so that a cache holds keys as projected."""

    def on_keys(self, k, at):
        return k.repeat_interleave(HEADS // k.shape[1], 1)


@torch.no_grad()
def test_keys_that_are_encoded_again_in_every_call_are_not_carried():
    layer, x, cache = begun("PaTH")
    layer.encoding = Sum(layer.encoding, Copies())
    close(reads(layer, cache, x, 20, mask=causal), layer(x, mask=causal))
    assert settled(cache) == [0]
