"""Calls that the CPU path for banded biases computes, and the reasons why it cannot."""

import re

import pytest
import torch

from posenc import (
    ALiBi,
    CoPE,
    FoX,
    NoPE,
    Shaw,
    Sum,
    T5Bias,
    TransformerXL,
    attend,
    explain,
    masks,
)
from posenc.attention.cpu import engine
from posenc.core.biases import FEW_QUERIES, ScoreBias
from posenc.core.encoding import Encoding
from posenc.core.positions import sequence
from posenc.encodings.bias.fox import Forgotten

Q = torch.randn(1, 4, 40, 8)
REASONS = {
    "content": (dict(encoding=Sum(CoPE(8), ALiBi(4))), "the bias of Sum .*distance"),
    "two add to values": (dict(encoding=Sum(Shaw(8), Shaw(8))), "the bias of Sum .*distance"),
    "a cap": (dict(encoding=ALiBi(4), softcap=1.0), "`softcap`"),
    "padding": (dict(encoding=ALiBi(4), mask=masks.padding([40])), "not a band along the diagonal"),
    "halves": (dict(encoding=ALiBi(4), at=sequence(40) / 2), "no.* whole numbers at equal steps"),
}


@pytest.mark.parametrize(("given", "reason"), REASONS.values(), ids=REASONS)
@torch.no_grad()
def test_it_says_why_not(given, reason):
    said = explain(Q, Q, Q, **given)
    assert said.path == "blocks"
    assert re.search(reason, said.passed["toeplitz"])


@pytest.mark.parametrize(
    "encoding", [NoPE(), ALiBi(4), T5Bias(4), Shaw(8), TransformerXL(8, 4)], ids=type
)
@torch.no_grad()
def test_what_goes_by_views_equals_the_reference(encoding):
    mask = masks.causal() & masks.window(9)
    assert explain(Q, Q, Q, encoding, mask=mask).path == "toeplitz"
    torch.testing.assert_close(
        attend(Q, Q, Q, encoding, mask=mask),
        attend(Q, Q, Q, encoding, mask=mask, implementation="reference"),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_a_strip_without_pairs_gives_zeros_with_gradients_of_zero():
    q, k = Q.clone().requires_grad_(), Q[:, :, :5].clone().requires_grad_()
    nobody = masks.window(3, sequence(40, 100), sequence(5))
    encoding = T5Bias(4)
    out = attend(
        q, k, k, encoding, sequence(40, 100), sequence(5), nobody, implementation="toeplitz"
    )
    grads = torch.autograd.grad(out.sum(), (q, k, encoding.weight))
    assert out.eq(0).all()
    assert all(grad.eq(0).all() for grad in grads)


def test_few_queries_are_left_to_a_row():
    with torch.no_grad():
        few = FEW_QUERIES
        said = explain(Q[:, :, :few], Q, Q, ALiBi(4), sequence(few), sequence(40))
    assert "few queries" in said.passed["toeplitz"]


def test_it_says_what_makes_a_bias_of_gates_or_counts_a_view():
    q = torch.randn(1, 4, 200, 8)
    said = explain(q, q, q, FoX(32, 4), Forgotten(torch.zeros(1, 4, 200)), mask=masks.causal())
    assert str(said).startswith("toeplitz: the bias of FoX is one number")
    said = explain(q, q, q, CoPE(8), mask=masks.causal())
    assert str(said).startswith("toeplitz: CoPE has one vector for all keys")


COUNTS = []  # threads that torch has in calls of `OwnBias`


class Own(Encoding):
    """A bias of zeros that brings its own way, and notes the threads that torch has there."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return OwnBias()


class OwnBias(ScoreBias):
    view = "{} brings its own way."

    def block(self, rows, keys, seen=None):
        return torch.zeros(1)

    def attended(self, call, band):
        COUNTS.append(torch.get_num_threads())
        return attend(call.q, call.k, call.v, NoPE(), mask=call.mask, scale=call.scale)

    def refuses(self, call, band):
        return "" if band.is_causal else "it is causal"


def test_a_bias_brings_its_own_way():
    """A bias with its own kernel equals the definition, though attention does not import it."""
    said = explain(Q, Q, Q, Own(), mask=masks.causal())
    assert str(said).startswith("toeplitz: Own brings its own way.")
    assert explain(Q, Q, Q, Own()).passed["toeplitz"] == "it is causal"
    expected = attend(Q, Q, Q, Own(), mask=masks.causal(), implementation="reference")
    torch.testing.assert_close(attend(Q, Q, Q, Own(), mask=masks.causal()), expected)


def test_one_thread_computes_what_lies_between_tiles_that_threads_share(monkeypatch):
    """Torch's own operations use all threads for few or many scores, and one thread otherwise."""
    before, q = torch.get_num_threads(), torch.randn(1, 4, 1200, 64)
    torch.set_num_threads(2)
    COUNTS.clear()
    try:
        attend(*[q[:, :, :1000]] * 3, Own(), mask=masks.causal())
        attend(q, q, q, Own(), mask=masks.causal())
        monkeypatch.setattr(engine, "MOST_SCORES", 0)
        attend(q, q, q, Own(), mask=masks.causal())
    finally:
        torch.set_num_threads(before)
    assert COUNTS == [2, 1, 2]
