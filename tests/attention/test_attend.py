"""Attention against a plain loop over its definition, and every path against the reference."""

import math
from itertools import product

import pytest
import torch
from hidden import prepared, prepared_both
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import masks, positions
from posenc.attention.attend import attend, scores
from posenc.catalog import CATALOG
from posenc.core.encoding import Encoding
from posenc.core.positions import folded, sequence
from posenc.core.sum import Sum
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import length_independent

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
        return lambda b, h, i, j: 0.1 * (h + 1) * (q_at[i] - k_at[j]) + 0.5 * b

    def by_weight(self, weights, q_at, k_at, rows):
        return (weights * (q_at[rows].unsqueeze(-1) - k_at)).sum(-1, keepdim=True)


def by_hand(q, k, v, q_pos, k_pos, sees, scale):
    """What `Everything` asks for, one query at a time, in Python floats."""
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


def test_scores_are_the_logits_of_attention():
    q, k, pos = heads(1, 2, 4), heads(1, 2, 4), torch.tensor([5, 0, 9, 1])
    one_hot = torch.eye(4, dtype=torch.float64).expand(1, 2, 4, 4)
    weights = attend(q, k, one_hot, ALiBi(2), pos)
    torch.testing.assert_close(scores(ALiBi(2), q, k, pos, pos).softmax(-1), weights)


def test_without_positions_tokens_stand_at_0_1_2():
    q = heads(1, 4, 5)
    for encoding in (RoPE(DIM), ALiBi(HEADS)):
        expected = attend(q, q, q, encoding, encoding.prepare(torch.arange(5)))
        assert attend(q, q, q, encoding).equal(expected)


# Every path equals the reference

CASES = {
    "no mask": lambda e: (line(e, 6), line(e, 6), None),
    "causal": lambda e: (line(e, 6), line(e, 6), masks.causal()),
    "window": lambda e: (line(e, 6), line(e, 6), masks.causal() & masks.window(3)),
    "cached keys": lambda e: (
        *(line(e, 4, start=3), line(e, 7)),
        masks.causal(sequence(4, start=3), sequence(7)),
    ),
    "cross-attention": lambda e: (line(e, 4, start=9), line(e, 7), None),
    "batched": lambda e: (
        *(torch.stack((line(e, 6), line(e, 6, start=n))) for n in (9, 7)),
        masks.causal(torch.stack((sequence(6), sequence(6, 9))), sequence(6, 4)),
    ),
    "two blocks": lambda e: (line(e, 131), line(e, 131), masks.causal() & masks.window(9)),
}


@every_path
@pytest.mark.parametrize("case", CASES)
def test_every_path_gives_the_reference_and_its_gradients(card, path, case):
    encoding = card.make(DIM, HEADS).double()
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

    if path == "reference":  # against itself it shows that all of them get a gradient
        assert all(found.abs().max() > 0 for found in run(path))
    else:
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
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bit_inputs_give_16_bit_outputs_near_the_exact_ones(card, path, dtype):
    encoding = card.make(DIM, HEADS)
    at, mask = prepared(encoding, line(encoding, 9)), masks.causal()
    q, k, v = (heads(1, HEADS, 9, dtype=dtype) for _ in range(3))
    out = attend(q, k, v, encoding, at, mask=mask, implementation=path)
    assert out.dtype == dtype
    exact = attend(q.float(), k.float(), v.float(), encoding, at, mask=mask)
    few = 8 * torch.finfo(dtype).eps  # roundings, of numbers near 1
    torch.testing.assert_close(out.float(), exact, rtol=few, atol=few)


@every_path
def test_a_query_that_sees_no_key_gives_0_and_finite_gradients(card, path):
    encoding = card.make(DIM, HEADS)
    blind = masks.padding([0, 4]) & masks.Mask(lambda b, h, i, j: (i != 2) & (j <= i))
    pos, x, v = line(encoding, 5), embeddings(2, 5), heads(2, HEADS, 5)
    x.requires_grad_(), v.requires_grad_()
    out = layer(encoding, x, x, v, pos, pos, mask=blind, implementation=path)
    assert out[0].eq(0).all()
    assert out[1, :, 2].eq(0).all()
    assert out[1, :, [0, 1, 3, 4]].ne(0).all()
    out.sum().backward()
    for leaf in (x, v, *encoding.parameters()):
        assert leaf.grad.isfinite().all()
    assert x.grad[0].eq(0).all()


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


# Caches, packing, padding: positions are all it takes


@every
def test_decoding_with_a_cache_equals_the_full_pass(card):
    encoding = card.make(DIM, HEADS)
    pos, x, v = line(encoding, 10), embeddings(2, 10), heads(2, 2, 10)
    full = layer(encoding, x, x, v, pos, pos, mask=masks.causal())
    parts, start = [], 0
    for tokens in (4, 3, 1, 1, 1):
        new, old = slice(start, start + tokens), slice(start + tokens)
        mask = masks.causal(sequence(tokens, start), sequence(start + tokens))
        parts.append(
            layer(encoding, x[:, new], x[:, old], v[..., old, :], pos[new], pos[old], mask=mask)
        )
        start += tokens
    agree = torch.allclose(torch.cat(parts, -2), full, rtol=1e-5, atol=1e-6)
    assert agree == (length_independent in card.holds)


@every
def test_keys_that_fell_out_of_the_window_may_be_evicted(card):
    encoding = card.make(DIM, HEADS)
    pos, x, v = line(encoding, 10), embeddings(2, 10), heads(2, 2, 10)
    mask = masks.causal() & masks.window(4)
    full = layer(encoding, x, x, v, pos, pos, mask=mask)[..., -1:, :]
    kept = slice(6, 10)
    last = layer(encoding, x[:, -1:], x[:, kept], v[..., kept, :], pos[-1:], pos[kept])
    torch.testing.assert_close(last, full)


@every
def test_packed_documents_equal_separate_ones(card):
    encoding, lengths = card.make(DIM, HEADS), [5, 3, 1]
    pos = torch.cat([line(encoding, n) for n in lengths])
    x, v = embeddings(1, 9), heads(1, 2, 9)
    mask = masks.documents(positions.documents(lengths)) & masks.causal()
    packed = layer(encoding, x, x, v, pos, pos, mask=mask)
    separate = [
        layer(encoding, x, x, v, pos, pos, mask=masks.causal())
        for x, v, pos in zip(
            x.split(lengths, 1), v.split(lengths, 2), pos.split(lengths), strict=True
        )
    ]
    agree = torch.allclose(packed, torch.cat(separate, -2), rtol=1e-5, atol=1e-6)
    assert agree == (length_independent in card.holds)


@every
def test_keys_of_packed_documents_are_those_of_separate_ones(card):
    """A document mask alone would hide positions that run on: rotary scores see offsets only."""
    encoding, k = card.make(DIM, HEADS), heads(1, HEADS, 8)
    if "on_hidden" in encoding.acts_on:
        return  # what came before may be in the keys, if queries have it too: scores are the same
    packed = encoding.prepare(torch.cat((line(encoding, 5), line(encoding, 3))))
    second = encoding.on_keys(k[..., 5:, :], encoding.prepare(line(encoding, 3)))
    assert encoding.on_keys(k, packed)[..., 5:, :].equal(second)


@every
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(card, side):
    encoding, lengths = card.make(DIM, HEADS), [6, 4]
    index = positions.padded(lengths, side)
    pos = line(encoding, 6)[index]
    x, v = embeddings(2, 6), heads(2, 2, 6)
    text = [slice(None), slice(2, None) if side == "left" else slice(4)]
    filling = slice(2) if side == "left" else slice(4, None)
    x[1, filling], v[1, :, filling] = 50 * x[1, filling], 50 * v[1, :, filling]
    mask = masks.causal(index) & masks.padding(lengths, side)
    padded = layer(encoding, x, x, v, pos, pos, mask=mask)
    for row, n in enumerate(lengths):
        t = text[row]
        x_, v_, pos_ = x[row : row + 1, t], v[row : row + 1, :, t], line(encoding, n)
        alone = layer(encoding, x_, x_, v_, pos_, pos_, mask=masks.causal())
        torch.testing.assert_close(padded[row : row + 1, :, t], alone, rtol=1e-6, atol=1e-8)


@every
def test_a_row_does_not_depend_on_its_batch(card):
    encoding = card.make(DIM, HEADS)
    pos, x, v = line(encoding, 6), embeddings(3, 6), heads(3, 2, 6)
    together = layer(encoding, x, x, v, pos, pos)
    for row in range(3):
        one = slice(row, row + 1)
        alone = layer(encoding, x[one], x[one], v[one], pos, pos)
        torch.testing.assert_close(alone, together[one], rtol=1e-12, atol=1e-12)


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
            "cannot carry ALiBi here: .* carries no bias",
        ),
        ("sdpa", Shaw(DIM), torch.float32, "cannot carry Shaw here: .* carries no bias"),
        (
            "sdpa",
            Sum(RoPE(DIM), ALiBi(HEADS)),
            torch.float32,
            "cannot carry Sum here: .* carries no bias",
        ),
        ("flex", Shaw(DIM), torch.float32, "has no place for what is added to the values"),
        ("flex", RoPE(DIM), torch.float32, 'FlexAttention cannot train on the CPU; use "auto"'),
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
    with pytest.raises(ValueError, match=r"takes \(batch, head, token, channel\), got q \(4, 5, 8"):
        attend(q[0], q[0], q[0], NoPE())
    with pytest.raises(ValueError, match=r"k and v in batch, heads and tokens: got .* v \(2, 4, 3"):
        attend(q, q, k, NoPE())
    with pytest.raises(ValueError, match="q and k must agree in batch and channels"):
        attend(q, q[:1], q[:1], NoPE())
    with pytest.raises(ValueError, match="q and k must agree in batch and channels"):
        attend(q, q[..., :4], q, NoPE())
    with pytest.raises(ValueError, match="heads of q must be a multiple of those of k"):
        attend(q, q[:, :3], q[:, :3], NoPE())


PATHS = ["auto", "reference", "sdpa", "toeplitz", "blocks", "flex"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("encoding", [ALiBi(HEADS), RoPE(DIM), Shaw(DIM)], ids=type)
def test_says_the_same_on_every_path(unchecked, path, encoding):
    q, pos = heads(1, HEADS, 200, dtype=torch.float32), sequence(200)
    meta = q.to("meta")
    for says, given, at in (
        ("q, k and v must be on one device: cpu, meta, meta", (q, meta, meta), pos),
        ("`x` is on cpu, the positions are on meta: move them", (q, q, q), pos.to("meta")),
        ("must be of one dtype: torch.float32, torch.float64", (q, q.double(), q.double()), pos),
        ("q and k must agree in batch and channels", (q, q[..., :4], q), pos),
        ("199 .*tokens", (q, q, q), pos[:199]),
    ):
        with pytest.raises(ValueError, match=says):
            attend(*given, encoding, encoding.prepare(at), implementation=path)
    with pytest.raises(TypeError, match=r"bfloat16, which cannot count past 256"):
        attend(q, q, q, encoding, encoding.prepare(pos.bfloat16()), implementation=path)


def test_says_that_other_keys_need_positions():
    q, k = heads(1, 4, 5), heads(1, 4, 3)
    with pytest.raises(ValueError, match="5 queries and 3 keys: where do they stand"):
        attend(q, k, k, RoPE(DIM))
    at, k_at = sequence(5), sequence(3)
    for mask in (masks.causal(), masks.window(2), masks.causal() | masks.padding([3])):
        with pytest.raises(ValueError, match="5 queries with 3 keys do not say theirs"):
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
    with pytest.raises(ValueError, match=f"{given} .*tokens"):
        attend(q, q, q, encoding, wrong)
    with pytest.raises(ValueError, match=f"{given} .*tokens"):
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
    with pytest.raises(ValueError, match=f"this {name} is for heads of 32 channels, `q` has 64"):
        attend(q, q, q, encoding)


def test_heads_are_checked_however_deep_a_sum_is():
    q = heads(1, 3, 5)
    with pytest.raises(ValueError, match="this ALiBi was made for 4 heads"):
        attend(q, q, q, Sum(NoPE(), Sum(NoPE(), ALiBi(4))))
