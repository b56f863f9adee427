"""Each promise, held against encodings written here to break it, and against every card."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import mutants
import pytest
import torch
from torch import Tensor, nn

from posenc.biases.distance import DistanceBias
from posenc.catalog import CATALOG, find
from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import length_independent, shift_invariant
from posenc.properties.conformance import case_of, conform, outcome
from posenc.properties.promises import PROMISES, REMEDIES, SHAPES, TRACED, Sizes

DIM, HEADS = 8, 4
NAMES = [promise.__name__.replace("_", " ") for promise in PROMISES]
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_card_keeps_every_promise(unchecked, card):
    """Encodings that depend on the length of the text do not support a cache, and declare it."""
    found = conform(replace(card, holds=frozenset()), DIM, HEADS, dtypes=FLOATS)
    assert not found.failed, found
    assert card.make(DIM, HEADS).by_length == (length_independent not in card.holds)


# Encodings that break a promise


class Fading(Encoding):
    """ALiBi with one learned slope: it breaks nothing."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.3]))

    def curve(self, h, offset):
        return -self.slope * offset.abs() * (h + 1)

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(self.curve, q, q_at, k_at)


class ForgetsTheBatchOfKeys(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        return -0.1 * (q_at[..., :, None] - k_at[:1, :, None, :]).abs().double()


class ForgetsTheHeads(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        first = q_at[:, :1], k_at[:, :1]
        return DistanceBias(lambda h, offset: -0.1 * offset.abs().double(), q, *first)


class CutOnOnePath(Fading):
    def on_scores(self, q, k, q_at, k_at, scale):
        class Cut(DistanceBias):
            def block(self, rows, keys, seen=None):
                return super().block(rows, keys, seen).detach()

        return Cut(self.curve, q, q_at, k_at)


class Unlike(Fading):
    """An encoding whose fast form differs from its definition."""

    def on_scores(self, q, k, q_at, k_at, scale):
        bias = super().on_scores(q, k, q_at, k_at, scale)
        bias.distance = lambda h, offset: self.curve(h, offset) + 0.1 * (offset == 2)
        return bias


class NeverLearns(Fading):
    def curve(self, h, offset):
        return -self.slope.detach() * offset.abs() * (h + 1)


class Mixes(Encoding):
    """A convolution over two tokens, of the queries, or of other things."""

    def __init__(self, hook="on_queries"):
        super().__init__()
        setattr(self, hook, lambda x, at: x + 0.5 * x.roll(1, -2))
        self.hook = hook

    @property
    def acts_on(self):
        return (self.hook,)


class LooksAhead(Encoding):
    """The prepared values of a token depend on the tokens that follow."""

    class Gates(Prepared, NamedTuple("Gates", [("logs", Tensor)])):
        shape = "token channel"

    prepared = Gates

    def on_hidden(self, x, at):
        return self.Gates(x.flip(1).cumsum(1).flip(1))

    def on_queries(self, q, at):
        return q * at.logs[:, None, :, :1].sigmoid()


class ForItsQueries(Encoding):
    """Reads keys as if there were one for each head of the queries."""

    def on_scores(self, q, k, q_at, k_at, scale):
        likeness = k.mean(-1)[:, : q.shape[1]]
        return lambda b, h, i, j: likeness[b, h % k.shape[1], j]


class Widens(Encoding):
    def on_queries(self, q, at):
        return q * torch.linspace(0.5, 1.5, q.shape[-1], dtype=torch.float64)


class AddsToOutput(Encoding):
    def on_output(self, out, at):
        return out + 1


class Counts(Encoding):
    """Goes by how often it was called."""

    calls = 0

    def on_queries(self, q, at):
        self.calls += 1
        return q * self.calls


class Writes(Encoding):
    def on_embeddings(self, x, at):
        return x.add_(1)


class SeesTheFilling(Encoding):
    """Goes by the largest key of the text."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: k.amax((1, 2, 3))[b] * (i == j)


class Sways(Encoding):
    """The queries of a text are scaled by the other texts of the batch."""

    def on_queries(self, q, at):
        return q / q.norm(dim=0, keepdim=True)


class Backwards(RoPE):
    """Rotary, but keys turn the other way."""

    def on_keys(self, k, at):
        return self.on_queries(k, at._replace(sin=-at.sin))


def failed(mine, **options):
    return {one.name: one for one in conform(mine, DIM, HEADS, **options).failed}


def test_an_encoding_that_breaks_nothing_fails_nowhere():
    assert not failed(Fading)


BROKEN = [
    (ForgetsTheBatchOfKeys(), "batches", "texts have separate positions, path 'auto': "),
    (ForgetsTheHeads(), "positions by head", "heads with separate positions, path 'auto': "),
    (CutOnOnePath(), "paths", r"the gradient of `slope` .*, path 'toeplitz': .* of 0 at"),
    (Unlike(), "paths", "path 'toeplitz': "),
    (NeverLearns(), "parameters learn", "whether `slope` gets a gradient: 0 instead of 1"),
    (Mixes("on_queries"), "token by token", "`on_queries` of tokens without those before: "),
    (Mixes("on_keys"), "token by token", "`on_keys` of tokens without those before: "),
    (Mixes("on_keys"), "cache", "token by token with a cache, path 'auto': "),
    (Mixes("on_values"), "token by token", "`on_values` of tokens without those before: "),
    (Mixes("on_values"), "packed texts", "tokens in one sequence, path 'auto': "),
    (Mixes("on_embeddings"), "token by token", "`on_embeddings` of tokens without those before: "),
    (Mixes("on_output"), "token by token", "`on_output` of tokens without those before: "),
    (LooksAhead(), "token by token", "`on_hidden` of tokens without those that follow: "),
    (ForItsQueries(), "grouped heads", "4 query heads with 2 key heads"),
    (Widens(), "dtypes", "dtype"),
    (AddsToOutput(), "queries without keys", "1 instead of 0 at"),
    (Counts(), "no hidden state", "the same call after another one: "),
    (Writes(), "no hidden state", "the input of the layer after the call: "),
    (SeesTheFilling(), "padding", "with padding on the left"),
    (Sways(), "batches", "in a batch where texts have the same positions"),
    (mutants.WrongBackward(DIM), "gradients", "the slope along `x`: "),
    (mutants.DetachedQueries(DIM), "gradients", "the slope along `q`|the slope along `x`"),
    (mutants.DoubledGradient(), "gradients", "the slope along `slope`: "),
    (mutants.AnglesIn32Bits(DIM), "precision", "`on_queries` at positions from 1,000,000: "),
    (mutants.PositionsOf32Bits(DIM), "precision", "at positions from 3,000,000,000: "),
    (mutants.WeightsReadOnce(), "changed weights", "after the weights have changed, path 'auto'"),
    (mutants.ManyKeys(DIM), "long texts", "the first 40 tokens of 3 texts of 310 tokens"),
    (mutants.NoNumberFarAway(), "long texts", "finite numbers in 3 texts of 310 tokens"),
    (mutants.OtherInTraining(DIM), "training mode", "in training: "),
    (mutants.WritesPositions(DIM), "no hidden state", "part 0 of `at` after attention: 0 instead"),
]


@pytest.mark.parametrize(("mine", "name", "why"), BROKEN)
def test_a_broken_promise_is_found_with_its_witness(mine, name, why):
    found = outcome(PROMISES[NAMES.index(name)], case_of(mine, DIM, HEADS))
    assert found.holds is False
    assert re.search(why, found.why), found
    assert found.remedy in {SHAPES, *REMEDIES.values()}


def test_every_promise_is_broken_by_one_of_these():
    assert {name for _, name, _ in BROKEN} == {*NAMES}


def test_a_card_promises_its_properties_too():
    """Keys that turn the other way break no promise of attention, but one of the card."""
    rope = find("rope")
    assert not failed(Backwards(DIM))
    backwards = replace(rope, make=lambda dim, heads: Backwards(dim))
    assert {*failed(backwards, promises=[])} == {"shift invariant"}
    assert {*failed(Backwards(DIM), promises=[], holds=[shift_invariant])} == {"shift invariant"}
    assert not failed(rope, promises=[])


def test_what_fills_a_table_of_zeros_is_not_hidden_by_the_zeros():
    class Zeros(Encoding):
        """A row for each position, looked up by how many tokens there are."""

        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(64, DIM * HEADS))

        def on_embeddings(self, x, at):
            return x + self.table[at + x.shape[1]]

    assert outcome(PROMISES[NAMES.index("cache")], case_of(Zeros(), DIM, HEADS)).holds is False


def test_what_traces_is_tried_on_request():
    assert [promise.__name__ for promise in TRACED] == ["compiled", "exported"]


def test_sizes_are_named_in_words():
    assert str(Sizes(1, 1, 1)) == "1 text of 1 token, 1 head"
    assert str(Sizes(2, 3, 4)) == "2 texts of 3 tokens, 4 heads"


def test_more_heads_of_keys_than_of_queries_are_refused():
    """Torch's kernel would divide by zero, and the process end."""

    class Doubles(Encoding):
        def on_keys(self, k, at):
            return k.repeat_interleave(2, 1)

    (only,) = conform(Doubles(), DIM, HEADS)
    assert "on_keys" in only.why


# Planted mistakes


@pytest.mark.parametrize("healthy", [mutants.Turned, mutants.Fading])
def test_what_mistakes_are_planted_into_breaks_nothing(healthy, unchecked):
    assert not conform(healthy, DIM, HEADS).failed


@pytest.mark.parametrize("mine", mutants.MUTANTS, ids=lambda mine: mine.__name__)
def test_a_planted_mistake_is_caught(mine, unchecked):
    """Each mutant is a small class with one mistake."""
    assert conform(mine, DIM, HEADS).failed


def test_the_page_counts_the_planted_mistakes():
    assert len({*mutants.MUTANTS}) == len(mutants.MUTANTS)
    page = Path(__file__).parents[2] / "docs" / "using.md"
    if page.exists():
        planted = len(mutants.MUTANTS)
        assert f"{planted} encodings with one planted mistake each" in page.read_text("utf-8")


def test_every_promise_has_a_remedy_of_one_sentence():
    assert {promise.__name__ for promise in (*PROMISES, *TRACED)} | {"runs"} == {*REMEDIES}
    for remedy in (SHAPES, *REMEDIES.values()):
        assert re.fullmatch(r"[A-Z`][^\n]*[^.]\.", remedy)


# Encodings that are right, though they look like some of the mistakes


class Jitters(RoPE):
    """Positions that training draws at random, a larger step each time."""

    def __init__(self, dim):
        super().__init__(dim)

    def prepare(self, pos):
        return super().prepare(pos * int(torch.randint(1, 9, ())) if self.training else pos)


class Drops(Fading):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.2)

    def on_queries(self, q, at):
        return self.drop(q)


class RoundedFrequencies(mutants.Turned):
    """Frequencies in float32, which are constants, and angles in float64."""

    def angle(self, at):
        theta = 1 / torch.arange(1, self.dim // 2 + 1).float()
        return mutants.lined_up(at).unsqueeze(-1).double() * theta


class RoundedOnce(mutants.Turned):
    """Cosines and sines in float32, of angles in float64."""

    def on_queries(self, q, at):
        angle = self.angle(at)
        cos, sin = angle.cos().float().to(q.dtype), angle.sin().float().to(q.dtype)
        x, y = q.chunk(2, -1)
        return torch.cat((cos * x - sin * y, sin * x + cos * y), -1)


@pytest.mark.parametrize("healthy", [Jitters, Drops, RoundedFrequencies, RoundedOnce])
def test_no_false_alarm(healthy, unchecked):
    found = conform(healthy, DIM, HEADS)
    assert not found.failed, found


class ByFirstAxis(Encoding):
    """Positions have three axes: the first is that of texts."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return -0.1 * (q_at[:, None] - k_at[None, :]).abs().double()


class ByLastAxis(Encoding):
    def on_scores(self, q, k, q_at, k_at, scale):
        return -0.1 * (q_at[..., :, None] - k_at[..., None, :]).abs().double()


def test_the_remedy_for_the_shape_of_positions_mends_it(unchecked):
    found = conform(ByFirstAxis, DIM, HEADS)
    assert {one.remedy for one in found.failed} == {SHAPES}
    assert {"batches", "positions by head"} <= {one.name for one in found.failed}
    assert "q_at[..., :, None] - k_at[..., None, :]" in found.refusal
    assert not conform(ByLastAxis, DIM, HEADS).failed
