"""Results of `check`, against encodings written here to have, or to lack, one property."""

import math
import random
import re

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

from posenc.catalog import CATALOG, create
from posenc.core.biases import offset
from posenc.core.encoding import Encoding, Sum
from posenc.encodings.additive.binary import Binary
from posenc.encodings.additive.learned import Learned
from posenc.encodings.additive.sinusoidal import Sinusoidal
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.axial import axial
from posenc.encodings.rotary.rope import RoPE
from posenc.encodings.rotary.xpos import XPos
from posenc.encodings.temperature import Temperature
from posenc.properties import (
    ALL,
    FAR,
    Finding,
    Probe,
    bounded,
    check,
    decaying,
    norm_constant,
    order_sensitive,
    unique_positions,
)

ROWS = {"unique_positions", "bounded", "norm_constant", "linear_shift"}


def holding(found):
    return {name for name, finding in found.items() if finding.holds}


# A finding


@pytest.mark.parametrize(
    ("finding", "holds", "mark"),
    [
        (Finding(0.0, "fine"), True, "✓"),
        (Finding(9e-5, "nearly"), True, "✓"),
        (Finding(1e-3, "off"), False, "✗"),
        (Finding(math.inf, "refused"), False, "✗"),
        (Finding(math.nan, "broken"), False, "✗"),
        (Finding(math.nan, "no rows", applicable=False), None, "–"),
    ],
)
def test_a_finding_holds_when_its_defect_is_small(finding, holds, mark):
    assert finding.holds is holds
    assert finding.mark == mark
    assert str(finding) == f"{mark} {finding.why}"


# Encodings of one's own


class Recency(Encoding):
    """A bias written without any helper: nearer is better, on both sides."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: -0.5 * (q_at[0, 0, i] - k_at[0, 0, j]).abs()


class Week(Encoding):
    """Adds one of seven rows of equal length, over and over."""

    width = 14

    def on_embeddings(self, x, at):
        return x + nn.functional.one_hot(at % 7, 14)


class Crescendo(Encoding):
    """A learned row, the louder the later."""

    def __init__(self):
        super().__init__()
        self.row = nn.Parameter(torch.ones(64))

    def on_embeddings(self, x, at):
        return x + at.unsqueeze(-1) * self.row


class ForgetsTheKeys(RoPE):
    """Rotary, but the hook of the keys was misspelt."""

    def on_keys(self, k, at):
        return k


class Short(Encoding):
    """Has a place for 40 positions."""

    def prepare(self, pos):
        if pos.max() >= 40:
            raise IndexError(f"position {pos.max()} is past the end, 39")
        return pos

    def on_embeddings(self, x, at):
        return x + at.unsqueeze(-1)


def test_a_bias_of_ones_own_can_be_checked():
    found = check(Recency())
    assert holding(found) == {
        *("shift_invariant", "symmetric", "decaying", "norm_preserving"),
        *("any_length", "length_independent", "order_sensitive"),
    }
    assert found["decaying"].why == "falls all the way to offset 128"
    assert holding(found) == holding(check(ALiBi(4)))


def test_additive_rows_of_ones_own_can_be_checked():
    found = check(Week())
    assert holding(found) == {
        *("bounded", "norm_constant", "linear_shift"),
        *("any_length", "length_independent", "order_sensitive"),
    }
    found = check(Crescendo())
    assert holding(found) == {
        *("unique_positions", "any_length", "length_independent", "order_sensitive", "learned"),
    }


@pytest.mark.parametrize(
    ("encoding", "name", "why"),
    [
        (Week(), "unique_positions", r"positions (\d+) and (\d+), differ by 0 per channel"),
        (Crescendo(), "bounded", r"largest entry 1,000,000 at one million, 1,020 in the first 1,0"),
        (Crescendo(), "norm_constant", r"norm 0 at position 0, 8,184 at 1,023"),
        (Crescendo(), "learned", "64 parameters"),
        (ForgetsTheKeys(16), "shift_invariant", r"the text by 17 changes the score of \d"),
        (ForgetsTheKeys(16), "symmetric", r"exchanging .* changes the score of \d and \d from "),
        (Recency(), "several_axes", "a position is one number"),
        (RoPE(axial(16)), "several_axes", "each of 2 coordinates"),
        (Short(), "any_length", r"position 1000\d* is past the end, 39"),
        (Short(), "unique_positions", r"positions \d+ and \d+"),
        (NoPE(), "order_sensitive", "token to the front changes scores by 0 times"),
        (NoPE(), "decaying", "flat: distance makes no difference"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_finding_names_its_witness(encoding, name, why):
    assert re.search(why, check(encoding)[name].why)


def test_the_witness_of_a_repeated_row_is_true():
    p, q = map(int, re.findall(r"(\d+) and (\d+)", check(Week())["unique_positions"].why)[0])
    assert p != q
    assert p % 7 == q % 7


class OneSided(Encoding):
    """Keys behind score lower by one, all alike but for noise as small as a rounding."""

    def on_scores(self, q, k, q_at, k_at, scale):
        before = (q_at[..., :, None] > k_at[..., None, :]).double()
        return before * -(1 + 1e-13 * torch.rand(*q.shape[:3], k.shape[2]).double())


def test_of_witnesses_that_are_alike_the_first_is_named():
    """Else the last digits of a processor choose, and findings differ from one to the next."""
    assert len({check(OneSided())["symmetric"].why for _ in range(5)}) == 1


def test_a_wrong_hook_loses_what_the_right_one_has():
    lost = holding(check(RoPE(16))) - holding(check(ForgetsTheKeys(16)))
    assert lost == {"shift_invariant"}


def test_a_table_is_measured_up_to_its_end():
    found = check(Learned(20, 64))
    assert found["any_length"].defect == math.inf
    assert "from 0 to 19" in found["any_length"].why
    assert found["unique_positions"].holds
    assert found["length_independent"].holds


@pytest.mark.parametrize("encoding", [Recency(), NoPE(), ALiBi(4)], ids=type)
def test_what_is_asked_of_rows_does_not_apply_where_there_are_none(encoding):
    found = check(encoding)
    assert {name for name, finding in found.items() if finding.holds is None} == ROWS
    assert all(found[name].mark == "–" for name in ROWS)


class Broken(Encoding):
    """Not a number, in one place or another."""

    def __init__(self, hook):
        super().__init__()
        nan = float("nan")
        if hook == "on_scores":
            self.on_scores = lambda *_: lambda b, h, i, j: nan * (i - j)
        else:
            setattr(self, hook, lambda x, at: x * nan)

    @property
    def acts_on(self):
        return tuple(
            hook for hook in ("on_embeddings", "on_queries", "on_scores") if hook in vars(self)
        )


@pytest.mark.parametrize("hook", ["on_scores", "on_queries", "on_embeddings"])
def test_an_encoding_that_gives_nan_holds_nothing(hook):
    probe = Probe(Broken(hook))
    for measure in (unique_positions, bounded, norm_constant, decaying, order_sensitive):
        assert measure(probe).holds in (False, None), measure.__name__
    assert not holding(check(Broken(hook)))


def test_flat_rows_are_no_decay():
    class Flat(Encoding):
        def on_scores(self, q, k, q_at, k_at, scale):
            return lambda b, h, i, j: 0.0 * (i - j)

    assert check(Flat())["decaying"].why == "flat: distance makes no difference"
    assert not check(Flat())["order_sensitive"].holds


def test_decay_must_hold_for_every_head_and_side():
    class OneSided(Encoding):
        def on_scores(self, q, k, q_at, k_at, scale):
            ahead = offset(q_at, k_at)
            return lambda b, h, i, j: -ahead(b, h, i, j).clamp_min(0).float()

    class OneHead(Encoding):
        def on_scores(self, q, k, q_at, k_at, scale):
            ahead = offset(q_at, k_at)
            return lambda b, h, i, j: (1.0 * (h == 2) - 0.5) * ahead(b, h, i, j).abs()

    class Bump(Encoding):
        def on_scores(self, q, k, q_at, k_at, scale):
            ahead = offset(q_at, k_at)
            far = lambda d: d - 5 * (d == 17)  # noqa: E731
            return lambda b, h, i, j: -1.0 * far(ahead(b, h, i, j).abs())

    for encoding in (OneSided(), OneHead(), Bump()):
        assert not check(encoding)["decaying"].holds
    assert check(Bump())["decaying"].why == "first rises at offset 17"
    assert decaying(Probe(Recency())).holds


# How it is measured


def test_an_encoding_is_tried_in_the_sizes_it_was_made_for():
    probe = Probe(Sum(RoPE(6), ALiBi(3)))
    assert (probe.dim, probe.heads, probe.width) == (6, 3, 18)
    probe = Probe(Sinusoidal(20))
    assert (probe.dim, probe.heads, probe.width) == (5, 4, 20)
    probe = Probe(Week())
    assert (probe.dim, probe.heads, probe.width) == (14, 1, 14)
    probe = Probe(NoPE(), dim=2, heads=3, width=10)
    assert (probe.dim, probe.heads, probe.width) == (2, 3, 10)
    assert check(Sinusoidal(20), heads=2)["norm_constant"].holds


def test_says_which_sizes_do_not_fit():
    class Wide(Encoding):
        def on_queries(self, q, at):
            return q * torch.ones(24)

    with refused(ValueError, "`dim`", 16):
        check(Wide())
    assert check(Wide(), dim=24)["norm_preserving"].holds
    with refused(ValueError, "RoPE", "`dim`", 8, 16):
        check(RoPE(16), dim=8)
    with refused(ValueError, "`width`", 32):
        check(Sinusoidal(16), dim=8, heads=4, width=32)


def test_every_property_is_measured_once_under_its_name():
    assert list(check(NoPE())) == [measure.__name__ for measure in ALL]
    assert all(measure.__doc__ and measure.__doc__.strip().endswith(".") for measure in ALL)
    claimed = set().union(*(card.holds for card in CATALOG))
    assert claimed == set(ALL)  # none that no encoding has


def test_no_global_seed_is_touched_and_none_is_read(unchecked):  # the checker reads random's
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    first = check(RoPE(16))
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert after[0].equal(before[0])
    assert after[1:] == before[1:]
    torch.manual_seed(123)
    defects = lambda found: [finding.defect for finding in found.values()]  # noqa: E731
    again, other = check(RoPE(16)), check(RoPE(16), seed=1)
    assert defects(again) == pytest.approx(defects(first), abs=1e-12)
    assert defects(other) != pytest.approx(defects(first), abs=1e-12)
    assert holding(other) == holding(first)


def test_checking_leaves_the_encoding_as_it_was():
    encoding = Learned(64, 64)
    before = encoding.table.detach().clone()
    check(encoding)
    assert encoding.table.equal(before)
    assert encoding.table.grad is None
    assert encoding.table.requires_grad
    assert encoding.training


def test_a_million_is_far():
    class Until(Short):
        def prepare(self, pos):
            if pos.max() >= FAR:
                raise IndexError("that far")
            return pos

    assert check(Until())["any_length"].why == "that far"


@pytest.mark.parametrize("length", [2, 3, 9, 17, 40])
def test_a_short_table_can_be_measured(length):
    found = check(Learned(length, 8))
    assert found["unique_positions"].holds
    assert found["order_sensitive"].holds
    assert not found["any_length"].holds
    assert found["linear_shift"].holds in (False, None)


def test_one_position_cannot_be_compared():
    with refused(ValueError, "`encoding`", "Learned"):
        check(Learned(1, 8))


# Facts on which a mark must not depend


def test_points_are_moved_along_each_axis_by_itself():
    """A bias (r − c)(r′ − c′) stays where row and column move alike, and changes where one does."""

    class Diagonal(Encoding):
        axes = 2

        def on_scores(self, q, k, q_at, k_at, scale):
            q_off, k_off = (at[..., 0] - at[..., 1] for at in (q_at, k_at))
            return 1.0 * q_off[..., :, None] * k_off[..., None, :]

    found = check(Diagonal())["shift_invariant"]
    assert not found.holds
    assert found.why.startswith("shifting the text by (17, 0) changes the score of ")
    assert check(RoPE(axial(16)))["shift_invariant"].holds


def test_rows_of_keys_are_bounded_too_and_up_to_the_end():
    """xPos: keys grow 3.5-fold each 512 tokens from the centre, as queries shrink."""
    found = check(XPos(16))["bounded"]
    assert not found.holds
    assert re.fullmatch(
        r"keys: largest entry .* at the last positions, .* in the first 1,024", found.why
    )
    assert check(RoPE(16))["bounded"].holds
    assert check(Learned(20, 64))["bounded"].holds  # near is the whole table


def test_no_number_of_bits_has_any_length():
    for width in (8, 16, 32, 64):
        assert not check(Binary(width), heads=1)["any_length"].holds


class Shrinks(Encoding):
    """Queries times exp(−p), keys times exp(p): in the scores, or in queries and keys."""

    def __init__(self, into_scores):
        super().__init__()
        if not into_scores:
            self.on_queries = lambda q, at: q * (-0.1 * at.unsqueeze(-1)).exp()
            self.on_keys = lambda k, at: k * (0.1 * at.unsqueeze(-1)).exp()
        else:
            self.on_scores = self._bias

    @property
    def acts_on(self):
        return tuple(hook for hook in ("on_queries", "on_keys", "on_scores") if hook in vars(self))

    def _bias(self, q, k, q_at, k_at, scale):
        left = (0.1 * (k_at - q_at.unsqueeze(-1))).exp()
        scores = (q @ k.mT) * (left - 1) * scale
        return lambda b, h, i, j: scores[b, h, i, j]


def test_norms_are_those_of_the_formula_however_it_is_cut():
    """The key 8 tokens ahead is e^0.8 as long; the one behind e^−0.8."""
    written = [check(Shrinks(into_scores))["norm_preserving"] for into_scores in (False, True)]
    for found in written:
        assert found.defect == pytest.approx(math.exp(0.8) - 1)
        assert re.search(r"a key at 8 changes by 122\.55%.* 0$", found.why)


def test_queries_that_shrink_as_much_as_keys_grow_preserve_norms():
    class Swapped(Encoding):
        def on_queries(self, q, at):
            return q / 3

        def on_keys(self, k, at):
            return 3 * k

    assert check(Swapped())["norm_preserving"].holds
    assert not check(Temperature(4))["norm_preserving"].holds


def test_decay_must_hold_whatever_is_learned():
    """A slope that may change its sign decays by chance; one that is an exponential does always."""

    class Sloped(Encoding):
        def __init__(self, positive):
            super().__init__()
            self.slope, self.positive = nn.Parameter(torch.ones(1)), positive

        def on_scores(self, q, k, q_at, k_at, scale):
            slope = self.slope.exp() if self.positive else self.slope
            apart = offset(q_at, k_at)
            return lambda b, h, i, j: -slope * apart(b, h, i, j).abs()

    assert check(Sloped(positive=True))["decaying"].holds
    found = check(Sloped(positive=False))["decaying"]
    assert found.why == "first rises at offset 1 with `slope` times −8"


def test_a_table_of_zeros_can_be_measured():
    table = Learned(64, 64)
    table.table.data.zero_()
    found = check(table)
    assert not found["unique_positions"].holds
    assert found["linear_shift"].why.startswith("all position vectors are 0")
    assert found["norm_constant"].why == "norm 0 everywhere"


@pytest.mark.parametrize("name", ["integer", "sine"])
def test_one_row_that_is_flat_does_not_make_all_flat(name):
    """Position 0 adds nothing, so that its row is flat; i · j rises at once from all others."""
    finding = check(create(name, 64, 1))["decaying"]
    assert not finding.holds
    assert finding.why == "first rises at offset 1"
