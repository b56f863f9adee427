"""FlexAttention, compiled, against the reference: every bias, every mask (F33)."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from hidden import prepared
from refusals import refused
from thorough import THOROUGH, some
from torch.nn.attention.flex_attention import flex_attention

from posenc import masks, positions
from posenc.attention import flex
from posenc.attention.attend import attend
from posenc.attention.flex import block_mask
from posenc.catalog import CATALOG
from posenc.core.biases import as_bias
from posenc.core.encoding import Sum
from posenc.core.positions import folded, sequence
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.rotary.rope import RoPE

pytestmark = pytest.mark.compiler
DIM, HEADS, TOKENS = 8, 4, 20


def in_pairs(card):
    """Test whether its bias joins the dot product or can be computed for one pair."""
    encoding, q = card.make(DIM, HEADS), torch.zeros(1, HEADS, TOKENS, DIM)
    at = prepared(encoding, folded(TOKENS, encoding.axes))
    q, k = encoding.on_queries(q, at), encoding.on_keys(q, at)
    bias = as_bias(encoding.on_scores(q, k, at, at, 1.0), q, k)
    left = None if bias is None else bias.absorbed(q, k, True)[2]  # of what q · k does not carry
    return left is None or left.pair() is not None


NOT_BY_WEIGHT = [c for c in CATALOG if "by_weight" not in c.make(DIM, HEADS).acts_on]
CARRIED = [card for card in NOT_BY_WEIGHT if in_pairs(card)]
BIASES = [c for c in CARRIED if "on_scores" in c.make(DIM, HEADS).acts_on]
# To compile C++ takes eight seconds: by distance ALiBi, with masks below, and one by content
COMPILED = [c for c in CARRIED if THOROUGH or c not in BIASES or c.slug == "deberta"]


@pytest.fixture(autouse=True, scope="module")
def fresh():
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=64):
        yield  # more encodings meet here than in one program
    torch._dynamo.reset()


def heads(tokens=TOKENS, heads=HEADS):
    return torch.randn(2, heads, tokens, DIM)


def assert_equals_reference(q, k, v, encoding, at=None, k_at=None, mask=None):
    run = lambda path: attend(q, k, v, encoding, at, k_at, mask, implementation=path)  # noqa: E731
    torch.testing.assert_close(run("flex"), run("reference"), rtol=1e-5, atol=1e-5)
    return run("flex")


@pytest.mark.parametrize("card", COMPILED, ids=lambda card: card.slug)
def test_every_bias_serves_the_fused_kernel(card):
    """Compare all biases but those that are traced below."""
    encoding = card.make(DIM, HEADS)
    at = prepared(encoding, folded(TOKENS, encoding.axes))
    assert_equals_reference(heads(), heads(), heads(), encoding, at)


def test_a_bias_of_whole_rows_is_refused_by_name():
    whole = [card for card in NOT_BY_WEIGHT if card not in CARRIED]
    assert {card.slug for card in whole} == {"cope", "path", "rerope", "wall"}
    for card in whole:
        encoding = card.make(DIM, HEADS)
        at = prepared(encoding, sequence(TOKENS))
        with refused(ValueError, type(encoding).__name__):
            attend(heads(), heads(), heads(), encoding, at, implementation="flex")


@pytest.fixture
def in_python(monkeypatch):
    """The graph of FlexAttention with all that it is handed, run without making C++ of it."""
    graph = torch.compile(flex_attention, dynamic=False, fullgraph=True, backend="eager")
    monkeypatch.setattr(flex, "_compiled", lambda on_cpu: graph)


@pytest.mark.parametrize("card", BIASES, ids=lambda card: card.slug)
def test_every_bias_goes_with_a_mask_and_grouped_keys(card, in_python):
    """C++ tests some biases alone above, and masks and groups with ALiBi below."""
    encoding, pos = card.make(DIM, HEADS), sequence(TOKENS)
    at = prepared(encoding, folded(TOKENS, encoding.axes))
    mask = masks.causal(pos) & masks.window(6, pos)
    assert_equals_reference(heads(), heads(heads=2), heads(heads=2), encoding, at, mask=mask)


ROWS = torch.arange(2 * TOKENS).view(2, -1) // 7  # documents of each text of the batch
MASKS = {
    "all joined": masks.documents(positions.documents([9, 4, 7])) & masks.documents(ROWS)
    | masks.causal() & masks.window(5),
    "padding": masks.padding([TOKENS, 6]),
}


@pytest.mark.parametrize("name", some(MASKS, 2))
def test_every_mask_serves_the_fused_kernel(name):
    mask = MASKS[name]
    assert_equals_reference(heads(), heads(), heads(), NoPE(), mask=mask)


CPU = torch.device("cpu")


def test_the_block_mask_of_a_mask_is_made_once():
    shape, ids = (1, 1, 300, 300), positions.documents([200, 100])
    for mask in (masks.causal(), masks.window(9), masks.documents(ids) & masks.causal()):
        made = block_mask(mask, shape, CPU)
        assert block_mask(mask, shape, CPU) is made
        assert block_mask(mask, (1, 1, 200, 200), CPU) is not made
    assert block_mask(masks.causal(), shape, CPU) is block_mask(masks.causal(), shape, CPU)
    ids[:] = 0  # the mask has a copy of its own
    assert block_mask(mask, shape, CPU) is made
    opaque = masks.Mask(lambda b, h, i, j: i >= j)
    assert block_mask(opaque, shape, CPU) is not block_mask(opaque, shape, CPU)


def test_a_block_mask_goes_with_its_mask_and_is_no_part_of_a_copy():
    mask, shape = masks.window(9) & masks.causal(), (1, 1, 30, 30)
    made = [block_mask(mask, (1, 1, n, n), CPU) for n in range(20, 40)]
    assert [*mask.blocks.values()] == made[-8:]
    for other in (copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert not other.blocks
    assert not (mask & masks.window(3)).blocks
    gone = [*map(weakref.ref, made)]
    del mask, made, other
    gc.collect()
    assert not any(one() for one in gone)
    mask = masks.window(9)
    with torch.inference_mode():
        assert not block_mask(mask, shape, CPU).kv_indices.is_inference()


def test_rows_that_see_nothing_give_0():
    mask = masks.padding([0, 6])
    assert assert_equals_reference(heads(), heads(), heads(), NoPE(), mask=mask)[0].eq(0).all()


def test_nan_that_nobody_sees_does_not_spread():
    q, k, v = heads(), heads(), heads()
    k[1, :, 6:] = v[1, :, 6:] = float("nan")
    mask = masks.padding([TOKENS, 6])
    assert assert_equals_reference(q, k, v, NoPE(), mask=mask).isfinite().all()


def test_cached_keys_and_more_than_one_block():
    """Ragged lengths, keys elsewhere, grouped heads, strides of a projection."""
    q = torch.randn(2, 131, HEADS, DIM).transpose(1, 2)
    k, v = torch.randn(2, 2, 150, 2, DIM).transpose(2, 3).unbind()
    encoding, at, k_at = Sum(RoPE(DIM), ALiBi(HEADS)), sequence(131, start=19), sequence(150)
    mask = masks.causal(at, k_at)
    at, k_at = encoding.prepare(at), encoding.prepare(k_at)
    assert_equals_reference(q, k, v, encoding, at, k_at, mask)


def test_a_table_of_keys_within_a_sum_is_made_before_the_kernel(in_python):
    """Made within it, it would be traced, where nothing may be written to the bias."""
    encoding, pos = Sum(DeBERTa(DIM, HEADS, reach=5), Sum(ALiBi(HEADS))), sequence(TOKENS)
    assert_equals_reference(heads(), heads(), heads(), encoding, encoding.prepare(pos))


@pytest.mark.parametrize("channels", some([8, 16], 2))
def test_few_channels_and_a_ragged_tail_of_keys(channels):
    """On the CPU torch 2.13 lets what lies behind the last key into the maximum of each row.

    Where that is NaN or huge, or merely 0 with all scores far below, the row comes to nothing.
    """
    for _ in range(20):
        q = 1 + torch.rand(2, HEADS, 24, channels)
        k = -20 * (1 + torch.rand(2, HEADS, 24, channels))
        v = torch.randn(2, HEADS, 24, channels)
        fused = attend(q, k, v, NoPE(), implementation="flex")
        expected = attend(q, k, v, NoPE(), implementation="reference")
        torch.testing.assert_close(fused, expected, rtol=1e-3, atol=1e-3)


def test_a_softcap_comes_before_the_bias():
    q, k, v = (5 * heads() for _ in range(3))
    run = lambda path: attend(  # noqa: E731
        q, k, v, ALiBi(HEADS), mask=masks.causal(), softcap=0.7, implementation=path
    )
    torch.testing.assert_close(run("flex"), run("reference"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [ALiBi, lambda heads: DeBERTa(DIM, heads, reach=5)])
def test_heads_that_stand_elsewhere_serve_the_fused_kernel(make, in_python):
    pos = torch.randint(20, (2, HEADS, TOKENS))
    assert_equals_reference(heads(), heads(), heads(), make(HEADS), pos, pos, masks.causal())
