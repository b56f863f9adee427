"""Results of `prepare`, cut and continued, against the same positions prepared at once."""

import copy
import pickle
from typing import NamedTuple

import pytest
import torch
from refusals import refused
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from posenc import CATALOG, ALiBi, RoPE, Sinusoidal, Sum, XPos, attend, axial, masks
from posenc.core.check_positions import checked_at
from posenc.core.encoding import Encoding
from posenc.core.positions import folded
from posenc.core.prepared import (
    Parts,
    PartsAtPoints,
    Prepared,
    appended,
    slice_tokens,
    tokens,
    where_tokens,
)
from posenc.encodings.temperature import Temperature


class Nearby(Encoding):
    """Positions are points, and nothing is made of them."""

    axes = 2


SUMS = [Sum(), Sum(RoPE(8), Sum(ALiBi(4), Temperature(3))), Sum(RoPE(axial(8)), Sum(Nearby()))]
EVERY = [card.make(8, 4) for card in CATALOG] + SUMS
every = pytest.mark.parametrize("encoding", EVERY, ids=lambda encoding: type(encoding).__name__)


def assert_same(made, expected):
    one, other = tree_flatten(made), tree_flatten(expected)
    assert str(one[1]) == str(other[1])
    for x, y in zip(one[0], other[0], strict=True):
        assert x.dtype == y.dtype
        assert x.equal(y)


def line(encoding, count, texts=0):
    pos = 3 + folded(count, encoding.axes)
    return pos if not texts else torch.stack([pos + text for text in range(texts)])


@every
@pytest.mark.parametrize("texts", [0, 1, 3])
def test_cut_and_continued_it_is_what_is_prepared_at_once(encoding, texts):
    if type(encoding).__name__ == "Normalized":  # depends on the length of the text
        return
    pos, where = line(encoding, 9, texts), where_tokens(encoding.axes)
    whole, parts = encoding.prepare(pos), [slice(0, 4), slice(4, 5), slice(5, 9)]
    each = [encoding.prepare(slice_tokens(pos, some, where)) for some in parts]
    for some, part in zip(parts, each, strict=True):
        assert_same(slice_tokens(whole, some, where), part)
    first, second, third = each
    assert_same(appended(appended(first, second, where), third, where), whole)
    if type(encoding) is Sum and not len(encoding.parts):
        return
    assert tokens(whole, where) == 9
    if isinstance(whole, Prepared):
        assert whole.batch == max(texts, 1)


@every
def test_positions_of_all_texts_are_continued_by_those_of_each(encoding):
    if type(encoding).__name__ == "Normalized":
        return
    shared, own, where = line(encoding, 4), line(encoding, 2, 3) + 9, where_tokens(encoding.axes)
    made = appended(encoding.prepare(shared), encoding.prepare(own), where)
    both = torch.cat((shared.expand(3, *shared.shape), own), 1)
    assert_same(made, encoding.prepare(both))


@every
@torch.no_grad()
def test_it_is_moved_pickled_and_mapped(encoding):
    at = encoding.prepare(line(encoding, 5))
    assert all(leaf.is_meta for leaf in tree_leaves(at.to("meta")))
    assert_same(at.to("cpu"), at)
    assert_same(pickle.loads(pickle.dumps(at)), at)
    assert_same(copy.deepcopy(at), at)
    assert_same(tree_map(torch.clone, at), at)


def test_a_sum_tells_points_from_texts():
    assert type(Sum(RoPE(8)).prepare(torch.arange(3))) is Parts
    assert type(Sum(RoPE(axial(8))).prepare(folded(3, 2))) is PartsAtPoints


class Sums(Prepared, NamedTuple("Sums", [("sums", Tensor)])):
    """Running sums over the tokens, (batch, head, token), which go on from the last."""

    shape = "head token"

    def append(self, more):
        return Sums(torch.cat((self.sums, more.sums + self.sums[..., -1:]), -1))


def test_a_class_may_continue_in_its_own_way():
    x = torch.randn(2, 4, 7)
    first, second = Sums(x[..., :3].cumsum(-1)), Sums(x[..., 3:].cumsum(-1))
    assert (first.tokens, first.batch) == (3, 2)
    torch.testing.assert_close(first.append(second).sums, x.cumsum(-1))
    assert first.slice_tokens(slice(1, None)).sums.shape == (2, 4, 2)
    whole = Parts((first, torch.arange(3))).append(Parts((second, torch.arange(3, 7))))
    torch.testing.assert_close(whole.parts[0].sums, x.cumsum(-1))
    assert whole.parts[1].tolist() == [*range(7)]


# What does not fit


def test_what_another_encoding_prepared_is_refused():
    q, pos = torch.randn(2, 4, 5, 8), torch.arange(5)
    facts = "`at`", "ALiBi", "a Stretch of 5 tokens in a batch of 1"
    with refused(TypeError, *facts):
        attend(q, q, q, ALiBi(4), XPos(8).prepare(pos))
    with refused(TypeError, *facts):
        attend(q, q, q, Sum(RoPE(8), ALiBi(4)), Sum(RoPE(8), XPos(8)).prepare(pos))
    with refused(TypeError, "Turn", "Stretch"):
        RoPE(8).prepare(pos).append(XPos(8).prepare(pos))


@pytest.mark.parametrize("encoding", [RoPE(8), Sum(ALiBi(4), XPos(8)), Temperature(3)], ids=type)
def test_of_another_number_of_tokens_or_texts_it_is_refused(encoding):
    q = torch.randn(2, 4, 5, 8)
    with refused(ValueError, "`k_at`", 7):
        attend(q, q, q, encoding, torch.arange(5), encoding.prepare(torch.arange(7)))
    three = encoding.prepare(torch.arange(5).expand(3, 5))
    with refused(ValueError, "`at`", 3):
        attend(q, q, q, encoding, three)


def test_points_of_other_axes_are_refused():
    q = torch.randn(1, 4, 6, 8)
    with refused(ValueError, 2, "Nearby"):
        attend(q, q, q, Nearby(), folded(6, 3))
    assert attend(q, q, q, Nearby(), folded(6, 2)).shape == q.shape


def test_rows_that_were_added_are_no_positions():
    """Refused even with as many positions as channels; the width alone once decided."""
    q, wave = torch.randn(8, 4, 8, 8), Sinusoidal(8)
    with refused(ValueError, "Sinusoidal", "`x = encoding.on_embeddings(x, at)`"):
        attend(q, q, q, wave, torch.arange(8).expand(8, 8), mask=masks.causal())
    at = wave.prepare(torch.arange(8))
    assert checked_at(wave, at, q, "`at`") is at
