"""Packed documents: against the definition, and against each document as a text of its own."""

import re
from itertools import product

import pytest
import torch
from spaced_attention import DIM, HEADS, heads
from thorough import some

from posenc import (
    CATALOG,
    ALiBi,
    Cache,
    Encoding,
    NoPE,
    RoPE,
    SelfAttention,
    Shaw,
    Sum,
    T5Bias,
    attend,
    explain,
    masks,
    positions,
)
from posenc.attention import documents
from posenc.core.positions import folded, sequence

LENGTHS = [9, 1, 0, 30, 1, 19]
TOKENS = sum(LENGTHS)
IDS, POS = positions.documents(LENGTHS), positions.packed(LENGTHS)
OTHERS = torch.tensor([7] * 20 + [-3] * 40)
BOTH = torch.stack((IDS, OTHERS))
CARDS = [card for card in CATALOG if card.slug != "normalized"]
MASKS = {
    "alone": masks.documents(IDS),
    "causal": masks.causal() & masks.documents(IDS),
    "positions that run on": masks.causal(sequence(TOKENS, 3)) & masks.documents(IDS),
    "positions that restart": masks.documents(IDS) & masks.causal(POS) & masks.window(7, POS),
    "padding": masks.causal() & masks.documents(IDS) & masks.padding([45, 55], tokens=TOKENS),
    "a function": masks.documents(IDS) & (lambda b, h, i, j: (b + i + j) % 3 > 0),
    "of each text": masks.documents(BOTH) & masks.causal(),
    "padding of each text": masks.documents(BOTH) & masks.padding([45, 55], tokens=TOKENS),
    "documents in documents": masks.documents(BOTH) & masks.documents(IDS),
    "a window of each text": masks.documents(BOTH) & masks.window(4, torch.stack((POS, 2 * POS))),
    "keys of their own": masks.documents(IDS, torch.cat((IDS[40:], IDS[:39], IDS[-1:] + 1))),
}
OPTIONS = {
    "plain": {},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": torch.linspace(-1, 2, HEADS)},
    "scale": {"scale": -0.3},
}


@pytest.fixture(autouse=True)
def however_short(monkeypatch):
    monkeypatch.setattr(documents, "WORTH_CUTTING", 0)


def grads(out, inputs):
    return torch.autograd.grad(out.square().sum(), inputs, materialize_grads=True)


@pytest.mark.parametrize(
    ("encoding", "dtype", "option", "mask"),
    some(
        product(
            (RoPE(DIM), T5Bias(HEADS), Shaw(DIM), Sum(RoPE(DIM), ALiBi(HEADS))),
            (torch.float32, torch.float64, torch.bfloat16), OPTIONS, MASKS,
        ),
        every=5,
    ),
)  # fmt: skip
def test_every_mask_of_documents_is_that_of_the_definition(encoding, mask, option, dtype):
    q, k, v = (heads(n, TOKENS, dtype=dtype).requires_grad_() for n in (HEADS, 2, 2))
    learned = [weight for weight in encoding.parameters() if weight.requires_grad]
    run = lambda path: attend(  # noqa: E731
        q, k, v, encoding, POS, mask=MASKS[mask], implementation=path, **OPTIONS[option]
    )
    assert explain(q, k, v, encoding, POS, mask=MASKS[mask], **OPTIONS[option]).path == "documents"
    within = {torch.float32: 1e-5, torch.float64: 1e-7, torch.bfloat16: 0.05}
    near = within[dtype]
    out, expected = run("auto"), run("reference")
    torch.testing.assert_close(out, expected, rtol=near, atol=near)
    with torch.no_grad():
        torch.testing.assert_close(run("auto"), expected, rtol=near, atol=near)
    both = [grads(x, [q, k, v, *learned]) for x in (out, expected)]
    for grad, due in zip(*both, strict=True):
        near = 20 * max(within[dtype], within[grad.dtype])  # the weights stay in float32
        torch.testing.assert_close(grad, due, rtol=near, atol=near)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.slug)
def test_each_document_is_a_text_of_its_own(card):
    """Every encoding of the catalogue: gates and counts too begin with each document."""
    layer, x = SelfAttention(32, 4, card.make(8, 4)), torch.randn(2, TOKENS, 32)
    places = [folded(n, layer.encoding.axes) for n in LENGTHS]
    out = layer(x, torch.cat(places), MASKS["causal"])
    alone = [
        layer(some, pos, masks.causal(), implementation="reference")
        for some, pos in zip(x.split(LENGTHS, 1), places, strict=True)
    ]
    torch.testing.assert_close(out, torch.cat(alone, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.slug)
@torch.no_grad()
def test_a_cache_holds_documents(card):
    layer, x = SelfAttention(32, 4, card.make(8, 4), groups=2), torch.randn(2, TOKENS, 32)
    pos = torch.cat([folded(n, layer.encoding.axes) for n in LENGTHS])
    expected = layer(x, pos, MASKS["of each text"], implementation="reference")
    cache, parts, start = Cache(), [], 0
    for end in (25, 26, TOKENS):
        ids = BOTH[:, :end]
        mask = masks.documents(ids) & masks.causal()
        parts.append(layer(x[:, start:end], pos[start:end], mask, cache=cache))
        start = end
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)


def test_scores_of_other_documents_are_not_made():
    """The pairs that a mask function receives are counted."""
    asked = []

    def sees(b, h, i, j):
        asked.append(i.numel() * j.numel())
        return i >= j

    q = heads(HEADS, TOKENS)
    mask = masks.documents(IDS) & sees
    asked.clear()
    for encoding in (NoPE(), ALiBi(HEADS)):
        attend(q, q, q, encoding, POS, mask=mask)
    assert sum(asked) == 2 * sum(n**2 for n in LENGTHS)


@pytest.mark.parametrize("encoding", [RoPE(DIM), T5Bias(HEADS), Shaw(DIM)], ids=type)
def test_nan_stays_in_its_document(encoding):
    q, k, v = (heads(HEADS, TOKENS) for _ in range(3))
    own = IDS != 3
    expected = attend(q, k, v, encoding, POS, mask=MASKS["causal"])
    k[:, :, ~own], v[:, :, ~own] = float("nan"), float("nan")
    q.requires_grad_()
    out = attend(q, k, v, encoding, POS, mask=MASKS["causal"])
    torch.testing.assert_close(out[:, :, own], expected[:, :, own])
    (grad,) = torch.autograd.grad(out[:, :, own].sum(), q)
    assert grad[:, :, own].isfinite().all()


def test_weights_are_dropped_within_documents():
    q = torch.zeros(1, 1, TOKENS, 4)
    v = torch.nn.functional.one_hot(IDS).float()[None, None]
    torch.manual_seed(0)
    out = attend(q, q, v, NoPE(), mask=MASKS["alone"], dropout=0.5)
    assert out[0, 0][v[0, 0] == 0].eq(0).all()
    assert out[0, 0][v[0, 0] == 1].unique().numel() > 5
    assert out[0, 0, 10:40, 3].mean() == pytest.approx(1, abs=0.1)


class Own(Encoding):
    """An encoding of one's own, which prepares what has no known axis of tokens."""

    def prepare(self, pos):
        return torch.stack((pos, pos))

    def on_scores(self, q, k, q_at, k_at, scale):
        return -(q_at[0, :, None] - k_at[0, None, :]).abs() / 9.0


@pytest.mark.parametrize(
    ("encoding", "ids"),
    [
        (ALiBi(HEADS), torch.arange(TOKENS) % 3),
        (ALiBi(HEADS), torch.stack((IDS, torch.arange(TOKENS) % 3))),
        (Own(), IDS),
    ],
    ids=["scattered", "scattered in one text", "of unknown axes"],
)
def test_what_is_no_run_is_attended_to_at_once(encoding, ids):
    q, mask = heads(HEADS, TOKENS), masks.documents(ids) & masks.causal()
    expected = attend(q, q, q, encoding, mask=mask, implementation="reference")
    assert explain(q, q, q, encoding, mask=mask).path == "blocks"
    torch.testing.assert_close(attend(q, q, q, encoding, mask=mask), expected)


def test_scattered_queries_find_their_document():
    ids = torch.tensor([0, 1, 0, 2, 1])
    q, k = heads(HEADS, 5), heads(HEADS, 4)
    mask = masks.documents(ids, torch.tensor([1, 1, 0, 3]))
    run = lambda path: attend(  # noqa: E731
        q, k, k, ALiBi(HEADS), sequence(5), sequence(4), mask, implementation=path
    )
    assert explain(q, k, k, ALiBi(HEADS), sequence(5), sequence(4), mask).path == "documents"
    torch.testing.assert_close(run("auto"), run("reference"))
    assert run("auto")[:, :, 3].eq(0).all()


def test_transforms_of_functions_take_another_way():
    q = heads(HEADS, TOKENS)
    run = lambda q: attend(q, q, q, ALiBi(HEADS), POS, mask=MASKS["causal"])  # noqa: E731
    each = torch.vmap(lambda one: run(one.unsqueeze(0)).squeeze(0))(q)
    torch.testing.assert_close(each, run(q))
    (due,) = torch.autograd.grad(run(q.requires_grad_()).sum(), q)
    torch.testing.assert_close(torch.func.grad(lambda q: run(q).sum())(q.detach()), due)


def test_an_empty_row_and_an_empty_batch_have_no_documents():
    q = heads(HEADS, 0)
    assert attend(q, q, q, NoPE(), mask=masks.documents(torch.arange(0))).shape == q.shape
    q = heads(HEADS, 5)[:0]
    assert attend(q, q, q, NoPE(), mask=masks.documents(IDS[:5])).shape == q.shape


def test_the_documents_and_their_path_are_explained():
    q = heads(HEADS, TOKENS)
    said = explain(q, q, q, ALiBi(HEADS), POS, mask=MASKS["causal"])
    assert re.match("documents: 5 .* toeplitz: .* ALiBi .*distance", str(said))
    assert list(said.passed) == ["sdpa"]


@pytest.mark.parametrize(("documents_", "cut"), [(8, True), (9, False)])
def test_many_tiny_documents_are_one_call(monkeypatch, documents_, cut):
    """At 2¹⁷ scores of all pairs for each document, one call takes as long as many."""
    monkeypatch.undo()
    lengths = [1] * (documents_ - 1) + [512 - documents_ + 1]
    q = torch.randn(1, 4, 512, DIM)
    mask = masks.documents(positions.documents(lengths))
    assert (explain(q, q, q, NoPE(), mask=mask).path == "documents") == cut
