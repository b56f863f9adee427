"""Attention on a GPU: every encoding against the definition in float64 on the CPU."""

import copy

import pytest
import torch

from posenc import Cache, masks
from posenc.attention.attend import attend, explain
from posenc.attention.layer import SelfAttention
from posenc.catalog import CATALOG, find
from posenc.compat.private_torch import VERSION
from posenc.core.encoding import Sum
from posenc.core.positions import folded
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.rotary.rope import RoPE

DIM, HEADS, TOKENS = 16, 4, 200
every = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)


def layer_and_input(card, tokens=TOKENS):
    layer = SelfAttention(DIM * HEADS, HEADS, card.make(DIM, HEADS))
    pos = folded(tokens, layer.encoding.axes)
    mask = masks.causal() if layer.encoding.axes == 1 else None
    return layer, torch.randn(2, tokens, DIM * HEADS), pos, mask


def gradients(layer, x, pos, mask, path):
    """Return the output, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    out = layer(x, pos, mask, path)
    out.mul(torch.linspace(-1, 1, out.shape[-1]).to(out)).square().sum().backward()
    grads = {name: w.grad for name, w in layer.named_parameters() if w.grad is not None}
    return [out.detach(), x.grad, *(grads[name] for name in sorted(grads))]


def error(found, expected):
    """Return the norm of the difference, relative to the expected norm."""
    gap = (found.cpu().double() - expected.double()).norm()
    return (gap / expected.double().norm()).item()


@every
def test_outputs_and_gradients_equal_the_definition(card):
    """Sums of float32 may lose on a GPU 8 times what they lose on the CPU."""
    layer, x, pos, mask = layer_and_input(card)
    exact = gradients(copy.deepcopy(layer).double(), x.double(), pos, mask, "reference")
    here = gradients(copy.deepcopy(layer), x, pos, mask, "reference")
    there = gradients(layer.cuda(), x.cuda(), pos.cuda(), mask, "auto")
    assert len(exact) == len(here) == len(there)
    most = max(grad.norm() for grad in exact)
    for want, cpu, gpu in zip(exact, here, there, strict=True):
        if want.norm() < 1e-9 * most:
            # The exact gradient is 0, as of the bias of keys, and a sum of rounding errors is left
            assert gpu.norm() < 1e-4 * most
        else:
            assert error(gpu, want) <= 1e-5 + 8 * error(cpu, want)


@every
def test_inference_equals_the_definition(card):
    layer, x, pos, mask = layer_and_input(card)
    exact = copy.deepcopy(layer).double()
    with torch.no_grad():
        want, cpu = exact(x.double(), pos, mask, "reference"), layer(x, pos, mask, "reference")
        gpu = layer.cuda()(x.cuda(), pos.cuda(), mask)
    assert error(gpu, want) <= 1e-5 + 8 * error(cpu, want)


@every
def test_bfloat16_loses_no_more_than_on_the_cpu(card):
    layer, x, pos, mask = layer_and_input(card)
    layer, x = layer.bfloat16(), x.bfloat16()
    with torch.no_grad():
        want = copy.deepcopy(layer).double()(x.double(), pos, mask, "reference")
        cpu = layer(x, pos, mask, "reference")
        gpu = layer.cuda()(x.cuda(), pos.cuda(), mask)
    assert gpu.dtype == torch.bfloat16
    assert error(gpu, want) <= 2**-8 + 2 * error(cpu, want)


def definition(q, k, v, encoding, at=None, k_at=None, mask=None, **options):
    """Compute attention by the definition, on the CPU in float64."""
    encoding = copy.deepcopy(encoding).cpu().double()
    at, k_at = (None if x is None else x.cpu() for x in (at, k_at))
    q, k, v = (x.detach().cpu().double() for x in (q, k, v))
    with torch.no_grad():
        return attend(q, k, v, encoding, at, k_at, mask, implementation="reference", **options)


def tensors(queries, keys, channels=DIM, heads=HEADS, groups=None):
    sizes = (heads, queries), (groups or heads, keys), (groups or heads, keys)
    return [torch.randn(2, h, n, channels, device="cuda") for h, n in sizes]


CASES = {
    "8 channels": ((64, 64, 8), lambda: ALiBi(HEADS)),
    "4 channels": ((64, 64, 4), lambda: T5Bias(HEADS)),
    "48 channels": ((64, 64, 48), lambda: ALiBi(HEADS)),
    "80 channels": ((64, 64, 80), lambda: ALiBi(HEADS)),
    "256 channels": ((64, 64, 256), lambda: ALiBi(HEADS)),
    "300 tokens": ((300, 300), lambda: ALiBi(HEADS)),
    "one query": ((1, 300), lambda: ALiBi(HEADS)),
    "one query of T5": ((1, 300), lambda: T5Bias(HEADS)),
    "seven queries": ((7, 300), lambda: T5Bias(HEADS)),
    "3 heads on one": ((130, 130, 16, 6, 2), lambda: ALiBi(6)),
    "3 heads on one, one query": ((1, 130, 16, 6, 2), lambda: ALiBi(6)),
    "4 heads on one, one query": ((1, 130, 16, 4, 1), lambda: ALiBi(4)),
    "RoPE and ALiBi": ((150, 150), lambda: Sum(RoPE(DIM), ALiBi(HEADS))),
    "Shaw": ((150, 150), lambda: Shaw(DIM, reach=9)),
    "DeBERTa": ((150, 150), lambda: DeBERTa(DIM, HEADS)),
    "one token": ((1, 1), lambda: ALiBi(HEADS)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("mask", ["causal", "window"])
def test_sizes_and_masks(case, mask):
    sizes, make = case
    q, k, v = tensors(*sizes)
    encoding, queries, keys = make().cuda(), q.shape[2], k.shape[2]
    k_pos = torch.arange(keys, device="cuda")
    pos = k_pos[keys - queries :]

    def seen(at, k_at):
        causal = masks.causal(at, k_at)
        return causal if mask == "causal" else causal & masks.window(40, at, k_at)

    with torch.no_grad():
        out = attend(q, k, v, encoding, pos, k_pos, seen(pos, k_pos))
    want = definition(q, k, v, encoding, pos, k_pos, seen(pos.cpu(), k_pos.cpu()))
    assert error(out, want) <= 2e-5


SERIES = {  # of calls one after another, whose numbers differ
    "scales": [{"scale": 0.5}, {"scale": 0.7}, {"scale": -0.5}, {"scale": 0.0}],
    "softcaps": [{"softcap": 5.0}, {"softcap": 7.0}, {"softcap": 9.5, "scale": 2.0}],
    "windows": [{"mask": masks.causal() & masks.window(n)} for n in (40, 60, 77)],
    "paddings": [{"mask": masks.padding([n, 150], "left")} for n in (140, 90)],
    "reaches": [{"encoding": T5Bias(HEADS, reach=n)} for n in (128, 64, 32)],
    "tables": [{"encoding": DeBERTa(DIM, HEADS, reach=n)} for n in (64, 32, 16)],
    "maps": [{"encoding": T5Bias(HEADS, bidirectional=way)} for way in (True, False)],
}


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
def test_calls_with_other_numbers_than_the_one_before(series):
    """Torch compiles a number that changes as a symbol, which FlexAttention does not support."""
    for options in series:
        options = {"encoding": T5Bias(HEADS), "mask": masks.causal(), **options}
        encoding = copy.deepcopy(options.pop("encoding"))
        q, k, v = tensors(150, 150)
        want = definition(q, k, v, encoding, **options)
        with torch.no_grad():
            out = attend(q, k, v, encoding.cuda(), **options)
        assert error(out, want) <= 2e-5, options


def test_sinks():
    q, k, v = tensors(150, 150)
    sinks = torch.randn(HEADS, device="cuda")
    for encoding in (NoPE(), ALiBi(HEADS).cuda()):
        with torch.no_grad():
            out = attend(q, k, v, encoding, mask=masks.causal(), sinks=sinks)
        want = definition(q, k, v, encoding, mask=masks.causal(), sinks=sinks.cpu().double())
        assert error(out, want) <= 2e-5


@pytest.mark.parametrize("encoding", [NoPE(), ALiBi(HEADS), T5Bias(HEADS)], ids=type)
def test_packed_documents_do_not_see_each_other(encoding):
    ids = torch.tensor([0] * 70 + [1] * 80).expand(2, -1)
    q, k, v = tensors(150, 150)
    with torch.no_grad():
        out = attend(
            q, k, v, copy.deepcopy(encoding).cuda(),
            mask=masks.causal() & masks.documents(ids.cuda()),
        )  # fmt: skip
    want = definition(q, k, v, encoding, mask=masks.causal() & masks.documents(ids))
    assert error(out, want) <= 2e-5


def test_a_query_that_sees_no_key_gets_0_and_finite_gradients():
    q, k, v = (x.requires_grad_() for x in tensors(150, 150))
    alone = lambda b, h, i, j: (i >= j) & (i != 3)  # noqa: E731
    out = attend(q, k, v, T5Bias(HEADS).cuda(), mask=alone)
    assert out[:, :, 3].eq(0).all()
    for grad in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert grad.isfinite().all()


@pytest.mark.parametrize("name", ["NoPE", "RoPE", "ALiBi", "T5", "Shaw", "FoX", "PaTH"])
def test_a_cache_gives_the_whole_texts_output(name):
    card = find(name)
    layer, x, _, mask = layer_and_input(card, 40)
    layer, x, cache = layer.cuda(), x.cuda(), Cache()
    with torch.no_grad():
        whole = layer(x, None, mask)
        steps = [layer(part, None, mask, cache=cache) for part in x.split([33, 1, 1, 5], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)


def test_lengths_share_a_compiled_kernel():
    """FlexAttention is compiled for the first length, and at most twice for all others."""
    encoding = ALiBi(HEADS).cuda()
    compiled = torch._dynamo.utils.counters["stats"]
    counts = []
    with torch.no_grad():
        for tokens in (140, 200, 333, 512, 700, 1024):
            q, k, v = tensors(tokens, tokens)
            out = attend(q, k, v, encoding, mask=masks.causal())
            assert error(out, definition(q, k, v, encoding, mask=masks.causal())) <= 2e-5
            counts.append(compiled["unique_graphs"])
    assert counts[-1] - counts[0] <= 2, counts


def test_a_long_text_needs_no_matrix_of_its_bias():
    q, k, v = (x.bfloat16() for x in tensors(16_384, 16_384, 64, 8))
    encoding = ALiBi(8).cuda()
    assert explain(q, k, v, encoding, mask=masks.causal()).path == "flex"
    with torch.no_grad():
        attend(q, k, v, encoding, mask=masks.causal())
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attend(q, k, v, encoding, mask=masks.causal())
    assert torch.cuda.max_memory_allocated() - before < 4 * q.numel() * q.element_size()


@pytest.mark.skipif(VERSION < (2, 13), reason="`attend` is compiled from torch 2.13 on")
@pytest.mark.parametrize("name", ["RoPE", "ALiBi", "T5"])
def test_a_compiled_layer_equals_the_layer(name):
    card = find(name)
    layer, x, pos, _ = layer_and_input(card)
    layer, x, pos = layer.cuda(), x.cuda(), pos.cuda()
    compiled = torch.compile(layer, fullgraph=True)
    with torch.no_grad():
        expected = layer(x, pos, masks.causal())
        torch.testing.assert_close(compiled(x, pos, masks.causal()), expected, rtol=1e-4, atol=1e-5)
