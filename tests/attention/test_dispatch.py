"""The path that `auto` chooses and its reason, against the expected ones, written out."""

import re

import pytest
import torch
from spaced_attention import DIM, HEADS, heads, tensors
from torch.overrides import TorchFunctionMode

from posenc import (
    FIRE,
    ALiBi,
    CoPE,
    DeBERTa,
    NoPE,
    RoPE,
    Shaw,
    Sum,
    T5Bias,
    TransformerXL,
    attend,
    explain,
    masks,
)
from posenc.core.biases import dense
from posenc.core.masks import causal, window
from posenc.core.positions import sequence

POS = sequence(200)


@pytest.mark.parametrize(
    ("encoding", "pos", "mask", "path", "why"),
    [
        (NoPE(), POS, masks.padding([200, 9]), "sdpa", "NoPE adds nothing to scores"),
        (RoPE(DIM), POS, causal(POS), "sdpa", "RoPE adds nothing to scores"),
        (RoPE(DIM), POS, causal() & window(9), "toeplitz", "equal steps"),
        (ALiBi(4), POS, causal(), "toeplitz", "ALiBi .*distance.* equal steps"),
        (ALiBi(4), 7 * POS + 3, causal(7 * POS), "toeplitz", "distance"),
        (Shaw(DIM), POS, None, "toeplitz", "Shaw .*distance"),
        (TransformerXL(DIM, 4), POS, causal(POS) & window(9, POS), "toeplitz", "distance"),
        (ALiBi(4), POS, masks.padding([200, 9]), "blocks", "not a band"),
        (ALiBi(4), POS, causal() | window(3), "blocks", "not a band"),
        (ALiBi(4), POS, lambda b, h, i, j: i >= j, "blocks", "not a band"),
        (ALiBi(4), POS, causal() & (lambda b, h, i, j: i > 3), "blocks", "not a band"),
        (ALiBi(4), POS, causal(POS.flip(0)), "blocks", "not a band"),
        (ALiBi(4), POS.flip(0), None, "blocks", "not whole numbers at equal steps"),
        (ALiBi(4), POS * 0.5, None, "blocks", "not whole numbers at equal steps"),
        (ALiBi(4), torch.stack((POS, POS + 1)), None, "blocks", "not .* in all texts"),
        (Sum(ALiBi(4), Shaw(DIM)), POS, None, "blocks", "the bias of Sum .*distance"),
        (FIRE(4, length=9), POS, None, "toeplitz", "few ReLU units of FIRE"),
        (FIRE(4, length=9), POS * 0.5, None, "blocks", "not whole numbers at equal steps"),
    ],
)  # fmt: skip
def test_the_path_is_explained(encoding, pos, mask, path, why):
    q, k, v = tensors(POS, POS)
    with torch.no_grad():
        said = explain(q, k, v, encoding, encoding.prepare(pos), mask=mask)
    assert said.path == path
    assert str(said).startswith(f"{path}: ")
    assert re.search(why, str(said), re.MULTILINE)
    assert said.why.endswith(".")


def test_few_queries_are_a_reason_too_and_gradients_are_none():
    q, k, v = tensors(POS, POS)
    assert explain(q, k, v, Shaw(DIM)).path == "toeplitz"
    said = explain(q[..., :1, :], k, v, Shaw(DIM), POS[-1:], POS)
    assert "few queries" in said.passed["toeplitz"]
    said = explain(q[..., :5, :], k, v, ALiBi(4), POS[:5] * 0.5, POS)
    assert said.path == "blocks"
    assert "5 queries in one block" in said.why
    said = explain(q[..., :1, :], k, v, ALiBi(4), POS[-1:], POS)
    assert said.path == "blocks"
    assert "few queries" in said.passed["toeplitz"]
    said = explain(q[..., :1, :].requires_grad_(), k, v, ALiBi(4), POS[-1:], POS)
    assert said.path == "blocks"
    said = explain(q.to("meta"), k.to("meta"), v.to("meta"), ALiBi(4))
    assert "torch's CPU kernel" in said.passed["toeplitz"]


@pytest.mark.parametrize(
    ("encoding", "mask", "message"),
    [
        (
            Sum(ALiBi(4), Shaw(DIM)),
            None,
            "compute Sum here.* the bias of Sum .*distance",
        ),
        (ALiBi(4), masks.padding([9, 9]), "not a band"),
    ],
)
def test_what_is_no_view_is_refused(encoding, mask, message):
    q = heads(4, 9).requires_grad_()
    with pytest.raises(ValueError, match=message):
        attend(q, q, q, encoding, mask=mask, implementation="toeplitz")


@pytest.mark.parametrize("encoding", [ALiBi(4), T5Bias(4), Shaw(DIM)], ids=type)
@pytest.mark.parametrize(("queries", "keys"), [(0, 0), (0, 5)])
def test_nothing_attends_to_anything(encoding, queries, keys):
    at, k_at = sequence(queries), sequence(keys)
    q, k, v = tensors(at, k_at)
    assert attend(q, k, v, encoding, at, k_at).shape == (2, HEADS, queries, DIM)


def test_transforms_of_functions_find_another_path():
    q = heads(4, 9)
    run = lambda q: attend(q, q, q, ALiBi(4), mask=causal())  # noqa: E731
    each = torch.vmap(lambda one: run(one.unsqueeze(0)).squeeze(0))(q)
    torch.testing.assert_close(each, run(q))
    (expected,) = torch.autograd.grad(run(q.requires_grad_()).sum(), q)
    torch.testing.assert_close(torch.func.grad(lambda q: run(q).sum())(q.detach()), expected)


PLAIN = [
    (NoPE(), causal(), "auto"),
    (RoPE(DIM), masks.padding([150, 9]), "auto"),
    (ALiBi(4), masks.padding([150, 9]), "blocks"),
]


@pytest.mark.parametrize(("encoding", "mask", "path"), PLAIN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_where_torchs_kernel_has_no_second_derivative_a_sentence_says_so(
    encoding, mask, path, dtype
):
    q = heads(4, 150, dtype=dtype).requires_grad_()
    message = r"kernel has no second derivative.*create_graph.*\"reference\""
    for way, refused in ((path, True), ("reference", False)):
        elsewhere = torch.ones(1, dtype=dtype, requires_grad=True)
        out = attend(q, q, q, encoding, mask=mask, implementation=way)
        loss = out.square().sum() + elsewhere**3
        grad, other = torch.autograd.grad(loss, (q, elsewhere), create_graph=True)
        assert torch.autograd.grad(other, elsewhere, retain_graph=True)[0] == 6
        if refused:
            with pytest.raises(RuntimeError, match=message):
                torch.autograd.grad(grad.square().sum(), q)
        else:
            assert torch.autograd.grad(grad.square().sum(), q)[0].ne(0).any()


CUDA = torch.device("cuda")


class OnCuda(torch.Tensor):
    """A tensor that reports CUDA as its device, and computes on the CPU."""

    is_cuda, is_cpu, device = True, False, CUDA


class Cuda(TorchFunctionMode):
    """A mode in which tensors that are made on CUDA report CUDA as their device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        given = [*args, *(kwargs or {}).values()]
        is_cuda = lambda x: isinstance(x, str | torch.device) and str(x) == "cuda"  # noqa: E731
        there, here = any(map(is_cuda, given)), lambda x: "cpu" if is_cuda(x) else x
        out = function(*map(here, args), **{n: here(x) for n, x in (kwargs or {}).items()})
        return out.as_subclass(OnCuda) if there and isinstance(out, torch.Tensor) else out


ON_CUDA = {  # of each encoding and mask: the path, for whole texts and while training
    "NoPE": (lambda: NoPE(), causal(), "sdpa"),
    "RoPE in a window": (lambda: RoPE(DIM), causal() & window(9), "flex"),
    "ALiBi": (lambda: ALiBi(4), causal(), "flex"),
    "T5": (lambda: T5Bias(4), causal(), "flex"),
    "DeBERTa": (lambda: DeBERTa(DIM, 4), None, "flex"),
    "RoPE and ALiBi": (lambda: Sum(RoPE(DIM), ALiBi(4)), causal(), "flex"),
    "Shaw": (lambda: Shaw(DIM), causal(), "blocks"),  # adds to the values
    "CoPE": (lambda: CoPE(DIM), causal(), "blocks"),  # no function of one pair
}


@pytest.mark.parametrize(("make", "mask", "path"), ON_CUDA.values(), ids=ON_CUDA)
@pytest.mark.parametrize("training", [False, True])
def test_on_cuda_flex_attention_is_the_default_for_what_has_a_function_of_one_pair(
    make, mask, path, training
):
    """Tensors only report a device: the choice is tested, and nothing is computed."""
    with Cuda(), torch.set_grad_enabled(training):
        q = torch.ones(1, 4, 200, DIM, device="cuda").requires_grad_(training)
        pos, encoding = torch.arange(200, device="cuda"), make()
        said = explain(q, q, q, encoding, pos, mask=mask)
    assert said.path == path
    if path == "flex":
        assert "trace" in said.passed["toeplitz"]


def test_on_cuda_what_flex_attention_has_no_place_for_goes_by_blocks():
    with Cuda(), torch.no_grad():
        q, pos = torch.ones(1, 4, 200, DIM, device="cuda"), torch.arange(200, device="cuda")
        for how in ({"dropout": 0.1}, {"sinks": torch.zeros(4, device="cuda")}):
            said = explain(q, q, q, ALiBi(4), pos, **how)
            assert said.path == "blocks"
            assert "FlexAttention" in said.passed["flex"]


@pytest.mark.parametrize("scale", [-0.3, 0.0])
@pytest.mark.parametrize("mask", [None, causal(), window(2)], ids=["all", "causal", "a window"])
def test_a_scale_of_0_or_below_is_one_without_an_encoding_too(scale, mask):
    """Against the formula: a kernel that multiplied the −∞ of hidden keys would give NaN."""
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    shown = torch.ones(6, 6).bool() if mask is None else dense(mask, (1, 1, 6, 6))
    scores = (q @ k.mT * scale).masked_fill(~shown, float("-inf"))
    out = attend(q, k, v, NoPE(), mask=mask, scale=scale)
    torch.testing.assert_close(out, scores.softmax(-1) @ v, rtol=1e-4, atol=1e-5)
