"""Attention to keys that are carried from chunk to chunk, forward and backward, against reference.

The definition computes the scores of each query by walking back over the tokens before it.
"""

from itertools import product

import pytest
import torch
from engine_threads import two_threads

from posenc import PaTH, Sum, Wall, attend, masks
from posenc.biases.transported_keys import TransportedBias
from posenc.core.positions import sequence
from posenc.encodings.bias.alibi import ALiBi

WIDTH, HEADS, DIM = 32, 4, 8
ENCODINGS = {"PaTH": PaTH, "Wall": Wall}
HOSTILE = {"0": -200.0, "1": 0.0, "2 or open": 200.0}  # β of PaTH; Wall: all forgotten … nothing


def made(name, bias=None):
    encoding = ENCODINGS[name](WIDTH, HEADS)
    gate = encoding.strength if name == "PaTH" else encoding.gate
    gate.weight.data.normal_()
    if bias is not None:
        gate.weight.data.zero_()
        gate.bias.data.fill_(bias)
    return encoding


def inputs(tokens, groups=HEADS, dtype=torch.float32, alike=False):
    x = torch.randn(2, 1 if alike else tokens, WIDTH).expand(2, tokens, WIDTH).clone()
    q, k, v = (torch.randn(2, heads, tokens, DIM, dtype=dtype) for heads in (HEADS, groups, groups))
    return [t.requires_grad_() for t in (x, q, k, v)]


def output_and_gradients(encoding, x, q, k, v, path):
    at = encoding.on_hidden(x, encoding.prepare(sequence(x.shape[1])))
    out = attend(q, k, v, encoding, at, mask=masks.causal(), implementation=path)
    grad = torch.linspace(-1, 1, out.numel()).sin().view_as(out).to(out.dtype)
    return out, *torch.autograd.grad(out, (x, q, k, v, *encoding.parameters()), grad)


def assert_as_defined(encoding, x, q, k, v, tolerance=1e-4):
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    expected = output_and_gradients(encoding, x, *exact, "reference")
    tolerance = 3e-2 if q.dtype.itemsize == 2 else tolerance
    computed = output_and_gradients(encoding, x, q, k, v, "auto")
    for here, there in zip(computed, expected, strict=True):
        atol = tolerance * (1 + there.detach().abs().max().item())
        torch.testing.assert_close(here.double(), there.double(), rtol=0, atol=atol)


@pytest.fixture
def calls(monkeypatch):
    """The calls that are computed by carrying keys."""
    carried_calls, run = [], TransportedBias.attended
    spy = lambda bias, call, band: carried_calls.append(call) or run(bias, call, band)  # noqa: E731
    monkeypatch.setattr(TransportedBias, "attended", spy)
    return carried_calls


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
def test_equals_the_definition(name, tokens, calls):
    for groups, dtype in product((HEADS, 2, 1), (torch.float32, torch.float64, torch.bfloat16)):
        assert_as_defined(made(name), *inputs(tokens, groups, dtype))
    # A token alone is a row
    assert len(calls) == (0 if tokens == 1 else 9)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("gate", HOSTILE)
@pytest.mark.parametrize("name", ENCODINGS)
def test_equals_the_definition_where_gates_are_hostile(name, gate, alike, calls):
    encoding, wide = made(name, HOSTILE[gate]), inputs(640, 2, torch.float64, alike)
    assert_as_defined(encoding, *inputs(200, 2, alike=alike))
    x = wide[0].detach().double().requires_grad_()
    assert_as_defined(encoding.double(), x, *wide[1:], tolerance=1e-9)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ENCODINGS)
def test_texts_that_share_what_was_read_share_it(name, calls):
    encoding, (x, q, k, v) = made(name), inputs(150)
    at = encoding.on_hidden(x[:1], encoding.prepare(sequence(150)))
    both = [
        attend(q, k, v, encoding, at, mask=masks.causal(), implementation=path)
        for path in ("auto", "reference")
    ]
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-5)
    one, other = (
        torch.autograd.grad(out.square().sum(), (x, q, k, v), retain_graph=True) for out in both
    )
    for here, there in zip(one, other, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)
    assert calls


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_key_that_is_no_number_reaches_no_query_before_its_own_chunk(name):
    encoding, (x, q, k, v) = made(name), inputs(200)
    at, dirty = encoding.on_hidden(x, encoding.prepare(sequence(200))), k.detach().clone()
    dirty[:, :, 130] = torch.nan
    out = attend(q, dirty, v, encoding, at, mask=masks.causal())
    expected = attend(q, k, v, encoding, at, mask=masks.causal())
    torch.testing.assert_close(out[:, :, :130], expected[:, :, :130])
    assert out[:, :, 130:].isnan().all()


OTHERS = {
    "a window": {"mask": masks.causal() & masks.window(20)},
    "documents": {"mask": masks.causal() & masks.documents(torch.arange(150) // 40)},
    "padding": {"mask": masks.causal() & masks.padding([100, 150], tokens=150)},
    "keys ahead": {},
    "sinks": {"mask": masks.causal(), "sinks": torch.zeros(HEADS)},
    "a softcap": {"mask": masks.causal(), "softcap": 3.0},
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", ENCODINGS)
def test_other_calls_are_computed_from_scores(name, other, calls):
    encoding, (x, q, k, v) = made(name, 0.5), inputs(150)
    at = encoding.on_hidden(x, encoding.prepare(sequence(150)))
    both = [
        attend(q, k, v, encoding, at, **OTHERS[other], implementation=path)
        for path in ("auto", "reference")
    ]
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-5)
    assert not calls


@pytest.mark.parametrize("name", ENCODINGS)
def test_queries_of_another_text_and_sums_are_computed_from_scores(name, calls):
    encoding, (x, q, k, v), (y, *_) = made(name), inputs(150), inputs(150)
    pos = encoding.prepare(sequence(150))
    at, k_at = encoding.on_hidden(x, pos), encoding.on_hidden(y, pos)
    if name == "PaTH":  # depends on the number of tokens read so far
        at = at._replace(order=at.order + 3)
    added = Sum(encoding, ALiBi(HEADS))
    sum_at = added.on_hidden(x, added.prepare(sequence(150)))
    for some, some_at, some_k_at in ((encoding, at, k_at), (added, sum_at, None)):
        both = [
            attend(q, k, v, some, some_at, some_k_at, masks.causal(), implementation=path)
            for path in ("auto", "reference")
        ]
        torch.testing.assert_close(*both, rtol=1e-4, atol=1e-5)
    assert not calls


@pytest.mark.parametrize("name", ENCODINGS)
def test_has_no_second_derivative(name):
    encoding, (x, q, k, v) = made(name), inputs(70)
    at = encoding.on_hidden(x, encoding.prepare(sequence(70)))
    out = attend(q, k, v, encoding, at, mask=masks.causal()).sum()
    with pytest.raises(RuntimeError, match="transported keys has no second derivative"):
        torch.autograd.grad(out, q, create_graph=True)


@pytest.mark.parametrize("name", ENCODINGS)
def test_threads_that_share_the_heads_give_what_one_gives(name, monkeypatch):
    """Held against one thread, of enough chunks that keys are carried again for the gradients."""
    encoding = made(name).double()
    x, q, k, v = (t.detach().double().requires_grad_() for t in inputs(64 * 10))
    one = output_and_gradients(encoding, x, q, k, v, "auto")
    with two_threads(monkeypatch):
        two = output_and_gradients(encoding, x, q, k, v, "auto")
    torch.testing.assert_close(two, one)


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_graph_that_is_kept_gives_the_same_gradients_again(name):
    """Against the first pass, for which chunks were kept."""
    encoding, (x, q, k, v) = made(name), inputs(150)
    at = encoding.on_hidden(x, encoding.prepare(sequence(150)))
    out = attend(q, k, v, encoding, at, mask=masks.causal()).square().sum()
    first = torch.autograd.grad(out, (x, q, k, v), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(out, (x, q, k, v)), first)
