"""Torch's kernel as it is called, against the definition in float64."""

import pytest
import torch
from refusals import refused

from posenc import ALiBi, NoPE, RoPE, attend, explain, masks
from posenc.attention import sdpa

POS, LAST = torch.arange(40), torch.tensor([39])


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("row", [False, True])
def test_heads_of_a_group_are_rows_of_one_query(groups, row):
    """Against one softmax a head, whose keys are repeated."""
    q, k, v = torch.randn(2, 8, 1, 16), *torch.randn(2, 2, groups, 40, 16)
    bias = torch.randn(2, 8, 1, 40) if row else None
    out = sdpa.one_query(q, k, v, bias, 0.3)
    k, v = (x.double().repeat_interleave(8 // groups, 1) for x in (k, v))
    scores = q.double() @ k.mT * 0.3 + (0 if bias is None else bias)
    torch.testing.assert_close(out.double(), scores.softmax(-1) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoding", [NoPE(), RoPE(16), ALiBi(8)], ids=type)
@pytest.mark.parametrize("mask", [None, masks.causal(LAST, POS), masks.window(7, LAST, POS)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_query_of_grouped_heads_is_the_reference_and_its_gradient(encoding, mask, dtype):
    q = torch.randn(2, 8, 1, 16, dtype=dtype, requires_grad=True)
    k, v = torch.randn(2, 2, 2, 40, 16, dtype=dtype).requires_grad_().unbind()
    outs = [
        attend(q, k, v, encoding, LAST, POS, mask, implementation=path)
        for path in ("auto", "reference")
    ]
    grads = [torch.autograd.grad(out.float().square().sum(), (q, k, v)) for out in outs]
    close = (
        {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    )
    torch.testing.assert_close(*outs, **close)
    torch.testing.assert_close(*grads, **close)


def test_a_query_that_sees_no_key_is_zero():
    q = torch.randn(1, 4, 1, 8)
    k = torch.randn(1, 2, 5, 8)
    ahead = masks.causal(torch.tensor([0]), torch.arange(1, 6))
    out = attend(q, k, k, NoPE(), torch.tensor([0]), torch.arange(1, 6), ahead)
    assert out.eq(0).all()


def test_what_it_cannot_carry_is_said():
    q = torch.randn(1, 8, 40, 16)
    said = explain(q, q, q, ALiBi(8)).passed["sdpa"]
    assert "bias" in said
    with refused(ValueError, "`softcap`"):
        attend(q, q, q, NoPE(), softcap=1.0, implementation="sdpa")


@pytest.mark.parametrize("path", ["auto", "sdpa", "blocks", "reference"])
@pytest.mark.parametrize("mask", [None, masks.causal(torch.tensor([4]), torch.arange(5))])
def test_one_query_of_an_empty_batch_gives_no_rows(path, mask):
    q, k = torch.zeros(0, 4, 1, 8), torch.zeros(0, 2, 5, 8)
    at, k_at = torch.tensor([4]), torch.arange(5)
    out = attend(q, k, k, RoPE(8), at, k_at, mask, implementation=path)
    assert out.shape == (0, 4, 1, 8)
