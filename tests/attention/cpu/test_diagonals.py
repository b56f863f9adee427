"""Attention by strided views against the definition: every shape, every mask, every bound."""

from copy import deepcopy
from itertools import accumulate, product

import pytest
import torch
from refusals import refused
from spaced_attention import (
    BY_CONTENT,
    DIM,
    HEADS,
    MASKS,
    PLACES,
    both,
    by_path,
    heads,
    masked,
    tensors,
)
from thorough import some
from torch.autograd.profiler import profile

from posenc import (
    FIRE,
    ALiBi,
    DeBERTa,
    Kerple,
    RoPE,
    Shaw,
    Sum,
    T5Bias,
    TransformerXL,
    attend,
    masks,
)
from posenc.attention.cpu import diagonals
from posenc.attention.dispatch import add_bias
from posenc.attention.inputs import validate
from posenc.attention.spacing import diagonal_band
from posenc.biases.distance import DistanceBias
from posenc.core.encoding import Encoding, leaves
from posenc.core.masks import causal
from posenc.core.positions import sequence


class Wavy(Encoding):
    """A bias that rises and falls, is not symmetric, and differs from head to head by nothing."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(lambda h, δ: 3 * (0.3 * δ).sin() - 0.01 * δ + 0 * h, q, q_at, k_at)


class Scattered(Encoding):
    """A bias whose memory does not lie as its axes do."""

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(lambda h, δ: (0.1 * h - 0.02 * δ).mT.contiguous().mT, q, q_at, k_at)


BY_DISTANCE = {
    "alibi": ALiBi(HEADS),
    "steep": ALiBi(HEADS, strength=20),
    "t5": T5Bias(HEADS),
    "causal t5": T5Bias(HEADS, bidirectional=False),
    "kerple": Kerple(HEADS),
    "power": Kerple(HEADS, "power"),
    "fire": FIRE(HEADS),
    "wavy": Wavy(),
    "scattered": Scattered(),
    "rope and two": Sum(RoPE(DIM), ALiBi(HEADS), T5Bias(HEADS)),
}


# How heads share keys is settled before any bias is seen: every number of keys for a bias alone and
# for a sum that also turns keys, and one number for the others.
BY_GROUPS = [
    *product(BY_DISTANCE, [2]),
    *product(["alibi", "rope and two"], [4, 1]),
]


@both
@masked
@pytest.mark.parametrize(("name", "groups"), BY_GROUPS)
def test_a_view_of_distance_is_the_reference_and_trains(name, mask, place, groups):
    encoding, at = deepcopy(BY_DISTANCE[name]).double(), PLACES[place]
    q, k, v = (x.double() for x in tensors(*at, groups, values=5))  # steep scores need the digits
    leaves = [x.requires_grad_() for x in (q, k, v, *encoding.parameters())]
    weights = heads(HEADS, q.shape[-2], 5, torch.float64)

    def run(path):
        out = by_path(path, q, k, v, encoding, *at, MASKS[mask](*at))
        return out, *torch.autograd.grad(out, leaves, weights)

    expected = run("reference")
    torch.testing.assert_close(run("toeplitz"), expected, rtol=1e-5, atol=1e-9)
    with torch.no_grad():
        out = by_path("toeplitz", q, k, v, encoding, *at, MASKS[mask](*at))
    torch.testing.assert_close(out, expected[0], rtol=1e-9, atol=1e-9)


@both
@masked
@pytest.mark.parametrize("name", ["deberta", "fire", "shaw"])
def test_blocks_read_only_the_keys_that_are_seen(name, mask, place):
    encoding = deepcopy({**BY_CONTENT, **BY_DISTANCE}[name]).double()
    q, k, v = (x.double() for x in tensors(*PLACES[place], groups=2))
    leaves = [x.requires_grad_() for x in (q, k, v, *encoding.parameters())]

    def run(path):
        out = by_path(path, q, k, v, encoding, *PLACES[place], MASKS[mask](*PLACES[place]))
        return out, *torch.autograd.grad(out.square().sum(), leaves)

    torch.testing.assert_close(run("blocks"), run("reference"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", [*BY_DISTANCE, *BY_CONTENT])
def test_views_of_other_dtypes_are_as_good_as_the_plain_kernel(name, dtype):
    encoding, pos = {**BY_DISTANCE, **BY_CONTENT}[name], sequence(300)
    if dtype == torch.float64:
        encoding = deepcopy(encoding).double()
    q, k, v = (x.to(dtype) for x in tensors(pos, pos, 2))
    trains = name in BY_DISTANCE or name == "transformer-xl"
    leaves = [x.requires_grad_(trains) for x in (q, k, v)]

    def run(path, *leaves):
        with torch.set_grad_enabled(trains):
            out = by_path(path, *leaves, encoding, pos, pos, causal())
        return out, *(torch.autograd.grad(out.square().sum(), leaves) if trains else ())

    few = {torch.bfloat16: 16, torch.float16: 32, torch.float64: 2**27}[dtype]
    few *= torch.finfo(dtype).eps  # roundings; tables of the encodings are float32
    exact = run("reference", *(x.detach().double().requires_grad_(trains) for x in leaves))
    for made, expected in zip(run("toeplitz", *leaves), exact, strict=True):
        assert made.dtype == dtype
        off = (made.double() - expected).norm() / expected.norm()
        assert off < few


@pytest.mark.parametrize("name", [*BY_DISTANCE, *BY_CONTENT])
@torch.no_grad()
def test_strides_of_the_inputs_do_not_matter(name):
    encoding, pos = {**BY_DISTANCE, **BY_CONTENT}[name], sequence(150)
    q, k, v = torch.randn(DIM, 3, 2, 150, HEADS).permute(1, 2, 4, 3, 0)
    run = lambda *x: by_path("toeplitz", *x, encoding, pos, pos, causal())  # noqa: E731
    torch.testing.assert_close(run(q, k, v), run(*(x.contiguous() for x in (q, k, v))))


@pytest.mark.parametrize("name", [*BY_DISTANCE, *BY_CONTENT])
@torch.no_grad()
def test_queries_that_see_nothing_give_0_and_nan_that_nobody_sees_does_not_spread(name):
    encoding = {**BY_DISTANCE, **BY_CONTENT}[name]
    at, k_at = sequence(200), sequence(200, 20)
    q, k, v = tensors(at, k_at)
    expected = by_path("reference", q, k, v, encoding, at, k_at, causal(at, k_at))
    k[..., 180:, :] = v[..., 180:, :] = float("nan")  # these stand after all queries
    out = by_path("toeplitz", q, k, v, encoding, at, k_at, causal(at, k_at))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    assert out[..., :20, :].eq(0).all()


# The cut


def uncut(q, k, v, encoding, mask, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(diagonals, "cut_negligible", lambda *_: None)
        return attend(q, k, v, encoding, mask=mask, implementation="toeplitz")


def cut_tiles(q, k, v, encoding, mask):
    """Pairs that are left, of all that the mask shows."""
    seen = diagonal_band(mask, q.shape[2], k.shape[2])
    call = add_bias(validate(q, k, v, encoding, None, None, mask, None))
    u = diagonals.vector(call, seen, (1, 0))
    tiles = diagonals.cut_negligible(u, q, k, v, DIM**-0.5, seen)
    return tiles, u, diagonals.tiled(seen, slice(0, q.shape[1]))


def area(tiles):
    return sum(
        (h.stop - h.start) * (r.stop - r.start) * (k.stop - k.start) for h, r, k, *_ in tiles
    )


@pytest.mark.parametrize("mask", [None, causal()], ids=["all", "causal"])
def test_steep_heads_are_cut_though_others_are_not(mask):
    """The steepest of eight slopes leaves few keys, the gentlest most: they share no tile."""
    q, k, v = (heads(8, 1000) for _ in range(3))
    tiles, _, whole = cut_tiles(q, k, v, ALiBi(8), mask)
    assert area(tiles) < 0.9 * area(whole)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [None, causal()], ids=["all", "causal"])
def test_what_is_cut_is_less_than_a_rounding(mask, monkeypatch):
    q, k, v = (heads(8, 2000) for _ in range(3))
    tiles, _, whole = cut_tiles(q, k, v, ALiBi(8), mask)
    assert area(tiles) < 0.75 * area(whole)
    full = attend(*(x.double() for x in (q, k, v)), ALiBi(8), mask=mask, implementation="reference")
    for made in (attend(q, k, v, ALiBi(8), mask=mask), uncut(q, k, v, ALiBi(8), mask, monkeypatch)):
        assert (made - full).abs().max() < 2e-6


def test_from_512_tokens_on_no_weight_is_so_small_that_processors_are_slow(monkeypatch):
    """Numbers below 2⁻¹²⁶ in float32: one in fifty weights of an ALiBi that is not cut."""
    q, k, v = (heads(8, 512) for _ in range(3))
    used, cut = [], diagonals.cut_negligible

    def kept(u, *rest):
        used.append(u)
        return cut(u, *rest)

    monkeypatch.setattr(diagonals, "cut_negligible", kept)
    attend(q.requires_grad_(), k, v, ALiBi(8), mask=causal()).sum().backward()
    (u,) = used
    pos = sequence(512)
    place = 511 - pos.unsqueeze(-1) + pos  # of query and key in u
    scores = (q @ k.mT).double() * DIM**-0.5
    whole = ALiBi(8)(pos).double().masked_fill(pos > pos.unsqueeze(-1), float("-inf"))
    for bias, tiny in ((whole, True), (u[:, place].double(), False)):
        weights = (scores + bias).softmax(-1)
        assert ((weights > 0) & (weights < 2.0**-126)).any() == tiny


def test_the_bound_holds_for_the_worst_that_it_allows():
    """Equal norms, every far score as high and every near one as low as they can be."""
    q = torch.zeros(1, 1, 2000, DIM)
    k, v = q.clone(), torch.ones(1, 1, 2000, DIM)
    q[..., 0], k[..., 0] = 4.0, 4.0
    k[..., -360:, 0] = -4.0
    v[..., -360:, :] = -1.0
    encoding = ALiBi(1, strength=25.6)  # of slope 0.1
    tiles, u, _ = cut_tiles(q, k, v, encoding, causal())
    assert tiles
    kept = int((u[0, :2000] > float("-inf")).sum())
    logits = (q.double() @ k.double().mT * DIM**-0.5)[0, 0, -1]
    weights = (logits - 0.1 * torch.arange(1999, -1, -1).double()).softmax(-1)
    gone = weights[: 2000 - kept].sum()
    assert 1e-12 < gone < 2.0**-24  # not much less: the bound is for 2,000 of such keys


def test_keys_and_values_of_huge_norm_far_away_are_not_cut():
    q, k, v = (heads(4, 1000) for _ in range(3))
    for huge in ("k", "v", "both"):
        k_, v_ = k.clone(), v.clone()
        if huge != "v":
            k_[..., 3, :] *= 1e3
        if huge != "k":
            v_[..., 5, :] *= 1e20
        expected = attend(
            *(x.double() for x in (q, k_, v_)), ALiBi(4), mask=causal(), implementation="reference"
        )
        made = attend(q, k_, v_, ALiBi(4), mask=causal())
        torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-4)
        assert attend(q, k_, v_, ALiBi(4), mask=causal(), implementation="toeplitz").equal(made)


class Far(Encoding):
    """Falls steeply, and stands high again at 700 … 720: nothing is assumed of f."""

    def on_scores(self, q, k, q_at, k_at, scale):
        back = lambda h, δ: torch.where((δ - 710).abs() < 10, 60.0, -2.0 * δ.abs()) + 0.0 * h  # noqa: E731
        return DistanceBias(back, q, q_at, k_at)


@pytest.mark.parametrize("mask", [None, causal()], ids=["all", "causal"])
def test_a_bias_that_comes_back_far_away_is_not_cut_off(mask):
    q, k, v = (heads(2, 1000) for _ in range(3))
    made = attend(q, k, v, Far(), mask=mask, implementation="toeplitz")
    expected = attend(q, k, v, Far(), mask=mask, implementation="reference")
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("filling", [float("nan"), float("inf"), 0.0])
def test_numbers_that_bound_nothing_cut_nothing(filling):
    q, k, v = (heads(2, 600) for _ in range(3))
    k[:, :, 5], v[:, :, 7] = filling, filling
    tiles, u, _ = cut_tiles(q, k, v, ALiBi(2, strength=50), causal())
    left = u[:, :600].isfinite().all()
    assert left
    assert area(tiles) > 0


def test_gradients_of_learned_weights_are_right_where_weights_are_hidden_or_tiny():
    """Biases down to −150, whose weights are subnormal or 0, against the definition."""
    t5 = T5Bias(HEADS, bidirectional=False)
    t5.weight.data[:] = -torch.linspace(0, 150, len(t5.weight)).unsqueeze(-1)
    inputs = [x.requires_grad_() for x in torch.randn(3, 3, HEADS, 40, DIM).unbind()]
    ours, expected = (
        torch.autograd.grad(
            attend(*inputs, t5, mask=causal(), implementation=path).square().sum(),
            (*inputs, t5.weight),
        )
        for path in ("toeplitz", "reference")
    )
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


LEARNED = {
    "fire": lambda: FIRE(HEADS, length=2048),
    "kerple": lambda: Kerple(HEADS),
    "power": lambda: Kerple(HEADS, "power"),
    "t5": lambda: T5Bias(HEADS, bidirectional=False),
    "sum": lambda: Sum(FIRE(HEADS, length=2048), Kerple(HEADS), T5Bias(HEADS)),
}


def by_formula(q, k, v, encoding, sinks, q_pos, k_pos):
    """Causal attention with a sink as one more key, whose value is left out."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    h, apart = torch.arange(q.shape[1]).view(-1, 1, 1), q_pos.unsqueeze(-1) - k_pos
    bias = sum(part.of_distance(h, apart) for part in leaves(encoding))
    scores = (q @ k.mT * q.shape[-1] ** -0.5 + bias).masked_fill(apart < 0, float("-inf"))
    of_sinks = sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat((scores, of_sinks), -1).softmax(-1)[..., :-1] @ v


@pytest.mark.parametrize(
    ("name", "dtype", "place", "sinks"),
    some(
        product(
            LEARNED, (torch.bfloat16, torch.float16, torch.float32),
            [(64, 0, 4), (512, 0, 2), (64, 256, 2), (64, 1000, 1)], (float("-inf"), 1.0),
        ),
        every=7,
    ),
    ids=str,
)  # fmt: skip
def test_gradients_of_a_learned_bias_are_as_exact_as_in_blocks(name, dtype, place, sinks):
    """Against the formula in float64, with up to 1,000 keys before: weights are float32."""
    tokens, before, groups = place
    at, k_at = sequence(tokens, before), sequence(before + tokens)
    counts = (HEADS, tokens), (groups, len(k_at)), (groups, len(k_at)), (HEADS, tokens)
    q, k, v, factor = (heads(*count, dtype=dtype) for count in counts)
    learned, sinks = LEARNED[name](), torch.full((HEADS,), sinks)

    def gradients(attention, *tensors):
        encoding = deepcopy(learned).to(torch.promote_types(tensors[0].dtype, torch.float32))
        leaf = sinks.to(next(encoding.parameters())).requires_grad_()
        weights = [*encoding.parameters(), *([leaf] if sinks.isfinite().all() else [])]
        out = attention(*tensors[:3], encoding, leaf)
        return torch.autograd.grad((out * tensors[3]).sum(), weights)

    def by(path):
        def attention(q, k, v, encoding, sinks):
            mask, sinks = causal(at, k_at), sinks if sinks.isfinite().all() else None
            options = {"implementation": path, "sinks": sinks}
            return attend(q, k, v, encoding, at, k_at, mask, **options)

        return gradients(attention, q, k, v, factor)

    exact = gradients(lambda *x: by_formula(*x, at, k_at), *(x.double() for x in (q, k, v, factor)))
    for auto, blocks, expected in zip(by("auto"), by("blocks"), exact, strict=True):
        auto_off, blocks_off = ((x - expected).norm() / expected.norm() for x in (auto, blocks))
        assert auto_off < max(2 * blocks_off, 5e-5)


def test_there_is_no_second_derivative():
    q = heads(4, 9).requires_grad_()
    out = attend(q, q, q, ALiBi(4))
    with refused(RuntimeError, '"reference"'):
        torch.autograd.grad(out.sum(), q, create_graph=True)
    out = attend(q, q, q, ALiBi(4), implementation="reference")
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), q)[0].ne(0).any()


# Memory: the views rely on the kernel reading strides, so this guards them in every torch


CAUSAL = masks.causal()
PEAKS = {  # and MB; a matrix of scores has 512, and naive Shaw 5,250
    "alibi": (lambda: ALiBi(8), CAUSAL, False, "toeplitz", 10),
    "t5": (lambda: T5Bias(8), None, False, "toeplitz", 13),
    "kerple": (lambda: Kerple(8), CAUSAL, False, "toeplitz", 13),
    "fire": (lambda: FIRE(8, length=8192), CAUSAL, False, "toeplitz", 13),
    "shaw": (lambda: Shaw(64, reach=64), CAUSAL, False, "toeplitz", 20),
    "transformer-xl": (lambda: TransformerXL(64, 8), CAUSAL, False, "toeplitz", 60),
    "deberta": (lambda: DeBERTa(64, 8, buckets=256), None, False, "toeplitz", 60),
    "deberta in blocks": (lambda: DeBERTa(64, 8, buckets=256), None, False, "blocks", 180),
    "alibi, training": (lambda: ALiBi(8), CAUSAL, True, "toeplitz", 50),
    "t5, training": (lambda: T5Bias(8), CAUSAL, True, "toeplitz", 72),
    "transformer-xl, training": (lambda: TransformerXL(64, 8), CAUSAL, True, "toeplitz", 120),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PEAKS)
def test_no_view_makes_the_square_of_the_tokens(name):
    """By the bytes of tensors that torch takes and gives back, within its kernels too."""
    make, mask, trains, path, most = PEAKS[name]
    encoding, tokens = make(), 4096
    q, k, v = (torch.randn(1, 8, tokens, 64, requires_grad=trains) for _ in range(3))
    with (
        torch.set_grad_enabled(trains),
        profile(use_kineto=False, profile_memory=True) as events,
    ):
        out = attend(q, k, v, encoding, mask=mask, implementation=path)
        if trains:
            out.sum().backward()
    taken = [event for event in events.kineto_results.events() if event.name() == "[memory]"]
    taken.sort(key=lambda event: event.start_ns())
    peak = max(accumulate(event.nbytes() for event in taken)) / 2**20
    assert out.numel() * 4 / 2**20 < peak < most
