"""Attention against a plain loop over its definition, and every path against the reference."""

import math
from itertools import product

import pytest
import torch
from hidden import prepared, prepared_both
from refusals import refused
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import masks
from posenc.attention.attend import attend
from posenc.catalog import CATALOG
from posenc.core.encoding import Encoding, Sum
from posenc.core.positions import folded, sequence
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.rotary.rope import RoPE

DIM, HEADS = 8, 4
UNFUSED = {"on_scores", "by_weight"}  # what torch's own kernel cannot carry
PATHS = [
    pytest.param(card, path, id=f"{card.slug}-{path}")
    for card, path in product(CATALOG, ("reference", "blocks", "sdpa"))
    if path != "sdpa" or not UNFUSED & set(card.make(DIM, HEADS).acts_on)
]
every = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
every_path = pytest.mark.parametrize(("card", "path"), PATHS)


def line(encoding, tokens, start=0):
    """Positions one after the other; points fill a square or a cube."""
    return folded(144, encoding.axes)[start : start + tokens]


def layer(encoding, x, y, v, q_pos, k_pos, **options):
    """Attention from embeddings, as in a layer whose projections change nothing."""
    x, y = (encoding.on_embeddings(x, encoding.prepare(p)) for x, p in ((x, q_pos), (y, k_pos)))
    at, k_at = prepared_both(encoding, x, y, q_pos, k_pos)
    q, k = (x.unflatten(-1, (-1, DIM)).transpose(1, 2) for x in (x, y))
    return attend(q, k[:, : v.shape[1]], v, encoding, at, k_at, **options)


def embeddings(batch, tokens, dtype=torch.float64, heads=HEADS):
    return torch.randn(batch, tokens, heads * DIM, dtype=dtype)


def heads(batch, heads, tokens, channels=DIM, dtype=torch.float64):
    return torch.randn(batch, heads, tokens, channels, dtype=dtype)


# The definition


class Everything(Encoding):
    """Acts on every place in attention, with nothing learned."""

    def on_queries(self, q, at):
        return 2 * q

    def on_keys(self, k, at):
        return k + 1

    def on_scores(self, q, k, q_at, k_at, scale):
        return lambda b, h, i, j: 0.1 * (h + 1) * (q_at[0, 0, i] - k_at[0, 0, j]) + 0.5 * b

    def by_weight(self, weights, q_at, k_at, rows):
        return (weights * (q_at[..., rows, None] - k_at[..., None, :])).sum(-1, keepdim=True)


def by_hand(q, k, v, q_pos, k_pos, sees, scale):
    """Compute attention with every hook of `Everything`, one query at a time, in Python floats."""
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    q, k, v, group = q.tolist(), k.tolist(), v.tolist(), q.shape[1] // k.shape[1]
    for b, h, i in product(*map(range, out.shape[:-1])):
        keys, values = k[b][h // group], v[b][h // group]
        seen = [j for j in range(len(keys)) if sees(b, i, j)]
        logit = {}
        for j in seen:
            content = sum(2 * a * (c + 1) for a, c in zip(q[b][h][i], keys[j], strict=True))
            logit[j] = content * scale + 0.1 * (h + 1) * (q_pos[i] - k_pos[j]) + 0.5 * b
        total = sum(math.exp(logit[j]) for j in seen)
        for j, c in product(seen, range(out.shape[-1])):
            weight = math.exp(logit[j]) / total
            out[b, h, i, c] += weight * (values[j][c] + q_pos[i] - k_pos[j])
    return out


@pytest.mark.parametrize("path", ["reference", "blocks", "auto"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("scale", [None, 0.2])
def test_attention_is_the_loop_over_its_definition(path, groups, scale):
    q, k, v = heads(2, 4, 3), heads(2, groups, 5), heads(2, groups, 5, channels=3)
    q_pos, k_pos = [7, 2, 3], [0, 4, 1, 2, 3]
    mask = masks.causal(torch.tensor(q_pos), torch.tensor(k_pos)) & masks.padding([5, 4])
    actual = attend(
        q, k, v, Everything(), torch.tensor(q_pos), torch.tensor(k_pos), mask, scale, path
    )
    sees = lambda b, i, j: q_pos[i] >= k_pos[j] and j < (5, 4)[b]  # noqa: E731
    expected = by_hand(q, k, v, q_pos, k_pos, sees, DIM**-0.5 if scale is None else scale)
    torch.testing.assert_close(actual, expected)


def test_without_positions_tokens_stand_at_0_1_2():
    q = heads(1, 4, 5)
    for encoding in (RoPE(DIM), ALiBi(HEADS)):
        expected = attend(q, q, q, encoding, encoding.prepare(torch.arange(5)))
        assert attend(q, q, q, encoding).equal(expected)


# Every path equals the reference

MASKED = {
    "no mask": lambda e: (line(e, 6), line(e, 6), None),
    "cross-attention": lambda e: (line(e, 4, start=9), line(e, 7), None),
}
CASES = MASKED | {
    "cached keys": lambda e: (
        *(line(e, 4, start=3), line(e, 7)),
        masks.causal(sequence(4, start=3), sequence(7)),
    ),
    "batched": lambda e: (
        *(torch.stack((line(e, 6), line(e, 6, start=n))) for n in (9, 7)),
        masks.causal(torch.stack((sequence(6), sequence(6, 9))), sequence(6, 4)),
    ),
}


@every_path
@pytest.mark.parametrize("case", CASES)
def test_every_path_gives_the_reference_and_its_gradients(card, path, case):
    """Queries and keys have different positions; tests/properties/test_promises.py has whole texts.

    Encodings for causal attention are tested only with causal masks there.
    """
    encoding = card.make(DIM, HEADS).double()
    if path == "reference" or (case in MASKED and not encoding.causal):
        return
    q_pos, k_pos, mask = CASES[case](encoding)
    channels = DIM if "by_weight" in encoding.acts_on else 5
    tokens, keys = q_pos.shape[-1 - (encoding.axes > 1)], k_pos.shape[-1 - (encoding.axes > 1)]
    x, y, v = embeddings(2, tokens), embeddings(2, keys), heads(2, 2, keys, channels)
    learned = [x, y, v, *encoding.parameters()]
    weights = heads(2, HEADS, tokens, channels)

    def run(path):
        for leaf in learned:
            leaf.requires_grad_().grad = None
        out = layer(encoding, x, y, v, q_pos, k_pos, mask=mask, implementation=path)
        (out * weights).sum().backward()
        return out.detach(), *(leaf.grad.clone() for leaf in learned)

    torch.testing.assert_close(run(path), run("reference"), rtol=1e-6, atol=1e-8)


@every_path
def test_a_scale_that_is_given_replaces_that_of_the_encoding(card, path):
    encoding = card.make(DIM, HEADS)
    at, (q, k, v) = prepared(encoding, line(encoding, 5)), heads(3, HEADS, 5).unsqueeze(1)
    usual = attend(q, k, v, encoding, at, scale=encoding.scale(DIM), implementation=path)
    assert usual.equal(attend(q, k, v, encoding, at, implementation=path))
    steep = attend(q, k, v, encoding, at, scale=0.9, implementation=path)
    expected = attend(q, k, v, encoding, at, scale=0.9, implementation="reference")
    torch.testing.assert_close(steep, expected)
    assert not steep.allclose(usual)


@every_path
def test_values_may_have_other_channels_than_keys(card, path):
    encoding = card.make(DIM, HEADS)
    pos, x = line(encoding, 5), embeddings(1, 5)
    for channels in (1, DIM + 3):
        if "by_weight" in encoding.acts_on:
            continue  # what it adds has the channels of the values it was made for
        v = heads(1, HEADS, 5, channels)
        out = layer(encoding, x, x, v, pos, pos, implementation=path)
        expected = [
            layer(encoding, x, x, v[..., n : n + 1], pos, pos, implementation="reference")
            for n in range(channels)
        ]
        torch.testing.assert_close(out, torch.cat(expected, -1))


@every_path
def test_nan_in_keys_and_values_that_nobody_sees_does_not_spread(card, path):
    encoding = card.make(DIM, HEADS)

    def run(filling):
        at = prepared(encoding, line(encoding, 5))
        q, k, v = heads(3, HEADS, 5).unsqueeze(1).unbind(0)
        k, v = k.clone(), v.clone()
        k[..., 3:, :] = v[..., 3:, :] = filling
        leaves = [x.requires_grad_() for x in (q, k, v)]
        learned = list(encoding.parameters()) if UNFUSED & set(encoding.acts_on) else []
        mask = masks.padding([3], tokens=5)
        out = attend(q, k, v, encoding, at, mask=mask, implementation=path)
        q_grad, *grads = torch.autograd.grad(out.square().sum(), leaves + learned)
        k_grad, v_grad = (grad[..., :3, :] for grad in grads[:2])
        return out.detach(), q_grad, k_grad, v_grad, *grads[2:]

    torch.manual_seed(1)
    expected = run(0.0)
    for filling in (float("nan"), float("inf")):
        torch.manual_seed(1)
        torch.testing.assert_close(run(filling), expected, rtol=0, atol=0)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_auto_never_picks_a_path_that_raises(card, dtype):
    encoding = card.make(DIM, HEADS)
    for mask, tokens, trains in product((None, masks.causal()), (1, 5, 130), (False, True)):
        pos, x, v = line(encoding, tokens), embeddings(1, tokens), heads(1, 2, tokens)
        x, v = x.to(dtype).requires_grad_(trains), v.to(dtype).requires_grad_(trains)
        with torch.set_grad_enabled(trains):
            out = layer(encoding, x, x, v, pos, pos, mask=mask)
            again = layer(encoding, x, x, v, pos, pos, mask=mask, implementation="reference")
        assert out.dtype == dtype
        assert out.requires_grad == trains
        # Scores of Integer reach 66,000, where float32 counts in steps of 0.008
        single = 1e-2 if card.slug == "integer" else 1e-5
        few = {torch.bfloat16: 0.1, torch.float32: single, torch.float64: 1e-9}[dtype]
        torch.testing.assert_close(out, again, rtol=few, atol=few)
        if trains:
            out.sum().backward()


@pytest.mark.parametrize("slug", ["shaw", "deberta", "transformer-xl"])
@pytest.mark.parametrize("learned", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_parameters_of_another_dtype_than_the_queries_serve_every_path(slug, learned, dtype):
    (card,) = (card for card in CATALOG if card.slug == slug)
    encoding = card.make(DIM, HEADS).to(learned)
    few = {torch.bfloat16: 0.1, torch.float32: 1e-5, torch.float64: 1e-9}[dtype]
    few = max(few, 0.03 if learned == torch.bfloat16 else 0)
    for queries, trains in product((1, 5, 130), (False, True)):
        q = heads(1, HEADS, queries).to(dtype).requires_grad_(trains)
        k, v = torch.randn(2, 1, 2, 140, DIM, dtype=dtype)
        at, k_at = (encoding.prepare(sequence(140)[start:]) for start in (-queries, 0))
        with torch.set_grad_enabled(trains):
            out = attend(q, k, v, encoding, at, k_at)
            again = attend(q, k, v, encoding, at, k_at, implementation="reference")
        assert out.dtype == dtype
        torch.testing.assert_close(out, again, rtol=few, atol=few)


# Positions alone; tests/properties/test_promises.py tests caches, packing and padding


@every
def test_keys_that_fell_out_of_the_window_may_be_evicted(card):
    encoding = card.make(DIM, HEADS)
    pos, x, v = line(encoding, 10), embeddings(2, 10), heads(2, 2, 10)
    mask = masks.causal() & masks.window(4)
    full = layer(encoding, x, x, v, pos, pos, mask=mask)[..., -1:, :]
    kept = slice(6, 10)
    last = layer(encoding, x[:, -1:], x[:, kept], v[..., kept, :], pos[-1:], pos[kept])
    torch.testing.assert_close(last, full)


# Memory


class Largest(TorchDispatchMode):
    """The most elements of any tensor that an operation has made."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor) and not x._is_view():
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.itemsize)
        return out


@pytest.mark.parametrize(
    "encoding",
    [ALiBi(2), T5Bias(2), Shaw(DIM, reach=4), DeBERTa(DIM, 2, reach=4), Sum(RoPE(DIM), ALiBi(2))],
    ids=lambda encoding: type(encoding).__name__,
)
def test_blocks_never_build_the_square_of_the_tokens(encoding):
    tokens = 1536
    q, k, v = (heads(1, 2, tokens, dtype=torch.float32).requires_grad_() for _ in range(3))
    with Largest() as largest:
        attend(q, k, v, encoding, mask=masks.causal(), implementation="blocks").sum().backward()
    assert 2 * tokens * 128 <= largest.elements <= 2 * tokens * 256 < tokens**2
    assert q.grad.isfinite().all()


# What does not fit is refused


@pytest.mark.parametrize(
    ("path", "encoding", "dtype", "message"),
    [
        (
            "sdpa",
            ALiBi(HEADS),
            torch.float32,
            "compute ALiBi here.* bias",
        ),
        ("sdpa", Shaw(DIM), torch.float32, "compute Shaw here.* bias"),
        (
            "sdpa",
            Sum(RoPE(DIM), ALiBi(HEADS)),
            torch.float32,
            "compute Sum here.* bias",
        ),
        ("flex", Shaw(DIM), torch.float32, "Shaw needs the attention weights"),
        ("flex", RoPE(DIM), torch.float32, 'FlexAttention cannot train on the CPU. Use "auto"'),
        ("flex", RoPE(DIM), torch.float64, "FlexAttention does not compute in float64"),
        ("fast", RoPE(DIM), torch.float32, "must be one of 'auto', 'reference', .* got 'fast'"),
    ],
)
def test_an_implementation_says_what_it_cannot_do(unchecked, path, encoding, dtype, message):
    q = heads(1, HEADS, 5, dtype=dtype).requires_grad_(dtype == torch.float32)
    with pytest.raises(ValueError, match=message):
        attend(q, q, q, encoding, implementation=path)


def test_says_which_shapes_do_not_fit(unchecked):
    q, k = heads(2, 4, 5), heads(2, 4, 3)
    with refused(ValueError, 4, 5, 8):
        attend(q[0], q[0], q[0], NoPE())
    with refused(ValueError, 2, 4, 3):
        attend(q, q, k, NoPE())
    with pytest.raises(ValueError, match="q and k must agree in batch and channels"):
        attend(q, q[:1], q[:1], NoPE())
    with pytest.raises(ValueError, match="q and k must agree in batch and channels"):
        attend(q, q[..., :4], q, NoPE())
    with pytest.raises(ValueError, match="heads of q must be a multiple"):
        attend(q, q[:, :3], q[:, :3], NoPE())


PATHS = ["auto", "reference", "sdpa", "toeplitz", "blocks", "flex"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("encoding", [ALiBi(HEADS), RoPE(DIM), Shaw(DIM)], ids=type)
def test_says_the_same_on_every_path(unchecked, path, encoding):
    q, pos = heads(1, HEADS, 200, dtype=torch.float32), sequence(200)
    meta = q.to("meta")
    for facts, given, at in (
        (["cpu, meta, meta"], (q, meta, meta), pos),
        (["cpu", "meta"], (q, q, q), pos.to("meta")),
        (["float32", "float64"], (q, q.double(), q.double()), pos),
        (["q and k", "channels"], (q, q[..., :4], q), pos),
        ([199, 200], (q, q, q), pos[:199]),
    ):
        with refused(ValueError, *facts):
            attend(*given, encoding, encoding.prepare(at), implementation=path)
    with refused(TypeError, "bfloat16", 256):
        attend(q, q, q, encoding, encoding.prepare(pos.bfloat16()), implementation=path)


def test_says_that_other_keys_need_positions():
    q, k = heads(1, 4, 5), heads(1, 4, 3)
    with refused(ValueError, 5, 3):
        attend(q, k, k, RoPE(DIM))
    at, k_at = sequence(5), sequence(3)
    for mask in (masks.causal(), masks.window(2), masks.causal() | masks.padding([3])):
        with refused(ValueError, 5, 3):
            attend(q, k, k, NoPE(), at, k_at, mask)
    assert attend(q, k, k, NoPE(), at, k_at, masks.causal(at, k_at)).shape == q.shape


IN_ATTENTION = [c for c in CATALOG if c.make(DIM, HEADS).acts_on not in ((), ("on_embeddings",))]


@pytest.mark.parametrize("card", IN_ATTENTION, ids=lambda card: card.slug)
@pytest.mark.parametrize("given", [1, 4, 6])
@pytest.mark.parametrize("summed", [False, True], ids=["alone", "in a sum"])
def test_each_token_wants_its_own_position(unchecked, card, given, summed):
    encoding, q = card.make(DIM, HEADS), heads(2, HEADS, 5)
    if summed:
        encoding = Sum(encoding)
    right, wrong = (prepared(encoding, line(encoding, n)) for n in (5, given))
    with refused(ValueError, given):
        attend(q, q, q, encoding, wrong)
    with refused(ValueError, given):
        attend(q, q, q, encoding, right, wrong)


@pytest.mark.parametrize("card", IN_ATTENTION, ids=lambda card: card.slug)
@pytest.mark.parametrize("given", [2, 4])
def test_positions_of_another_batch_are_refused(unchecked, card, given):
    encoding, q = card.make(DIM, HEADS), heads(3, HEADS, 5)
    wrong = prepared(encoding, torch.stack([line(encoding, 5)] * given))
    with pytest.raises(ValueError, match="batch"):
        attend(q, q, q, encoding, wrong)


@pytest.mark.parametrize("encoding", [ALiBi(4), T5Bias(4), DeBERTa(DIM, 4)], ids=type)
@pytest.mark.parametrize("given", [2, 8])
def test_an_encoding_made_for_other_heads_is_refused(unchecked, encoding, given):
    q = heads(1, given, 5)
    with pytest.raises(ValueError, match="heads"):
        attend(q, q, q, encoding)


@pytest.mark.parametrize("encoding", [Shaw(32), RoPE(32), DeBERTa(32, 4)], ids=type)
@pytest.mark.parametrize("summed", [0, 1, 2], ids=["alone", "in a sum", "in a sum of sums"])
def test_an_encoding_made_for_other_channels_is_refused(unchecked, encoding, summed):
    q, name = torch.randn(1, 4, 5, 64), type(encoding).__name__
    for _ in range(summed):
        encoding = Sum(NoPE(), encoding)
    with refused(ValueError, name, 32, "`q`", 64):
        attend(q, q, q, encoding)


def test_heads_are_checked_however_deep_a_sum_is():
    q = heads(1, 3, 5)
    with refused(ValueError, "ALiBi", 4):
        attend(q, q, q, Sum(NoPE(), Sum(NoPE(), ALiBi(4))))
