"""Which calls go by strided views, against the reasons that are given where they do not."""

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
from posenc.core.biases import FEW_QUERIES
from posenc.core.positions import sequence
from posenc.encodings.bias.fox import Forgotten

Q = torch.randn(1, 4, 40, 8)
REASONS = {
    "content": (dict(encoding=Sum(CoPE(8), ALiBi(4))), "the bias of Sum is no view"),
    "two add to values": (dict(encoding=Sum(Shaw(8), Shaw(8))), "the bias of Sum is no view"),
    "a cap": (dict(encoding=ALiBi(4), softcap=1.0), "no place for `softcap`"),
    "padding": (dict(encoding=ALiBi(4), mask=masks.padding([40])), "no strip along the diagonal"),
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
    assert said.passed["toeplitz"] == "the bias of few queries is a few rows"


def test_it_says_what_makes_a_bias_of_gates_or_counts_a_view():
    q = torch.randn(1, 4, 200, 8)
    said = explain(q, q, q, FoX(32, 4), Forgotten(torch.zeros(1, 4, 200)), mask=masks.causal())
    assert str(said).startswith("toeplitz: the bias of FoX is one number for each key")
    said = explain(q, q, q, CoPE(8), mask=masks.causal())
    assert str(said).startswith("toeplitz: CoPE has one row for all keys beyond its last count.")
