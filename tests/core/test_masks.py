"""Masks against plain comparisons of positions, pair by pair."""

import copy
import pickle

import pytest
import torch
from refusals import refused

from posenc import positions
from posenc.attention.attend import attend
from posenc.attention.cache import Cache
from posenc.attention.layer import SelfAttention
from posenc.core.biases import dense
from posenc.core.masks import NOWHERE, Mask, causal, documents, padding, window
from posenc.core.positions import sequence
from posenc.encodings.nope import NoPE

POS = torch.tensor([[4, 0, 7], [1, 1, 9]])
K_POS = torch.tensor([[0, 4, 5, 7], [9, 8, 1, 0]])


def seen(mask, batch=1, queries=3, keys=4):
    """Return a mask as nested lists: batch, query, key."""
    shape = (batch, 1, queries, keys)
    return dense(mask, shape).expand(shape)[:, 0].tolist()


def by_hand(sees, q_pos, k_pos):
    pairs = zip(q_pos.tolist(), k_pos.tolist(), strict=True)
    return [[[sees(p, r) for r in keys] for p in queries] for queries, keys in pairs]


@pytest.mark.parametrize(
    ("mask", "sees"),
    [
        (causal(POS, K_POS), lambda p, r: p >= r),
        (window(1, POS, K_POS), lambda p, r: p == r),
        (window(4, POS, K_POS), lambda p, r: abs(p - r) < 4),
        (documents(POS, K_POS), lambda p, r: p == r),
        (causal(POS, K_POS) & window(4, POS, K_POS), lambda p, r: 0 <= p - r < 4),
        (causal(POS, K_POS) | window(4, POS, K_POS), lambda p, r: p >= r or abs(p - r) < 4),
    ],
    ids=["causal", "window of 1", "window of 4", "documents", "and", "or"],
)
def test_masks_compare_positions_of_each_row(mask, sees):
    assert seen(mask, batch=2) == by_hand(sees, POS, K_POS)


def test_keys_stand_where_queries_do_unless_told():
    assert seen(causal(POS), 2, 3, 3) == by_hand(lambda p, r: p >= r, POS, POS)
    assert seen(window(2, POS), 2, 3, 3) == by_hand(lambda p, r: abs(p - r) < 2, POS, POS)
    assert seen(documents(POS), 2, 3, 3) == by_hand(lambda p, r: p == r, POS, POS)


def test_one_row_of_positions_serves_every_text_of_a_batch():
    assert seen(causal(POS[0], K_POS), 2) == by_hand(
        lambda p, r: p >= r, POS[:1].expand(2, 3), K_POS
    )
    assert seen(causal(POS[:1], K_POS[0]), 2) == 2 * seen(causal(POS[0], K_POS[0]))


def test_without_positions_a_text_stands_at_0_1_2():
    n = sequence(5)
    assert seen(causal(), 1, 5, 5) == seen(causal(n), 1, 5, 5)
    assert seen(window(2), 1, 5, 5) == seen(window(2, n), 1, 5, 5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tokens", [None, 7])
def test_padding_hides_what_padded_has_filled_in(side, tokens):
    lengths = [4, 0, 2]
    mask, filled = padding(lengths, side, tokens), tokens or 4
    for row, n in enumerate(lengths):
        text = [True] * n
        gap = [False] * (filled - n)
        expected = gap + text if side == "left" else text + gap
        assert seen(mask, 3, 2, filled)[row] == [expected] * 2
    assert positions.padded(lengths, side, tokens).shape == (3, filled)


def test_documents_of_a_packed_row_see_themselves_alone():
    ids = positions.documents([2, 1])
    T, F = True, False
    assert seen(documents(ids), 1, 3, 3) == [[[T, T, F], [T, T, F], [F, F, T]]]


def test_masks_read_no_storage_order():
    shuffle = torch.tensor([2, 0, 3, 1])
    straight = dense(causal(sequence(4)), (1, 1, 4, 4))[0, 0]
    assert dense(causal(shuffle), (1, 1, 4, 4))[0, 0].equal(straight[shuffle][:, shuffle])


def test_fractions_and_negative_positions_can_be_compared():
    times = torch.tensor([-1.5, 0.25, 0.5])
    T, F = True, False
    assert seen(causal(times), 1, 3, 3) == [[[T, F, F], [T, T, F], [T, T, T]]]
    assert seen(window(1, times), 1, 3, 3) == [[[T, F, F], [F, T, T], [F, T, T]]]


def test_a_function_of_ones_own_is_a_mask():
    q = torch.randn(1, 2, 4, 8)
    alone = lambda b, h, i, j: i == j  # noqa: E731
    torch.testing.assert_close(attend(q, q, q, NoPE(), mask=alone), q)
    torch.testing.assert_close(attend(q, q, q, NoPE(), mask=Mask(alone) & causal()), q)
    torch.testing.assert_close(
        attend(q, q, q, NoPE(), mask=Mask(alone) | causal()),
        attend(q, q, q, NoPE(), mask=causal()),
    )


def test_only_the_plain_triangle_calls_itself_causal():
    assert causal().is_causal
    for mask in (causal(sequence(3)), window(2), causal() & window(2), causal() | window(2)):
        assert not mask.is_causal


def test_joined_masks_remember_that_one_has_no_positions():
    q, k, pos = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8), sequence(3, start=2)
    at, k_at = pos, sequence(5)
    for mask in (causal() & padding([5]), padding([5]) | window(2), window(2) & causal(pos, k_at)):
        with refused(ValueError, 3, 5):
            attend(q, k, k, NoPE(), at, k_at, mask)
    known = causal(pos, k_at) & window(2, pos, k_at) | padding([5])
    assert attend(q, k, k, NoPE(), at, k_at, known).shape == q.shape


def test_says_what_does_not_fit(unchecked):
    with refused(ValueError, "`size`", 1, 0):
        window(0)
    with refused(ValueError, 9, "`tokens`", 5):
        padding([2, 9], tokens=5)
    with refused(TypeError, 256):
        causal(torch.arange(4).bfloat16())
    with refused(TypeError, "`ids`", "bool"):
        documents(torch.ones(4, dtype=torch.bool))


def test_padding_wants_to_know_the_side(unchecked):
    with refused(ValueError, "'left'", "'right'", "'top'"):
        padding([2, 3], side="top")


@pytest.mark.parametrize("path", ["reference", "blocks", "sdpa"])
@pytest.mark.parametrize("given", [1, 4, 6])
def test_a_mask_of_other_tokens_is_refused(unchecked, path, given):
    """Six positions for five tokens would silently be the wrong ones."""
    q, pos = torch.randn(3, 2, 5, 8), sequence(given)
    for mask in (causal(pos), window(2, pos), documents(pos), causal(pos) & padding([5, 5, 5])):
        with refused(ValueError, given):
            attend(q, q, q, NoPE(), mask=mask, implementation=path)


@pytest.mark.parametrize("given", [2, 4])
def test_a_mask_of_another_batch_is_refused(unchecked, given):
    q, pos = torch.randn(3, 2, 5, 8), sequence(5).expand(given, 5)
    for mask in (causal(pos), padding([5] * given)):
        with pytest.raises(ValueError, match="batch"):
            attend(q, q, q, NoPE(), mask=mask)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_narrow_integers_do_not_wrap_around(dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    pos = torch.tensor([high, low], dtype=dtype)
    T, F = True, False
    assert seen(causal(pos), 1, 2, 2) == [[[T, T], [F, T]]]
    assert seen(window(high // 2, pos), 1, 2, 2) == [[[T, F], [F, T]]]


def test_a_function_of_ones_own_joins_in():
    pos, even = sequence(4), lambda b, h, i, j: j % 2 == 0
    T, F = True, False
    assert seen(causal(pos) & even, 1, 3, 4)[0][2] == [T, F, T, F]
    assert seen(causal(pos) | even, 1, 3, 4)[0][0] == [T, F, T, F]


def test_a_tensor_is_no_mask_and_dtypes_are_one(unchecked):
    q = torch.randn(1, 2, 3, 8)
    with refused(TypeError, "`mask`"):
        attend(q, q, q, NoPE(), mask=torch.ones(3, 3, dtype=torch.bool))
    with refused(ValueError, "bfloat16", "float32"):
        attend(q.bfloat16(), q, q, NoPE())


PICKLED = {
    "causal": causal(),
    "of positions": causal(POS, K_POS),
    "window": window(3),
    "documents": documents(POS, K_POS),
    "padding": padding([3, 2]),
    "joined": window(3, POS, K_POS) & causal(POS, K_POS) | documents(POS, K_POS),
}


@pytest.mark.parametrize("mask", PICKLED.values(), ids=PICKLED)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda mask: pickle.loads(pickle.dumps(mask))])
def test_a_mask_can_be_pickled_and_copied(mask, copied):
    """Data loaders pass masks from process to process in this way."""
    again = copied(mask)
    assert seen(again, 2) == seen(mask, 2)
    assert (again.shapes, again.is_causal) == (mask.shapes, mask.is_causal)
    assert (again.bands is None) == (mask.bands is None)
    q = torch.randn(2, 1, 3, 8)
    k = q if NOWHERE in mask.shapes else torch.randn(2, 1, 4, 8)
    at = sequence(3), sequence(k.shape[2])
    assert attend(q, k, k, NoPE(), *at, again).equal(attend(q, k, k, NoPE(), *at, mask))


HEAD_POS = torch.tensor([[[4, 0, 7], [1, 1, 9]], [[2, 5, 3], [0, 6, 8]]])  # (batch, head, token)


@pytest.mark.parametrize(
    ("make", "sees"),
    [
        (causal, lambda p, r: p >= r),
        (lambda pos: window(3, pos), lambda p, r: abs(p - r) < 3),
        (lambda pos: window(3, pos) & causal(pos), lambda p, r: 0 <= p - r < 3),
        (lambda pos: documents(pos % 2), lambda p, r: p % 2 == r % 2),
    ],
    ids=["causal", "window", "joined", "documents"],
)
@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("path", ["auto", "reference", "blocks", "sdpa"])
def test_heads_may_have_positions_of_their_own(make, sees, texts, path):
    """Against a softmax in float64 for each query, over the keys that a comparison shows."""
    pos = HEAD_POS[:texts]
    q, k, v = torch.randn(3, 2, 2, 3, 4)
    out = attend(q, k, v, NoPE(), pos, mask=make(pos), implementation=path)
    for b in range(2):
        for h in range(2):
            stand = pos[b % texts, h].tolist()
            for i, p in enumerate(stand):
                some = [j for j, r in enumerate(stand) if sees(p, r)]
                weights = (k[b, h, some].double() @ q[b, h, i].double() / 2).softmax(0)
                expected = (weights @ v[b, h, some].double()).float()
                torch.testing.assert_close(out[b, h, i], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("path", ["auto", "reference", "blocks", "sdpa"])
def test_many_tokens_at_positions_by_head_are_each_head_alone(path):
    """400 tokens, more than a block, with documents that auto would otherwise cut apart."""
    q, k, v = torch.randn(3, 2, 2, 400, 8)
    pos = torch.stack([torch.arange(400), torch.arange(400).flip(0)]).expand(2, 2, 400)
    ids = torch.stack([torch.arange(400) // 100, torch.arange(400) // 200]).expand(2, 2, 400)
    both = causal(pos) & documents(ids)
    out = attend(q, k, v, NoPE(), pos, mask=both, implementation=path)
    for h in range(2):
        alone = causal(pos[0, h]) & documents(ids[0, h])
        one = (x[:, [h]] for x in (q, k, v))
        expected = attend(*one, NoPE(), pos[0, h], mask=alone, implementation="reference")
        torch.testing.assert_close(out[:, [h]], expected, atol=1e-5, rtol=1e-4)


def test_positions_for_other_heads_are_refused(unchecked):
    q, pos = torch.randn(1, 4, 5, 8), sequence(5).expand(1, 2, 5)
    with refused(ValueError, 1, 4, 2):
        attend(q, q[:, :2], q[:, :2], NoPE(), mask=causal(pos))
    one = attend(q, q, q, NoPE(), mask=causal(pos[:, :1]))
    torch.testing.assert_close(one, attend(q, q, q, NoPE(), mask=causal()))


@torch.no_grad()
def test_a_cache_goes_on_under_a_mask_of_positions_by_head():
    layer, x, cache = SelfAttention(32, 4, NoPE()), torch.randn(2, 6, 32), Cache()
    pos = torch.stack([torch.arange(6) * (h + 1) for h in range(4)]).expand(2, 4, 6)
    whole = layer(x, pos, window(3, pos) & causal(pos))
    parts = [
        layer(
            x[:, n : n + 2], pos[..., n : n + 2],
            window(3, pos[..., : n + 2]) & causal(pos[..., : n + 2]), cache=cache,
        )
        for n in range(0, 6, 2)
    ]  # fmt: skip
    torch.testing.assert_close(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("size", [None, 1, 3, 9])
def test_a_band_that_hides_nothing_shows_all_pairs(size):
    """Against the mask of all pairs."""
    for start, step in ((0, 1), (4, 1), (-9, 2), (30, 3)):
        pos, k_pos = start + torch.arange(3), step * torch.arange(5)
        mask = causal(pos, k_pos) if size is None else window(size, pos, k_pos)
        (band,) = mask.bands
        shown = bool(dense(mask, (1, 1, 3, 5)).all())
        assert band.hides_nothing == shown
        assert pickle.loads(pickle.dumps(band)).hides_nothing == shown
    assert causal(pos[:0], k_pos).bands[0].hides_nothing
    assert not causal().bands[0].hides_nothing
