"""FIRE by tiles in float32 against the definition in float64: output and all gradients."""

from copy import deepcopy

import pytest
import torch
from engine_threads import two_threads

from posenc import FIRE, attend, explain, masks
from posenc.attention.spacing import DiagonalBand
from posenc.biases import relative

HEADS, DIM, TOKENS, UNITS = 4, 8, 150, 8


def fresh(fire):
    """Leave the network as it is made: few of its units bend."""


def bending(fire):
    """Let each unit bend at another share."""
    fire.inner.weight.fill_(1.0)
    fire.inner.bias.copy_(-(torch.arange(UNITS) + 0.5) / UNITS)


def turned(fire):
    """Let half of the units be on below their knot, and one be constant."""
    bending(fire)
    fire.inner.weight[::2] *= -1
    fire.inner.bias[::2] *= -1
    fire.inner.weight[0] = 0


def flat(fire):
    """Set c to 0: all distances are alike."""
    fire.c.zero_()


def fire(network=fresh, length=40.0):
    encoding = FIRE(HEADS, length=length, hidden=UNITS)
    with torch.no_grad():
        network(encoding)
    return encoding


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[1]))


def heads(groups=HEADS, queries=TOKENS, batch=2):
    return numbers(batch, HEADS, queries, DIM), *numbers(2, batch, groups, TOKENS, DIM)


def outcomes(path, encoding, inputs, *places, sinks=None, **options):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    if sinks is not None:
        leaves.append(sinks.detach().clone().requires_grad_())
        options["sinks"] = leaves[-1]
    out = attend(*leaves[:3], encoding, *places, implementation=path, **options)
    factor = numbers(*out.shape).bfloat16().to(out.dtype)
    gradients = torch.autograd.grad((out * factor).sum(), [*leaves, *encoding.parameters()])
    return out.detach(), *gradients


def assert_as_defined(encoding, inputs, *places, sinks=None, **options):
    assert explain(*inputs, encoding, *places, **options).path == "toeplitz"
    ours = outcomes("toeplitz", encoding, inputs, *places, sinks=sinks, **options)
    exact = [x.double() for x in inputs]
    sinks = None if sinks is None else sinks.double()
    expected = outcomes(
        "reference", deepcopy(encoding).double(), exact, *places, sinks=sinks, **options
    )
    for mine, due in zip(ours, expected, strict=True):
        error = float((mine.double() - due).abs().max())
        assert error <= 1e-5 * max(1.0, float(due.abs().max()))


@pytest.mark.parametrize("groups", [HEADS, 2, 1])
@pytest.mark.parametrize("network", [fresh, bending, turned, flat])
def test_tiles_give_the_definition(network, groups):
    assert_as_defined(fire(network), heads(groups), mask=masks.causal())


@pytest.mark.parametrize(
    "mask", [None, masks.causal() & masks.window(30), masks.window(20)], ids=["all", "back", "both"]
)
def test_any_strip_of_pairs_is_seen(mask):
    assert_as_defined(fire(turned), heads(), mask=mask)


def test_queries_may_stand_anywhere():
    """Queries are the last tokens of a text whose positions start late, at steps of two."""
    k_at = 7 + 2 * torch.arange(TOKENS)
    at = k_at[-70:]
    assert_as_defined(fire(), heads(queries=70), at, k_at, mask=masks.causal(at, k_at))


def test_sinks_take_their_share():
    assert_as_defined(fire(), heads(2), mask=masks.causal(), sinks=numbers(HEADS, 1).flatten())


def test_16_bits_are_weighed_in_float32():
    inputs, encoding = [x.bfloat16() for x in heads()], fire(bending)
    ours = outcomes("toeplitz", encoding, inputs, mask=masks.causal())
    expected = outcomes("toeplitz", encoding, [x.float() for x in inputs], mask=masks.causal())
    for mine, due in zip(ours, expected, strict=True):
        assert float((mine.float() - due).norm()) <= 0.005 * float(due.norm())


def test_a_network_of_nan_is_not_hidden():
    """Against the definition: a unit that is NaN is neither on nor off."""
    encoding = fire()
    with torch.no_grad():
        encoding.inner.weight[3] = float("nan")
        assert attend(*heads(), encoding, mask=masks.causal()).isnan().any()


def test_units_beyond_the_distances_of_a_tile_are_left_out():
    """Held against the knots, (n + ½) / 8: each unit is on, bends, or begins beyond the tile."""
    tensors = fire(bending).factors(torch.arange(TOKENS - 1, -TOKENS, -1), torch.arange(TOKENS))
    band = DiagonalBand(TOKENS, TOKENS, -5, 10)
    tiled = relative.TiledRelative(band, 0, tensors, False)
    for tile in tiled.tiles:
        y = tensors[0][tiled.columns(tile)].max() * tensors[1][tile.rows].max()
        beyond = [n for n in range(UNITS) if (n + 0.5) / UNITS > y]
        on, bend = (x.tolist() for x in tiled.units[tile.rows.start, tile.keys.start])
        assert sorted([*on, *bend, *beyond]) == list(range(UNITS))


def test_few_units_bend_far_from_the_diagonal():
    """With knots at (n + ½) / 8, those of ψ(1) … ψ(128) lie below the distances of far keys."""
    tokens, encoding = 1024, fire(bending)
    tensors = encoding.factors(torch.arange(tokens - 1, -tokens, -1), torch.arange(tokens))
    band = DiagonalBand(tokens, tokens, 0, tokens - 1)
    tiled = relative.TiledRelative(band, 0, tensors, False)
    far = [tile for tile in tiled.tiles if tile.keys.stop <= tile.rows.start - relative.ROWS]
    assert far
    for tile in far:
        _, bend = tiled.units[tile.rows.start, tile.keys.start]
        assert len(bend) < UNITS / 2
    pairs = torch.zeros(tokens, tokens)
    for tile in tiled.tiles:
        pairs[tile.rows, tile.keys] += 1
    assert pairs.tril().equal(torch.ones(tokens, tokens).tril())


def test_threads_that_share_the_rows_give_what_one_gives(monkeypatch):
    inputs, encoding = heads(), fire(bending)
    one = outcomes("toeplitz", encoding, inputs, mask=masks.causal())
    with two_threads(monkeypatch):
        two = outcomes("toeplitz", encoding, inputs, mask=masks.causal())
    for mine, due in zip(two, one, strict=True):
        torch.testing.assert_close(mine, due, rtol=1e-4, atol=1e-4)
