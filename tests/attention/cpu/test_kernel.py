"""Torch's CPU kernel against the definition, also as old versions have it, which read past the end
of keys that heads share, and of masks whose rows do not lie side by side.
"""

from itertools import product

import pytest
import torch
from refusals import refused

from posenc import attend, masks
from posenc.attention.cpu import kernel
from posenc.compat import private_torch
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.fire import FIRE
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL

HEADS, DIM, TOKENS = 6, 8, 150


@pytest.fixture(params=["this torch", "an old one"])
def kernels(request, monkeypatch):
    """The kernel as it is, and one that refuses what old ones get wrong."""
    if request.param == "this torch":
        return

    def old(wrapped, first):
        def called(*args, attn_mask, scale):
            q, k, v = args[first : first + 3]
            assert q.shape[1] == k.shape[1] == v.shape[1]
            assert attn_mask is None or attn_mask.stride(-1) in (0, 1)
            return wrapped(*args, attn_mask=attn_mask, scale=scale)

        return called

    monkeypatch.setattr(kernel, "READS_STRIDES", False)
    monkeypatch.setattr(private_torch, "flash", old(private_torch.flash, 0))
    monkeypatch.setattr(private_torch, "flash_backward", old(private_torch.flash_backward, 1))


def inputs(groups, dtype=torch.float64, tokens=TOKENS):
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, n, tokens, DIM, dtype=dtype) for n in (HEADS, groups, groups))
    return [x.requires_grad_() for x in (q, k, v, torch.randn(HEADS, dtype=dtype))]


MASKS = {
    "side by side": lambda mask: mask,
    "across": lambda mask: mask.mT,
    "one for a row": lambda mask: mask[..., :1].expand_as(mask),
}


@pytest.mark.parametrize("lie", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("groups", [6, 3, 1])
@pytest.mark.parametrize("tokens", [TOKENS, HEADS])
def test_its_output_and_gradients_are_those_of_the_softmax(tokens, groups, lie, kernels):
    q, k, v, _ = inputs(groups, tokens=tokens)
    mask = lie(torch.randn(1, HEADS, tokens, tokens, dtype=q.dtype))
    each_k, each_v = (x.repeat_interleave(HEADS // groups, 1) for x in (k, v))
    scores = q @ each_k.mT * 0.3 + mask
    expected = scores.softmax(-1) @ each_v
    out, lse = kernel.flash(q.detach(), k.detach(), v.detach(), mask, 0.3)
    torch.testing.assert_close((out, lse), (expected, scores.logsumexp(-1)))

    grad = torch.randn_like(out)
    got = kernel.flash_backward(grad, q.detach(), k.detach(), v.detach(), out, lse, mask, 0.3)
    torch.testing.assert_close(got, torch.autograd.grad(expected, (q, k, v), grad))


BY_CONTENT = Shaw(DIM, 4), TransformerXL(DIM, HEADS)
CASES = [
    *product([NoPE()], ["sdpa"], [True, False]),
    (FIRE(HEADS), "blocks", False),
    *product([NoPE(), ALiBi(HEADS), T5Bias(HEADS)], ["toeplitz"], [True, False]),
    *product(BY_CONTENT, ["toeplitz"], [False]),
    (BY_CONTENT[1], "toeplitz", True),
]


@pytest.mark.parametrize("groups", [3, 1])
@pytest.mark.parametrize(("encoding", "path", "trains"), CASES)
def test_every_way_that_calls_it_knows_heads_that_share_keys(
    encoding, path, trains, groups, kernels
):
    encoding = encoding.double()
    q, k, v, sinks = inputs(groups)
    options = dict(mask=masks.causal(), sinks=None if encoding in BY_CONTENT else sinks)
    outcomes = []
    for implementation in (path, "reference"):
        with torch.set_grad_enabled(trains):
            out = attend(q, k, v, encoding, implementation=implementation, **options)
        asked = [q, k, v, *encoding.parameters()] if trains else []
        asked += [sinks] if trains and options["sinks"] is not None else []
        outcomes.append([out, *(torch.autograd.grad(out.sin().sum(), asked) if asked else [])])
    torch.testing.assert_close(*outcomes)


def test_the_gradients_of_repeated_keys_are_summed_beyond_16_bits(monkeypatch):
    monkeypatch.setattr(kernel, "READS_STRIDES", False)
    q, k, v, _ = (x.detach() for x in inputs(1, torch.bfloat16))
    out, lse = kernel.flash(q, k, v, None, 0.3)
    _, of_k, _ = kernel.flash_backward(out, q, k, v, out, lse, None, 0.3)
    _, of_each, _ = kernel.flash_backward(
        out, q, k.repeat(1, HEADS, 1, 1), v.repeat(1, HEADS, 1, 1), out, lse, None, 0.3
    )
    torch.testing.assert_close(of_k, of_each.float().sum(1, keepdim=True))


def test_where_torch_shows_no_such_kernel_another_way_is_taken_and_says_why(monkeypatch):
    monkeypatch.setattr(private_torch, "flash", None)
    q, k, v, sink = inputs(3)
    for encoding, options in ((NoPE(), {"sinks": sink}), (ALiBi(HEADS), {})):
        expected = attend(q, k, v, encoding, implementation="reference", **options)
        torch.testing.assert_close(attend(q, k, v, encoding, **options), expected)
    with refused(ValueError, "CPU"):
        attend(q, k, v, ALiBi(HEADS), implementation="toeplitz")
    with refused(ValueError, "CPU"):
        attend(q, k, v, NoPE(), sinks=sink, implementation="sdpa")
