"""Faults that really happened in other libraries, and must not here: F1 to F38 of our list.

Faults of caches (F24), packing (F26), padding (F23) and rows that see nothing (F30) are tested in
test_attention, formulas (F27-F29, F38) with their encodings, and tracing (F33, F34) in compiled.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from itertools import permutations, product

import pytest
import ranks
import torch
from hidden import prepared
from refusals import refused
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posenc.attention.attend import attend
from posenc.attention.scores import scores
from posenc.catalog import CATALOG
from posenc.core.biases import dense
from posenc.core.masks import causal, window
from posenc.core.positions import folded, sequence
from posenc.encodings.additive.binary import Binary
from posenc.encodings.additive.learned import Learned
from posenc.encodings.additive.linear_sinusoidal import LinearSinusoidal
from posenc.encodings.additive.sine_cosine import SineCosine
from posenc.encodings.additive.sinusoidal import Sinusoidal
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL
from posenc.encodings.rotary.axial import axial
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import any_length, shift_invariant
from posenc.rotation.rotate import rotate
from posenc.rotation.table import turn

DIM, HEADS = 8, 4
every = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)


def along(encoding, pos):
    """The same position on every axis."""
    return pos if encoding.axes == 1 else pos.unsqueeze(-1).expand(*pos.shape, encoding.axes)


def of_positions_alone(card):
    """Test whether `prepare` reads no parameter, so that its result is constant."""
    encoding = card.make(DIM, HEADS)
    at = encoding.prepare(along(encoding, sequence(2)))
    return card.slug != "learned" and not any(x.requires_grad for x in tree_leaves(at))


CONSTANT = [card for card in CATALOG if of_positions_alone(card)]
ENDLESS = [card for card in CATALOG if any_length in card.holds]
constant = pytest.mark.parametrize("card", CONSTANT, ids=lambda card: card.slug)
casts = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)


def tables(encoding, pos):
    """All that is made of positions alone: what `prepare` returns, and a bias without content."""
    made = tree_leaves(encoding.prepare(along(encoding, pos)))
    return [*made, encoding(pos[:64])] if isinstance(encoding, ALiBi) else made


def assert_same_bits(made, expected):
    assert len(made) == len(expected) > 0
    for one, other in zip(made, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.equal(other)


def layer(encoding, x, pos, **options):
    """Attention from embeddings, as in a layer whose projections change nothing."""
    x = encoding.on_embeddings(x, encoding.prepare(pos))
    q = x.unflatten(-1, (-1, DIM)).transpose(1, 2)
    return attend(q, q, q, encoding, prepared(encoding, pos, x), **options)


# Precision


@constant
@casts
def test_casting_a_model_rounds_no_position(card, dtype):  # F1, and F11: both go through `_apply`
    encoding, pos = card.make(DIM, HEADS), sequence(8192)
    expected = tables(card.make(DIM, HEADS), pos)
    assert_same_bits(tables(encoding.to(dtype), pos), expected)
    assert_same_bits(tables(encoding.float(), pos), expected)


@every
def test_16_bit_positions_are_refused(card):  # F2
    encoding = card.make(DIM, HEADS)
    for dtype, most in ((torch.bfloat16, 256), (torch.float16, 2048)):
        with refused(TypeError, most):
            encoding.prepare(along(encoding, torch.arange(4, dtype=dtype)))


@every
def test_integers_of_any_width_stand_at_the_same_place(card):  # F2
    encoding, pos = card.make(DIM, HEADS), torch.tensor([0, 3, 127, 64])
    expected = tree_leaves(encoding.prepare(along(encoding, pos)))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        made = tree_leaves(encoding.prepare(along(encoding, pos.to(dtype))))
        assert_same_bits(made, expected)


@pytest.mark.parametrize("card", ENDLESS, ids=lambda card: card.slug)
def test_autocast_rounds_no_position(card):  # F3
    encoding, pos = card.make(DIM, HEADS), sequence(256, start=65536)
    expected = tables(encoding, pos)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_bits(tables(encoding, pos), expected)


def test_autocast_leaves_far_positions_apart():  # F3
    q = torch.ones(1, 1, 256, 64)
    with torch.autocast("cpu", torch.bfloat16):
        turned, _ = RoPE(64)(q, q, sequence(256, start=65536))
        waves = Sinusoidal(64)(torch.zeros(256, 64), sequence(256, start=65536))
    assert len(turned[0, 0].unique(dim=0)) == len(waves.unique(dim=0)) == 256


class Operations(TorchDispatchMode):
    """The operations that are called, but for those in float64, which TF32 leaves alone."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not any(isinstance(x, torch.Tensor) and x.dtype is torch.float64 for x in args):
            self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@every
def test_no_position_goes_through_a_matrix_product(card):  # F4: TF32 would round it
    encoding, pos = card.make(DIM, HEADS), sequence(16)
    with Operations() as operations:
        encoding.prepare(along(encoding, pos))
    assert not operations.names & {"mm", "bmm", "addmm", "baddbmm", "dot", "mv", "_trilinear"}


def exact_angle(pos, theta):
    """p·θ mod 2π, in fifty digits."""
    with localcontext() as context:
        context.prec = 50
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097")
        return float(Decimal(pos) * Decimal(theta) % (2 * pi))


@pytest.mark.parametrize("pos", [1, 4095, 10**6, 10**7, -(10**7)])
def test_angles_stay_exact_far_away(pos):  # F5
    made = turn(torch.tensor([pos]), RoPE(16).freqs)
    waves = Sinusoidal(16).prepare(torch.tensor([pos])).rows[0]
    for j in range(8):
        angle = exact_angle(pos, 10_000.0 ** (-2 * j / 16))
        for value in (made.cos[0, 0, j], waves[2 * j + 1]):
            assert value.item() == pytest.approx(math.cos(angle), abs=6e-8)
        for value in (made.sin[0, 0, j], waves[2 * j]):
            assert value.item() == pytest.approx(math.sin(angle), abs=6e-8)


@pytest.mark.parametrize(
    "card", [c for c in ENDLESS if shift_invariant in c.holds], ids=lambda card: card.slug
)
def test_a_million_tokens_further_scores_are_the_same(card):  # F6
    encoding, pos = card.make(DIM, HEADS), sequence(16)
    q, k = torch.randn(2, 1, HEADS, 16, DIM).unbind()
    here, there = along(encoding, pos), along(encoding, pos + 10**6)
    x = torch.randn(1, 16, DIM * HEADS)
    near, far = (scores(encoding, q, k, pos, pos, x=x) for pos in (here, there))
    torch.testing.assert_close(near, far, rtol=0, atol=1e-4)


@constant
@casts
def test_the_default_dtype_rounds_no_position(card, dtype):  # F7
    pos = sequence(512)
    expected = tables(card.make(DIM, HEADS), pos)
    torch.set_default_dtype(dtype)
    try:
        made = tables(card.make(DIM, HEADS), pos)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same_bits(made, expected)


# Modules: meta device, buffers, checkpoints


@every
def test_a_model_built_on_meta_needs_its_learned_tensors_only(card):  # F8, F12
    original = card.make(DIM, HEADS)
    with torch.device("meta"):
        built = card.make(DIM, HEADS)
    built.to_empty(device="cpu").load_state_dict(original.state_dict(), strict=True)
    x, pos = torch.randn(1, 9, DIM * HEADS), folded(9, original.axes)
    assert layer(built, x, pos).equal(layer(original, x, pos))


@every
def test_nothing_is_complex_and_nothing_is_a_buffer(card):  # F9, F10
    encoding = card.make(DIM, HEADS)
    for tokens in (1, 99, 3):
        layer(encoding, torch.randn(1, tokens, DIM * HEADS), folded(tokens, encoding.axes))
        assert not list(encoding.buffers())
    held = (*encoding.state_dict().values(), *vars(encoding).values())
    assert not any(torch.is_tensor(x) and x.is_complex() for x in held)


TRAIN = """
import os, sys, torch
from torch.nn.parallel import DistributedDataParallel
from posenc import ALiBi, Learned, RoPE, SelfAttention, Shaw, Sum, T5Bias
rank, store = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(rank)
every = Sum(Learned(9, 16), RoPE(8), ALiBi(2), T5Bias(2), Shaw(8))
model = DistributedDataParallel(SelfAttention(16, 2, every))
step = torch.optim.SGD(model.parameters(), 0.1)
for tokens in (1, 9, 3):
    model(torch.randn(2, tokens, 16)).square().sum().backward()
    step.step()
print(sum(p.double().sum().item() for p in model.parameters()))
torch.distributed.barrier()
torch.distributed.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # nothing of torch's own taking down is tested here
"""


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path):  # F9, F10
    both = ranks.begin([((TRAIN, rank, tmp_path / "store"), {}) for rank in range(2)], tmp_path)
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0] != ""


# Shapes and channels


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_channels_that_do_not_turn_keep_their_bits(layout):  # F21
    q, pos = torch.randn(2, 4, 9, 16), torch.arange(9) * 1000
    turned, _ = RoPE(6, dim=16, layout=layout)(q, q, pos)
    assert turned[..., 6:].equal(q[..., 6:])
    assert turned[..., :6].equal(rotate(q[..., :6], turn(pos, RoPE(6).freqs), layout))
    assert not turned[..., 1:, :6].allclose(q[..., 1:, :6])


@pytest.mark.parametrize(
    "make",
    [RoPE, Sinusoidal, SineCosine, LinearSinusoidal, axial, lambda n: TransformerXL(8, 4, n)],
)
@pytest.mark.parametrize("dim", [7, 1, 0, -2])
def test_odd_widths_are_refused(make, dim):  # F22
    with pytest.raises(ValueError, match=rf"`(dim|width)` must be even.* got {dim}"):
        make(dim)


# Positions that are given


@every
def test_given_positions_are_used_whatever_came_before(card):  # F25, F37
    warm, x = card.make(DIM, HEADS), torch.randn(1, 4, DIM * HEADS)
    pos = along(warm, torch.tensor([7, 3, 200, 64]))
    expected = layer(warm, x, pos)
    for tokens in (4, 1, 9):
        layer(warm, torch.randn(1, tokens, DIM * HEADS), folded(tokens, warm.axes))
    assert layer(warm, x, pos).equal(expected)
    if warm.acts_on and not warm.causal:  # causal ones may depend on the order of tokens instead
        assert not layer(warm, x, folded(4, warm.axes)).allclose(expected)


@every
def test_the_order_of_calls_changes_nothing(card):  # F37
    encoding = card.make(DIM, HEADS)
    calls = list(product((torch.bfloat16, torch.float32, torch.float64), (3, 6)))
    inputs = {call: torch.randn(1, call[1], DIM * HEADS).to(call[0]) for call in calls}
    run = lambda dtype, n: layer(encoding, inputs[dtype, n], folded(n, encoding.axes))  # noqa: E731
    expected = {call: run(*call) for call in calls}
    for order in list(permutations(calls))[::240]:
        for call in order:
            assert run(*call).dtype == call[0]
            assert run(*call).equal(expected[call])


def test_tables_refuse_what_they_do_not_hold():  # F31
    table, binary = Learned(8, 4), Binary(6, bits=3)
    for pos, span in (([0, 8], "0 … 8"), ([-1, 3], "-1 … 3")):
        with refused(IndexError, 0, 7, "`pos`", span, "`length`"):
            table.prepare(torch.tensor(pos))
        with refused(IndexError, 3, 0, 7, "`pos`", span):
            binary.prepare(torch.tensor(pos))


def test_negative_positions_turn_the_other_way():  # F31
    forth, back = (turn(torch.tensor([n]), RoPE(DIM).freqs) for n in (9, -9))
    assert back.cos.equal(forth.cos)
    assert back.sin.equal(-forth.sin)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_offsets_do_not_wrap_around(dtype):  # F32
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    ends = torch.tensor([high, low], dtype=dtype)
    alibi = ALiBi(1)
    far = -alibi.slopes.item() * (high - low)
    assert alibi(ends).flatten().tolist() == pytest.approx([0, far, far, 0])
    exact, q = ends.long(), torch.randn(1, HEADS, 2, DIM)
    for encoding in (T5Bias(HEADS), Shaw(DIM, reach=4), DeBERTa(DIM, HEADS, reach=4), RoPE(DIM)):
        expected = attend(q, q, q, encoding, encoding.prepare(exact))
        assert attend(q, q, q, encoding, encoding.prepare(ends)).equal(expected)
    assert dense(causal(ends), (1, 1, 2, 2))[0, 0].tolist() == [[True, True], [False, True]]
    assert dense(window(2, ends), (1, 1, 2, 2))[0, 0].tolist() == [[True, False], [False, True]]


# Inputs


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_that_comes_in_goes_out(card, dtype):  # F35
    encoding, pos = card.make(DIM, HEADS), sequence(5)
    x, q = torch.randn(2, 5, DIM * HEADS).to(dtype), torch.randn(2, HEADS, 5, DIM).to(dtype)
    assert encoding.on_embeddings(x, encoding.prepare(along(encoding, pos))).dtype == dtype
    at = prepared(encoding, along(encoding, pos), x)
    assert encoding.on_queries(q, at).dtype == dtype
    assert encoding.on_keys(q, at).dtype == dtype
    for path in ("auto", "reference", "blocks"):
        assert attend(q, q, q, encoding, at, implementation=path).dtype == dtype


@every
@pytest.mark.parametrize(("batch", "tokens"), [(0, 5), (2, 0), (0, 0), (1, 1)])
def test_nothing_in_nothing_out(card, batch, tokens):
    encoding = card.make(DIM, HEADS)
    x, pos = torch.randn(batch, tokens, DIM * HEADS), folded(9, encoding.axes)[:tokens]
    options = product((None, causal()), ("auto", "reference", "blocks"), (True, False))
    for mask, path, trains in options:
        with torch.set_grad_enabled(trains):
            out = layer(encoding, x, pos, mask=mask, implementation=path)
        assert out.shape == (batch, HEADS, tokens, DIM)
        assert out.isfinite().all()


@every
def test_without_keys_there_is_nothing_to_attend_to(card):
    encoding, pos = card.make(DIM, HEADS), folded(9, card.make(DIM, HEADS).axes)
    q, k = torch.randn(1, HEADS, 5, DIM), torch.randn(1, HEADS, 0, DIM)
    at, nowhere = prepared(encoding, pos[:5]), prepared(encoding, pos[:0])
    for path, trains in product(("auto", "reference", "blocks"), (True, False)):
        with torch.set_grad_enabled(trains):
            assert attend(q, k, k, encoding, at, nowhere, implementation=path).eq(0).all()


@every
@pytest.mark.parametrize(("dim", "heads"), [(DIM, 1), (2, HEADS), (2, 1)])
def test_one_head_and_two_channels_are_enough(card, dim, heads):
    usual = card.make(DIM, HEADS)
    if "on_queries" in usual.acts_on and dim < 2 * usual.axes:
        with refused(ValueError, "`dim`", dim):
            card.make(dim, heads)
        return
    if card.slug == "sinusoidal-grid" and dim * heads < 4:
        with refused(ValueError, "`width`", dim * heads):
            card.make(dim, heads)
        return
    encoding = card.make(dim, heads)
    pos = folded(4, encoding.axes)
    x = encoding.on_embeddings(torch.randn(2, 4, dim * heads), encoding.prepare(pos))
    q = x.unflatten(-1, (heads, dim)).transpose(1, 2)
    out = attend(q, q, q, encoding, prepared(encoding, pos, x), mask=causal())
    assert out.shape == q.shape
    assert out.isfinite().all()


@every
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_keys_equal_repeated_ones(card, groups):
    encoding = card.make(DIM, HEADS)
    at = prepared(encoding, folded(6, encoding.axes))
    q = torch.randn(2, HEADS, 6, DIM)
    k, v = torch.randn(2, 2, groups, 6, DIM).unbind()
    all_k, all_v = (x.repeat_interleave(HEADS // groups, 1) for x in (k, v))
    grouped = attend(q, k, v, encoding, at, mask=causal())
    torch.testing.assert_close(grouped, attend(q, all_k, all_v, encoding, at, mask=causal()))


@every
def test_strides_of_the_inputs_do_not_matter(card):
    encoding = card.make(DIM, HEADS)
    pos = folded(6, encoding.axes)
    scattered = pos.repeat_interleave(2, 0)[::2].expand(2, *pos.shape)
    wide = torch.randn(6, 2 * DIM * HEADS, 2)
    x = wide.permute(2, 0, 1)[..., ::2]  # every second channel, the batch innermost
    expected = layer(encoding, x.contiguous(), pos, mask=causal())
    torch.testing.assert_close(layer(encoding, x, pos, mask=causal()), expected)
    torch.testing.assert_close(layer(encoding, x, scattered, mask=causal()), expected)
    same = x[:1].expand(2, -1, -1)
    expected = layer(encoding, same.contiguous(), pos, mask=causal())
    torch.testing.assert_close(layer(encoding, same, pos, mask=causal()), expected)


@every
@pytest.mark.parametrize("path", ["auto", "reference", "blocks"])
def test_inputs_are_never_written_to(card, path):
    encoding = card.make(DIM, HEADS)
    pos, x = folded(6, encoding.axes), torch.randn(2, 6, DIM * HEADS)
    positions = encoding.prepare(pos)
    at = encoding.on_hidden(x, positions)
    q, k, v = torch.randn(3, 2, HEADS, 6, DIM).unbind()
    given = [pos, x, q, k, v, *tree_leaves(positions), *tree_leaves(at)]
    before = [tensor.clone() for tensor in given]
    versions = [tensor._version for tensor in given]
    encoding.on_embeddings(x, positions)
    attend(q, k, v, encoding, at, mask=causal(), implementation=path)
    assert [tensor._version for tensor in given] == versions
    assert_same_bits(given, before)


@every
def test_one_encoding_serves_eight_threads(card):
    encoding = card.make(DIM, HEADS)
    inputs = [torch.randn(1, n, DIM * HEADS) for n in range(1, 25)]
    run = lambda x: layer(encoding, x, folded(x.shape[1], encoding.axes), mask=causal())  # noqa: E731
    expected = [run(x) for x in inputs]
    with ThreadPoolExecutor(8) as threads:
        for made, alone in zip(threads.map(run, inputs), expected, strict=True):
            torch.testing.assert_close(made, alone)
