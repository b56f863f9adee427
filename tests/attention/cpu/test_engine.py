"""Held against the formula in float64: biases that only describe their tiles."""

import copy
import itertools

import pytest
import torch
from engine_threads import two_threads

from posenc import FIRE, ALiBi, DeBERTa, Shaw, T5Bias, TransformerXL, attend, masks
from posenc.attention.cpu import engine
from posenc.attention.cpu.engine import Tile, TiledBias, by_tiles, skewed, zeros_around

BATCH, HEADS, DIM, TOKENS, ROWS = 2, 4, 8, 21, 8


def rows(size=ROWS):
    return [slice(start, min(start + size, TOKENS)) for start in range(0, TOKENS, size)]


class Whole(TiledBias):
    """A learned bias of all pairs, (head, query, key), by tiles of whole rows."""

    whole, joins, learned, by_texts = True, False, True, False

    def __init__(self, bias):
        self.tensors = (bias,)
        self.tiles = [Tile(slice(0, HEADS), some, slice(0, TOKENS)) for some in rows()]

    def near(self, tile, t, unit, texts):
        return t[0][None, tile.heads, tile.rows].flip(2) * unit

    def near_grad(self, tile, t, grads, texts, of_e, ds):
        grads[0][tile.heads, tile.rows] += ds.sum(0).flip(1)


class Columns(TiledBias):
    """A learned number for each query and each key: keys before the middle far, others near."""

    learned = True

    def __init__(self, of_query, of_key):
        self.tensors, middle = (of_query, of_key), TOKENS // 2
        self.tiles = [
            Tile(slice(0, HEADS), some, keys, far=not n, first=not n)
            for some in rows()
            for n, keys in enumerate((slice(0, middle), slice(middle, TOKENS)))
        ]

    def far(self, tile, t):
        return t[0][:, :, tile.rows], t[1][:, :, None, tile.keys]

    def far_grad(self, tile, t, grads, of_query, of_key):
        grads[0][:, :, tile.rows] += of_query
        grads[1][:, :, tile.keys] += of_key

    def near(self, tile, t, unit, texts):
        of_query, of_key = self.far(tile, t)
        return (of_query.flip(2).unsqueeze(-1) + of_key)[texts] * unit

    def near_grad(self, tile, t, grads, texts, of_e, ds):
        self.far_grad(tile, t, grads, ds.sum(-1).flip(2), ds.sum(-2))


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


MADE = {
    "whole": ((HEADS, TOKENS, TOKENS), Whole, lambda bias: bias),
    "columns": (
        (BATCH, HEADS, TOKENS), lambda x: Columns(x, 2 * x),
        lambda x: x.unsqueeze(-1) + 2 * x.unsqueeze(-2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_a_bias_needs_no_autograd_code(name, with_sinks, groups):
    """Output and all gradients, by autograd of the formula."""
    shape, tiled, dense = MADE[name]
    q, k, v = numbers(BATCH, HEADS, TOKENS, DIM), *numbers(2, BATCH, groups, TOKENS, DIM)
    inputs = [q, k, v, numbers(*shape), *([numbers(HEADS)] if with_sinks else [])]

    def gradients(attention, *tensors):
        leaves = [x.clone().requires_grad_() for x in tensors]
        out = attention(*leaves)
        return out, *torch.autograd.grad((out * out).sum(), leaves)

    def formula(q, k, v, learned, sinks=None):
        k, v = (x.repeat_interleave(HEADS // groups, 1) for x in (k, v))
        scores = q @ k.mT / 3 + dense(learned)
        if sinks is not None:
            one_more = sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
            scores = torch.cat((scores, one_more), -1)
        return scores.softmax(-1)[..., :TOKENS] @ v

    def ours(q, k, v, learned, sinks=None):
        return by_tiles(q, k, v, tiled(learned), sinks, 1 / 3, True)

    exact = gradients(formula, *(x.double() for x in inputs))
    for mine, expected in zip(gradients(ours, *inputs), exact, strict=True):
        torch.testing.assert_close(mine.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MADE)
def test_threads_that_share_the_tiles_give_what_one_gives(name, monkeypatch):
    """Held against one thread: output and all gradients, of tiles that are joined too."""
    shape, tiled, _ = MADE[name]
    inputs = [numbers(BATCH, HEADS, TOKENS, DIM) for _ in "qkv"]
    inputs = [*inputs, numbers(*shape), numbers(HEADS)]

    def gradients():
        q, k, v, learned, sinks = leaves = [x.clone().requires_grad_() for x in inputs]
        out = by_tiles(q, k, v, tiled(learned), sinks, 0.5, True)
        return out.detach(), *torch.autograd.grad((out * out).sum(), leaves)

    one = gradients()
    with two_threads(monkeypatch):
        assert len(engine.dealt(tiled(inputs[3]).tiles, BATCH)) == 2
        two = gradients()
    torch.testing.assert_close(two, one)


def test_tiles_of_the_same_rows_stay_together(monkeypatch):
    """Against the list: each tile once, and one that is joined follows the one before it."""
    tiles = Columns(numbers(BATCH, HEADS, TOKENS), numbers(BATCH, HEADS, TOKENS)).tiles
    with two_threads(monkeypatch):
        shares = engine.dealt(tiles, BATCH)
    assert len(shares) == 2
    assert sorted(map(str, [tile for share in shares for tile in share])) == sorted(map(str, tiles))
    for share in shares:
        for before, tile in itertools.pairwise(share):
            assert tile.first or tile.rows == before.rows


def test_few_tiles_are_cut_between_the_heads_that_share_keys(monkeypatch):
    """Against the list of all pairs: each once, and no group of heads in two tiles of its rows."""
    group, texts, some = 3, 1, slice(4, 14)
    tiles = [Tile(some, slice(0, 5), slice(0, 5)), Tile(slice(6, 9), *[slice(5, 7)] * 2)]
    with two_threads(monkeypatch):
        shares = engine.dealt(tiles, texts, group)
    assert len(shares) == 2
    cut = [tile for share in shares for tile in share]

    def pairs(tiles):
        return sorted(
            pair
            for heads, rows, keys, *_ in tiles
            for pair in itertools.product(*[range(100)[x] for x in (heads, rows, keys)])
        )

    assert pairs(cut) == pairs(tiles)
    for tile in cut:
        assert tile.heads.start in (some.start, 6, 9, 12)
        assert tile.heads.stop in (some.stop, 6, 9, 12)


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize(
    "encoding",
    [ALiBi(4), T5Bias(4), Shaw(8, reach=3), DeBERTa(8, 4, buckets=8), TransformerXL(8, 4), FIRE(4)],
    ids=lambda encoding: type(encoding).__name__,
)
def test_heads_of_a_few_tiles_are_shared_by_two_threads(encoding, groups, monkeypatch):
    """Against the definition in float64: outputs and gradients."""
    encoding = copy.deepcopy(encoding).double()
    inputs = [numbers(1, heads, TOKENS, 8).double() for heads in (4, groups, groups)]

    def outcomes(path):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = attend(*leaves, encoding, mask=masks.causal(), implementation=path)
        return out.detach(), *torch.autograd.grad(out.sin().sum(), [*leaves, *learned])

    learned = [x for x in encoding.parameters() if x.requires_grad]
    with two_threads(monkeypatch):
        two = outcomes("toeplitz")
    torch.testing.assert_close(two, outcomes("reference"), rtol=1e-6, atol=1e-7)


def test_a_view_has_rows_one_number_further_apart():
    """Against loops, of a matrix and of one row that all rows share."""
    n, m = 3, 4
    for x in (numbers(2, n, n + m - 1), numbers(2, 1, n + m - 1)):
        for r in range(n):
            for j in range(m):
                assert skewed(x, n)[1, r, j] == x[1, r % x.shape[1], r + j]


def test_columns_are_zero_outside_of_their_view():
    """Against `skewed`: the two views are the same, and a sum loses nothing."""
    columns, view = zeros_around(torch.empty(0), (2,), 3, 4)
    view.copy_(numbers(2, 3, 4))
    torch.testing.assert_close(skewed(columns, 3), view)
    torch.testing.assert_close(columns.sum(), view.sum())
