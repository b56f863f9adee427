"""Attention whose scores fall by a running sum, in triangles and rectangles, against the reference.

Gates are the hardest that can be: they keep all, forget all, jump, differ by head, add up to −∞.
"""

import math

import pytest
import torch
from torch.nn.functional import logsigmoid

from posenc import FoX, RoPE, SelfAttention, Sum, attend, explain, masks
from posenc.attention.cpu import engine
from posenc.attention.cpu.kernel import flash
from posenc.attention.spacing import DiagonalBand
from posenc.biases import decay
from posenc.biases.decay import DecayBias
from posenc.core.positions import sequence
from posenc.encodings.bias.fox import Forgotten

HEADS, DIM = 4, 8
FOX = FoX(HEADS * DIM, HEADS)
TOKENS = 70
# What the gates are the sigmoid of, (head, token)
GATES = {
    "keep all": lambda n: torch.full((HEADS, n), math.inf),
    "halve": lambda n: torch.zeros(HEADS, n),
    "nearly keep": lambda n: torch.full((HEADS, n), 6.0),
    "differ by head": lambda n: torch.linspace(9, -100, HEADS).unsqueeze(-1).expand(-1, n),
    "forget all": lambda n: torch.full((HEADS, n), -3e4),
    "alternate": lambda n: 1e3 * (-1.0) ** torch.arange(n).expand(HEADS, n),
    "forget once": lambda n: 30 - 5e5 * (torch.arange(n) == n // 3).expand(HEADS, n),
    "by chance": lambda n: 5 * torch.randn(HEADS, n),
}
gated = pytest.mark.parametrize("gates", GATES)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Use blocks of 16 queries, so that a short text has every kind of part."""
    monkeypatch.setattr(decay, "ROWS", 16)


def logits(gates, texts=1, tokens=TOKENS):
    return torch.stack([GATES[gates](tokens).double() + b for b in range(texts)])


def sums(logits):
    return logsigmoid(logits).cumsum(-1)


def heads(heads, tokens, texts=2, channels=DIM, dtype=torch.float32):
    return torch.randn(texts, heads, tokens, channels, dtype=dtype)


def outcomes(path, inputs, gates, mask, rows=slice(None), learned=True, **options):
    """Return the output of these queries, and the gradients of q, k, v, sinks and gate logits."""
    q, k, v, *sinks = inputs = [x.detach().requires_grad_() for x in inputs]
    gates = gates.detach().requires_grad_(learned)
    c = sums(gates)
    options |= {"sinks": sinks[0]} if sinks else {}
    out = attend(
        q, k, v, FOX, Forgotten(c[..., rows]), Forgotten(c), mask, implementation=path, **options
    )
    torch.manual_seed(1)
    inputs += [gates] if learned else []
    return out, *torch.autograd.grad(out, inputs, torch.randn_like(out))


def assert_as_reference(inputs, gates, mask, rtol=1e-4, atol=2e-5, **options):
    made, expected = (
        outcomes(path, inputs, gates, mask, **options) for path in ("toeplitz", "reference")
    )
    for x, y in zip(made, expected, strict=True):
        assert x.dtype == y.dtype
        assert x.isfinite().all()
        torch.testing.assert_close(x, y, rtol=rtol, atol=atol)


@gated
@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("groups", [HEADS, 2, 1])
def test_any_gates_give_the_reference_and_its_gradients(gates, texts, groups):
    inputs = [heads(n, TOKENS) for n in (HEADS, groups, groups)]
    assert_as_reference(inputs, logits(gates, texts), masks.causal())


@gated
@pytest.mark.parametrize("rows", [slice(40, None), slice(17, 50), slice(0, 20)])
def test_queries_may_be_a_part_of_the_text(gates, rows):
    """The queries are a part, as with a cache. Keys after the last query are NaN and masked."""
    pos = sequence(TOKENS)
    q, k, v = heads(HEADS, len(pos[rows])), heads(2, TOKENS), heads(2, TOKENS, channels=5)
    for x in (k, v):
        x[..., rows.stop or TOKENS :, :] = float("nan")
    assert_as_reference([q, k, v], logits(gates), masks.causal(pos[rows], pos), rows=rows)


@gated
def test_queries_may_come_after_the_keys_or_before_them(gates):
    """20 of 30 tokens are keys; the queries are all tokens, or the last ones."""
    c, pos = sums(logits(gates, tokens=30)), sequence(30)
    for late, keys in ((slice(0, 30), slice(4, 24)), (slice(24, 30), slice(0, 20))):
        q, k = heads(HEADS, len(pos[late])), heads(HEADS, 20)
        at, k_at = Forgotten(c[..., late]), Forgotten(c[..., keys])
        mask = masks.causal(pos[late], pos[keys])
        made, expected = (
            attend(q, k, k, FOX, at, k_at, mask, implementation=path)
            for path in ("toeplitz", "reference")
        )
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=2e-5)
        alone = slice(0, max(0, keys.start - late.start))
        assert made[:, :, alone].eq(0).all()


@gated
def test_sinks_take_their_share_and_learn(gates):
    inputs = [*(heads(HEADS, TOKENS) for _ in range(3)), torch.randn(HEADS)]
    assert_as_reference(inputs, logits(gates), masks.causal())
    assert_as_reference(inputs, logits(gates), masks.causal(), learned=False)


@gated
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-9), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
)
@pytest.mark.parametrize("learned", [True, False])
def test_other_dtypes_are_as_near_as_they_can_be(gates, dtype, tolerance, learned):
    inputs = [heads(HEADS, TOKENS, dtype=dtype) for _ in range(3)]
    options = dict(learned=learned, rtol=tolerance, atol=tolerance)
    assert_as_reference(inputs, logits(gates), masks.causal(), **options)


@gated
@torch.no_grad()
def test_a_score_that_forgetting_does_not_reach_counts(gates):
    """A key of huge norm far behind is not left out; neither is one beside a value of 0."""
    q, k, v = (heads(HEADS, TOKENS) for _ in range(3))
    k[:, :, 3] *= 300
    v[:, 1, 40:] = 0
    at = Forgotten(sums(logits(gates)))
    made, expected = (
        attend(q, k, v, FOX, at, mask=masks.causal(), implementation=path)
        for path in ("toeplitz", "reference")
    )
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


def test_keys_that_are_forgotten_are_left_out():
    """Heads that forget quickly skip the whole rectangle before the last queries."""
    c = sums(logits("differ by head", tokens=200))
    q = heads(HEADS, 200)
    bias = DecayBias(q, c, c)
    band = DiagonalBand(200, 200, 0, 199)
    parts = [part for part in decay.cut(bias, band, q, q, q, 1.0) if not part.causal]
    kept = lambda head: sum(  # noqa: E731
        len(range(200)[tile.keys])
        for tile in parts
        if head in range(HEADS)[tile.heads] and tile.rows.stop == 200
    )
    assert kept(0) == 192
    assert kept(HEADS - 1) == 0


def test_gates_that_forget_little_take_one_call(monkeypatch):
    calls = []
    monkeypatch.setattr(engine, "flash", lambda *args: calls.append(args) or flash(*args))
    q = heads(HEADS, TOKENS)
    attend(
        q,
        q,
        q,
        FOX,
        Forgotten(sums(logits("nearly keep"))),
        mask=masks.causal(),
        implementation="toeplitz",
    )
    ((*_, bias, _, triangle),) = calls
    assert triangle
    assert bias.stride(-2) == 0


REFUSED = {
    "both ways": (None, "a query sees keys that come after it"),
    "a window": (masks.causal() & masks.window(9), "the mask hides far keys"),
    "padding": (masks.causal() & masks.padding([200, 9]), "not a band along the diagonal"),
}


@pytest.mark.parametrize(("mask", "reason"), REFUSED.values(), ids=REFUSED)
@torch.no_grad()
def test_what_has_no_such_parts_goes_by_blocks(mask, reason):
    q, at = heads(HEADS, 200), Forgotten(sums(logits("halve", tokens=200)))
    assert reason in explain(q, q, q, FOX, at, mask=mask).passed["toeplitz"]


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), 1.0])
def test_sums_that_do_not_fall_go_by_blocks(bad):
    """NaN behind what is padded, −∞ of which differences are NaN, and sums that nobody adds up."""
    q, c = heads(HEADS, 200), sums(logits("halve", tokens=200))
    c[..., 50:] = bad
    said = explain(q, q, q, FOX, Forgotten(c), mask=masks.causal())
    assert "a query sees keys that come after it" in said.passed["toeplitz"]
    made, expected = (
        attend(q, q, q, FOX, Forgotten(c), mask=masks.causal(), implementation=path)[:, :, :50]
        for path in ("auto", "reference")
    )
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=2e-5)


def test_short_texts_and_few_queries_are_left_to_a_row():
    q, c = heads(HEADS, 300), sums(logits("halve", tokens=300))
    path = lambda n: explain(q[:, :, -n:], q, q, FOX, Forgotten(c[..., -n:]), Forgotten(c)).path  # noqa: E731
    assert path(1) == path(8) == "blocks"
    said = explain(
        q[:, :, :90], q[:, :, :90], q[:, :, :90], FOX, Forgotten(c[..., :90]), mask=masks.causal()
    )
    assert "short text" in said.passed["toeplitz"]


def test_a_second_derivative_is_refused():
    q, c = heads(HEADS, TOKENS).requires_grad_(), sums(logits("halve")).requires_grad_()
    out = attend(q, q, q, FOX, Forgotten(c), mask=masks.causal(), implementation="toeplitz")
    with pytest.raises(RuntimeError, match="attention with gates has no second derivative"):
        torch.autograd.grad(out.sum(), c, create_graph=True)


def test_a_layer_learns_its_gates_beside_a_rotation():
    """Gradients of the gates' own weights, through a layer that reads 300 tokens."""
    x = torch.randn(2, 300, HEADS * DIM)
    layer = SelfAttention(HEADS * DIM, HEADS, Sum(RoPE(DIM), FoX(HEADS * DIM, HEADS)))
    grads = []
    for path in ("auto", "reference"):
        out = layer(x, mask=masks.causal(), implementation=path)
        grads.append(torch.autograd.grad(out.square().sum(), [*layer.parameters()]))
    for made, expected in zip(*grads, strict=True):
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
