"""Properties of encodings that depend on earlier tokens, against formulas."""

from typing import NamedTuple

import pytest
import torch
from refusals import refused
from torch import Tensor, nn

from posenc.biases.distance import DistanceBias
from posenc.core.encoding import Encoding, Sum
from posenc.core.prepared import Prepared
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import Probe, check


class Sums(Prepared, NamedTuple("Sums", [("logs", Tensor)])):
    """Logarithms of the gates, added up over the text, (batch, head, token)."""

    shape = "head token"


class Forgets(Encoding):
    """FoX: the gates of the tokens between a query and a key lower their score."""

    causal = True
    prepared = Sums
    heads = 4

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(64, 4)

    def on_hidden(self, x, at):
        return Sums(nn.functional.logsigmoid(self.gate(x)).cumsum(-2).mT)

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: q_at.logs[b, h, i] - k_at.logs[b, h, j]


class Counted(NamedTuple):
    """The number of keys from a key to the query that the query counts as marks, for each pair."""

    q: Tensor
    k: Tensor
    rows: Tensor

    def block(self, rows, keys, seen):
        gates = (self.q[..., rows, :] @ self.k[..., keys, :].mT).sigmoid()
        gates = gates if seen is None else gates * seen
        return gates.flip(-1).cumsum(-1).flip(-1) * self.rows


class Counts(Encoding):
    """CoPE, but for a line in place of its table."""

    causal = True

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.tensor(0.3))

    def on_scores(self, q, k, q_at, k_at, scale):
        return Counted(q, k, self.rows)


class Order(Encoding):
    """The later key of two scores higher, wherever they stand."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(lambda h, offset: 1.0 * (offset < 0), q, q_at, k_at)


def holding(found):
    return {name for name, finding in found.items() if finding.holds}


COUNTING = {"shift_invariant", "norm_preserving", "any_length", "length_independent"}


def test_gates_are_measured_with_the_text_that_the_layer_reads():
    """Every gate is below 1, so that of equal words the nearer scores higher; nothing goes by p."""
    assert holding(check(Forgets())) == COUNTING | {"order_sensitive", "decaying", "learned"}
    assert check(Forgets())["symmetric"].mark == "–"


def test_what_is_counted_under_the_mask_needs_no_later_tokens():
    """Without a mask, tokens that are appended count for those before them."""
    assert holding(check(Counts())) >= COUNTING | {"order_sensitive", "learned"}
    unmasked = check(Counts(), causal=False)
    assert not unmasked["length_independent"].holds
    assert "appending 9 tokens changes the score" in unmasked["length_independent"].why


def test_scores_that_the_mask_hides_are_nothing_a_property_can_go_by():
    assert check(Order())["order_sensitive"].holds
    assert not check(Order(), causal=True)["order_sensitive"].holds
    probe = Probe(RoPE(16), causal=True)
    scores = probe.scores(probe.line(5), probe.line(5))
    assert scores.triu(1).abs().sum() == 0
    assert (scores.tril() != 0).sum() == 4 * 15


def test_gated_scores_are_those_of_the_formula():
    """By loops over pairs, from the probe's own text."""
    probe = Probe(Forgets())
    gate, n = probe.encoding.gate, 5
    found = probe.scores(probe.line(n), probe.line(n))
    x = probe.x[:n]
    q, k = (probe.split(x @ to)[0] for to in (probe.to_q, probe.to_k))
    for i in range(n):
        for j in range(i + 1):
            forgotten = sum(
                (torch.sigmoid(gate(x[t])).log() for t in range(j + 1, i + 1)), torch.zeros(4)
            )
            expected = (q[:, i] * k[:, j]).sum(-1) / 4 + forgotten
            torch.testing.assert_close(found[:, i, j], expected.double())


@pytest.mark.parametrize("encoding", [ALiBi(4), RoPE(16), T5Bias(4), NoPE()], ids=type)
def test_a_mask_takes_nothing_from_encodings_that_do_without_one(encoding):
    """Shifting a text, and appending to it, is the same with and without; so is its order."""
    plain, masked = check(encoding), check(encoding, causal=True)
    for name in ("shift_invariant", "length_independent", "order_sensitive", "any_length"):
        assert plain[name].holds == masked[name].holds, name


def test_a_sum_is_causal_if_a_part_is_and_has_no_rows_of_its_own():
    both = Sum(RoPE(16), Forgets())
    assert both.causal
    assert not Sum(RoPE(16), ALiBi(4)).causal
    found = check(both)
    assert found["order_sensitive"].holds
    assert found["shift_invariant"].holds
    assert found["unique_positions"].mark == "–"


def test_causal_is_true_or_false(unchecked):
    with refused(TypeError, "`causal`", "True", "False", 1):
        check(RoPE(16), causal=1)
