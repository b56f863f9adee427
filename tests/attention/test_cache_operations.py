"""Operations on a cache between two tokens, against the whole text at once.

The cache is branched, copied, saved, cropped, reordered and moved, or a call on it is refused. Then
more tokens follow, and each must get the output that it has in the whole text.
"""

import copy
import io
import pickle

import pytest
import torch
from refusals import refused
from torch import nn

from posenc import (
    CATALOG,
    ALiBi,
    Block,
    Cache,
    NoPE,
    RoPE,
    SelfAttention,
    Shaw,
    Sum,
    T5Bias,
    masks,
)
from posenc.core.positions import folded, padded

WIDTH, DIM, HEADS, TOKENS = 32, 8, 4, 12
# A position of `Normalized` is a fraction of the length, so it cannot decode.
CARDS = {card.slug: card.make for card in CATALOG if card.slug != "normalized"}
CARDS["sum"] = lambda dim, heads: Sum(RoPE(dim), Sum(ALiBi(heads), Shaw(dim, reach=3)))
every = pytest.mark.parametrize("name", CARDS)
SUMS = [name for name, make in CARDS.items() if "on_hidden" in make(DIM, HEADS).acts_on]
some = pytest.mark.parametrize("name", ["nope", "rope", "t5", "transformer-xl", "sum", *SUMS])
causal = masks.causal()


class Stack(nn.Module):
    """Layers with encodings of their own; what acts on embeddings is at the bottom alone."""

    def __init__(self, name, groups=2, layers=2):
        super().__init__()
        make = CARDS[name]
        first = make(DIM, HEADS)
        additive = "on_embeddings" in first.acts_on
        above = [NoPE() if additive else make(DIM, HEADS) for _ in range(layers - 1)]
        self.layers = nn.ModuleList(
            [SelfAttention(WIDTH, HEADS, e, groups) for e in (first, *above)]
        )
        for encoding in above:
            encoding.axes = first.axes
        self.pos = folded(64, first.axes)
        for x in self.parameters():
            nn.init.normal_(x, std=0.2)

    def forward(self, x, cache=None, **how):
        """x follows the tokens of the cache, at its positions in the text."""
        start = 0 if cache is None else cache.tokens
        pos = how.pop("pos", self.pos[start : start + x.shape[1]])
        for layer in self.layers:
            x = layer(x, pos, how.get("mask", causal), cache=cache)
        return x


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=2e-4, atol=2e-4)


def begun(name, tokens=5, batch=2, **sizes):
    """A stack, a text, and a cache of its first tokens."""
    stack, x, cache = Stack(name, **sizes), torch.randn(batch, TOKENS, WIDTH), Cache()
    for one in x[:, :tokens].split([tokens - 2, 1, 1], 1):
        stack(one, cache)
    return stack, x, cache


def check_goes_on(stack, cache, x, **how):
    """Check the tokens of x that are not cached yet, one by one and several, against the text."""
    start = cache.tokens
    later = x[:, start:].split([1, 2, x.shape[1] - start - 3], 1)
    outs = [stack(some, cache, **how) for some in later]
    close(torch.cat(outs, 1), stack(x)[:, start:])
    assert cache.tokens == x.shape[1]
    assert {cache.tokens_of(layer) for layer in stack.layers} == {x.shape[1]}


# Branches, copies and pickles


@every
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@torch.no_grad()
def test_a_copy_is_a_branch_for_the_same_layers(name, copied):
    """Both go on in turn, each with its own tokens."""
    stack, x, cache = begun(name)
    branch, other = copied(cache), torch.cat((x[:, :5], torch.randn(2, 7, WIDTH)), 1)
    expected = stack(x), stack(other)
    for n in range(5, TOKENS):
        now = slice(n, n + 1)
        close(stack(x[:, now], cache), expected[0][:, now])
        close(stack(other[:, now], branch), expected[1][:, now])
    assert cache.tokens == branch.tokens == TOKENS
    assert all(branch.tokens_of(layer) == TOKENS for layer in stack.layers)


@every
@torch.no_grad()
def test_layers_copied_with_their_cache_go_on_by_themselves(name):
    stack, x, cache = begun(name)
    twin, branch = copy.deepcopy((stack, cache))
    for weight in stack.parameters():
        weight.add_(1.0)
    check_goes_on(twin, branch, x)
    assert cache.tokens == 5
    assert [branch.tokens_of(layer) for layer in stack.layers] == [0, 0]


@every
@torch.no_grad()
def test_layers_pickled_with_their_cache_go_on(name):
    stack, x, cache = begun(name)
    check_goes_on(*pickle.loads(pickle.dumps((stack, cache))), x)
    torch.save((stack, cache), file := io.BytesIO())
    file.seek(0)
    check_goes_on(*torch.load(file, weights_only=False), x)
    check_goes_on(stack, cache, x)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@some
def test_a_branch_is_made_while_gradients_flow(name, copied):
    stack, x, cache = begun(name)
    check_goes_on(stack, copied(cache), x)
    check_goes_on(stack, cache, x)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@pytest.mark.parametrize(
    "make", [lambda: T5Bias(HEADS), lambda: Shaw(DIM), lambda: Sum(RoPE(DIM), T5Bias(HEADS))]
)
@torch.no_grad()
def test_weights_changed_between_tokens_reach_a_branch(make, copied):
    """Encodings that act on scores alone use the current weights; against the whole text."""
    layer, x, cache = SelfAttention(WIDTH, HEADS, make()), torch.randn(2, 6, WIDTH), Cache()
    layer(x[:, :5], mask=causal, cache=cache)
    branch = copied(cache)
    for weight in layer.encoding.parameters():
        weight.data.normal_()
    expected = layer(x, mask=causal)[:, 5:]
    for one in (cache, branch):
        close(layer(x[:, 5:], mask=causal, cache=one), expected)


@some
@torch.no_grad()
def test_layers_that_a_cache_does_not_know_are_refused_after_the_first_step(name):
    stack, x, cache = begun(name)
    twin = copy.deepcopy(stack)
    for branch in (cache, copy.copy(cache), copy.deepcopy(cache)):
        with refused(ValueError, "`cache`"):
            twin(x[:, 5:6], branch)
        assert branch.tokens == 5
        assert branch.tokens_of(twin.layers[0]) == 0
    check_goes_on(stack, cache, x)


# Crop, reorder, and move


@every
@pytest.mark.parametrize("groups", [4, 2])
@torch.no_grad()
def test_a_cropped_cache_goes_on_from_the_tokens_that_are_left(name, groups):
    """By the number kept and by the number dropped, twice, and down to none."""
    stack, x, cache = begun(name, 8, groups=groups)
    for tokens, left in ((6, 6), (-2, 4), (4, 4), (1, 1), (0, 0)):
        cache.crop(tokens)
        assert cache.tokens == left
        assert {cache.tokens_of(layer) for layer in stack.layers} == {left}
        check_goes_on(stack, copy.copy(cache), x)
        other = torch.cat((x[:, :left], torch.randn(2, 6, WIDTH)), 1)
        check_goes_on(stack, copy.copy(cache), other)


@every
@pytest.mark.parametrize("groups", [4, 2])
@torch.no_grad()
def test_a_reordered_cache_goes_on_with_the_texts_that_were_picked(name, groups):
    """In another order, twice, some of them, more of them; then a second time."""
    stack, x, cache = begun(name, groups=groups)
    for index in ([1, 0], [0, 0, 1], [1], [1, 1, 0, 1]):
        branch = copy.copy(cache)
        branch.reorder(torch.tensor(index))
        beams = torch.cat((x[index, :5], torch.randn(len(index), 4, WIDTH)), 1)
        check_goes_on(stack, branch, beams)
    branch.reorder(torch.tensor([2]))
    check_goes_on(stack, branch, torch.cat((beams[2:3], torch.randn(1, 4, WIDTH)), 1))


@some
@torch.no_grad()
def test_a_branch_is_cropped_and_reordered_by_itself(name):
    stack, x, cache = begun(name)
    for copied in (copy.copy, copy.deepcopy):
        branch = copied(cache)
        branch.crop(3)
        branch.reorder(torch.tensor([1]))
        check_goes_on(stack, branch, x[1:])
    check_goes_on(stack, copy.copy(cache), x)
    cache.crop(3)
    check_goes_on(stack, cache, x)


@some
@torch.no_grad()
def test_a_cache_is_moved_and_the_first_stays(name):
    stack, x, cache = begun(name)
    moved = cache.to("cpu")
    check_goes_on(stack, moved, x)
    assert cache.tokens == 5
    check_goes_on(stack, cache, x)
    away = cache.to("meta")
    stack.to("meta")
    assert stack(x[:, :1].to("meta"), away, pos=stack.pos[5:6].to("meta")).is_meta
    assert away.tokens == TOKENS + 1


@torch.no_grad()
def test_blocks_search_beams_and_take_back_tokens():
    """Two blocks with a fixed mask draft tokens, drop some of them and exchange texts."""
    blocks = nn.ModuleList([Block(WIDTH, HEADS, RoPE(DIM), 2, causal=True) for _ in range(2)])

    def run(x, cache=None):
        for block in blocks:
            x = block(x, cache=cache)
        return x

    x, cache = torch.randn(2, 10, WIDTH), Cache()
    run(x[:, :4], cache)
    run(torch.randn(2, 3, WIDTH), cache)
    cache.crop(4)
    close(run(x[:, 4:6], cache), run(x[:, :6])[:, 4:])
    cache.reorder(torch.tensor([1, 0]))
    close(run(x[[1, 0], 6:], cache), run(x[[1, 0]])[:, 6:])


# Positions that are left out


GIVEN = {
    "later": lambda axes: torch.arange(10, 15),
    "by twos": lambda axes: 2 * torch.arange(5),
    "a batch": lambda axes: torch.stack([torch.arange(5), torch.arange(5) + 7]),
    "left padding": lambda axes: padded([5, 3], "left"),
    "packed": lambda axes: torch.tensor([0, 1, 2, 0, 1]),
    "heads": lambda axes: (torch.arange(5) + torch.arange(HEADS).view(1, HEADS, 1)).clone(),
}


def following(pos, tokens):
    """The positions after the last of each text."""
    more = pos[..., -1:] + torch.arange(1, tokens + 1)
    return torch.cat((pos, more), -1)


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", ["rope", "xpos", "alibi", "t5", "shaw", "sum", "nope"])
@torch.no_grad()
def test_positions_left_out_go_on_from_the_last_of_each_text(name, given):
    """After those of a prompt, of a step, of a crop and of other texts; or a sentence refuses."""
    stack, x, cache = Stack(name, groups=4), torch.randn(2, 9, WIDTH), Cache()
    pos = GIVEN[given](1)
    # Left padding is hidden, by the index of the keys
    gaps = torch.tensor([0, 2 if given == "left padding" else 0])
    seen = lambda b, h, i, j: j >= gaps.to(j.device)[b]  # noqa: E731
    mask = causal & seen
    stack(x[:, :5], cache, pos=pos, mask=mask)
    text = slice(2, None) if given == "left padding" else slice(None)
    whole = stack(x, pos=following(pos, 4), mask=mask)
    branch, other = copy.copy(cache), copy.copy(cache)
    for n in range(5, 9):
        try:
            out = stack(x[:, n : n + 1], cache, pos=None, mask=mask)
        except ValueError as error:
            assert "`pos`" in str(error)  # noqa: PT017
            assert cache.tokens == 5
            return
        close(out, whole[:, n : n + 1])
    branch.crop(4)
    expected = stack(x[:, :6], pos=following(pos[..., :4], 2), mask=mask)[:, 4:, :]
    close(stack(x[:, 4:6], branch, pos=None, mask=mask), expected)
    if given != "left padding":
        other.reorder(torch.tensor([1]))
        own = following(pos, 4) if pos.ndim == 1 or len(pos) == 1 else following(pos, 4)[1:]
        expected = stack(x[1:], pos=own, mask=causal)[:, 5:]
        close(stack(x[1:, 5:], other, pos=None, mask=causal), expected)
    assert whole[:, text].isfinite().all()


@torch.no_grad()
def test_points_do_not_go_on_by_themselves():
    stack, x, cache = begun("axial-rope")
    with pytest.raises(ValueError, match=r"`pos`|positions|points"):
        stack(x[:, 5:6], cache, pos=None)
    check_goes_on(stack, cache, x)


# Calls that are refused


FOUR = torch.zeros(4, dtype=torch.long)
REFUSED = {
    "a mask of others": (dict(mask=masks.documents(FOUR)), "positions for"),
    "a mask of another batch": (
        dict(mask=masks.padding([6, 6, 6])),
        "batch of 2.* got 3",
    ),
    "positions of others": (dict(pos=torch.arange(4)), "4"),
    "another batch": (dict(x=torch.randn(3, 1, WIDTH)), "batch size of `cache`, 2, got 3"),
    "another width": (dict(x=torch.randn(2, 1, 7)), "embeddings"),
    "a path that cannot": (dict(implementation="sdpa"), "sdpa"),
}


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("name", ["nope", "rope", "alibi", "shaw", "sum", "transformer-xl", *SUMS])
@torch.no_grad()
def test_a_call_that_is_refused_leaves_nothing_in_the_cache(name, refused, unchecked):
    """Neither tokens nor positions nor sums; then the call is made as it should have been."""
    how, says = REFUSED[refused]
    layer = SelfAttention(WIDTH, HEADS, CARDS[name](DIM, HEADS))
    x, cache = torch.randn(2, 8, WIDTH), Cache()
    if refused == "a path that cannot" and name not in ("alibi", "shaw", "sum"):
        pytest.skip("sdpa may serve it")
    if refused == "positions of others" and name in SUMS:
        pytest.skip("it goes by the tokens, wherever they stand")
    layer(x[:, :5], mask=causal, cache=cache)
    given = {"mask": causal, "x": x[:, 5:6]} | how
    with pytest.raises((ValueError, TypeError, RuntimeError), match=says):
        layer(**given, cache=cache)
    assert cache.tokens == cache.tokens_of(layer) == 5
    outs = [layer(one, mask=causal, cache=cache) for one in x[:, 5:].split(1, 1)]
    close(torch.cat(outs, 1), layer(x, mask=causal)[:, 5:])


@pytest.mark.parametrize("name", ["nope", "rope", "alibi", "shaw", "sum"])
@torch.no_grad()
def test_positions_of_a_refused_call_are_not_those_that_the_next_go_on_from(name):
    layer = SelfAttention(WIDTH, HEADS, CARDS[name](DIM, HEADS))
    x, cache = torch.randn(2, 8, WIDTH), Cache()
    of_others = masks.documents(FOUR)
    with pytest.raises(ValueError, match="positions for"):
        layer(x[:, :5], 100 + 3 * torch.arange(5), of_others, cache=cache)
    assert cache.tokens == 0
    layer(x[:, :5], mask=causal, cache=cache)
    with pytest.raises(ValueError, match="positions for"):
        layer(x[:, 5:6], torch.tensor([700]), of_others, cache=cache)
    outs = [layer(one, mask=causal, cache=cache) for one in x[:, 5:].split(1, 1)]
    close(torch.cat(outs, 1), layer(x, mask=causal)[:, 5:])


@pytest.mark.parametrize("name", ["rope", "alibi", *SUMS])
@torch.no_grad()
def test_a_step_that_an_upper_layer_refused_is_taken_back_by_crop(name):
    """Layers below have seen its token; the first tokens are the same in all."""
    stack, x, cache = begun(name)
    stack.layers[0](x[:, 5:6], stack.pos[5:6], causal, cache=cache)
    with pytest.raises(ValueError, match="positions for"):
        stack.layers[1](x[:, 5:6], stack.pos[5:6], masks.documents(FOUR), cache=cache)
    assert [cache.tokens_of(layer) for layer in stack.layers] == [6, 5]
    cache.crop(5)
    check_goes_on(stack, cache, x)
