"""Attention by strided views against the definition: every shape, every mask, every bound."""

import json
import re
import subprocess
import sys
from copy import deepcopy

import pytest
import torch

from posenc import (
    FIRE,
    ALiBi,
    DeBERTa,
    Kerple,
    NoPE,
    RoPE,
    Shaw,
    Sum,
    T5Bias,
    TransformerXL,
    attend,
    explain,
    masks,
)
from posenc.attention import toeplitz
from posenc.attention.spacing import Line, line, lines, strip
from posenc.core.biases import DistanceBias
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask, causal, window
from posenc.core.positions import sequence

DIM, HEADS = 8, 4


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
BY_CONTENT = {
    "shaw": Shaw(DIM, reach=5),
    "shaw 1": Shaw(DIM, reach=1),
    "shaw 0": Shaw(DIM, reach=0),
    "deberta": DeBERTa(DIM, HEADS, reach=9),
    "released": DeBERTa(DIM, HEADS, reach=9, released=True),
    "buckets": DeBERTa(DIM, HEADS, reach=40, buckets=12),
    "transformer-xl": TransformerXL(DIM, HEADS),
    "rope and shaw": Sum(RoPE(DIM), Shaw(DIM, reach=3)),
}
PLACES = {  # of queries and keys
    "text": (sequence(300), sequence(300)),
    "cached": (sequence(7, 293), sequence(300)),
    "one token": (sequence(1, 299), sequence(300)),
    "more queries": (sequence(300, 20), sequence(40)),
    "before all keys": (sequence(9), sequence(5, 3)),
    "every third": (3 * sequence(40, 2), 3 * sequence(40)),
    "every third, shifted": (3 * sequence(40) + 1, 3 * sequence(33)),
    "batch of one text": (sequence(30).expand(2, 30), sequence(30).expand(1, 30)),
    "single": (sequence(1), sequence(1)),
}
MASKS = {
    "none": lambda q, k: None,
    "causal": causal,
    "window": lambda q, k: window(9, q, k),
    "causal window": lambda q, k: causal(q, k) & window(20, q, k),
}
both = pytest.mark.parametrize("place", PLACES)
masked = pytest.mark.parametrize("mask", MASKS)


def heads(heads, tokens, channels=DIM, dtype=torch.float32):
    return torch.randn(2, heads, tokens, channels, dtype=dtype)


def tensors(q_pos, k_pos, groups=HEADS, values=DIM):
    keys = k_pos.shape[-1]
    return heads(HEADS, q_pos.shape[-1]), heads(groups, keys), heads(groups, keys, values)


def by_path(path, q, k, v, encoding, at, k_at, mask, **options):
    at, k_at = encoding.prepare(at), encoding.prepare(k_at)
    return attend(q, k, v, encoding, at, k_at, mask, implementation=path, **options)


@both
@masked
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("name", BY_DISTANCE)
def test_a_view_of_distance_is_the_reference_and_trains(name, mask, place, groups):
    encoding, at = deepcopy(BY_DISTANCE[name]).double(), PLACES[place]
    q, k, v = (x.double() for x in tensors(*at, groups, values=5))  # steep scores need the digits
    leaves = [x.requires_grad_() for x in (q, k, v, *encoding.parameters())]
    weights = heads(HEADS, q.shape[-2], 5, torch.float64)

    def run(path):
        out = by_path(path, q, k, v, encoding, *at, MASKS[mask](*at))
        return out, *torch.autograd.grad(out, leaves, weights)

    expected = run("reference")
    torch.testing.assert_close(run("view"), expected, rtol=1e-5, atol=1e-9)
    with torch.no_grad():
        out = by_path("view", q, k, v, encoding, *at, MASKS[mask](*at))
    torch.testing.assert_close(out, expected[0], rtol=1e-9, atol=1e-9)


@both
@masked
@pytest.mark.parametrize("groups", [4, 1])
@pytest.mark.parametrize("name", BY_CONTENT)
@torch.no_grad()
def test_a_view_of_content_by_offset_is_the_reference(name, mask, place, groups):
    encoding, at = BY_CONTENT[name], PLACES[place]
    q, k, v = tensors(*at, groups, values=DIM if "shaw" in name else 11)
    run = lambda path: by_path(path, q, k, v, encoding, *at, MASKS[mask](*at), scale=0.9)  # noqa: E731
    torch.testing.assert_close(run("view"), run("reference"), rtol=1e-5, atol=2e-5)


@both
@masked
@pytest.mark.parametrize("name", ["deberta", "fire", "shaw"])
def test_blocks_read_only_the_keys_that_are_seen(name, mask, place):
    encoding = {**BY_CONTENT, **BY_DISTANCE}[name]
    q, k, v = tensors(*PLACES[place], groups=2)
    leaves = [x.requires_grad_() for x in (q, k, v, *encoding.parameters())]

    def run(path):
        out = by_path(path, q, k, v, encoding, *PLACES[place], MASKS[mask](*PLACES[place]))
        return out, *torch.autograd.grad(out.square().sum(), leaves)

    torch.testing.assert_close(run("blocks"), run("reference"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", [*BY_DISTANCE, *BY_CONTENT])
def test_views_of_other_dtypes_are_as_good_as_the_plain_kernel(name, dtype):
    encoding, pos = {**BY_DISTANCE, **BY_CONTENT}[name], sequence(300)
    if name == "transformer-xl" and dtype == torch.float64:
        pytest.skip("its sinusoids are float32")
    if dtype == torch.float64:
        encoding = deepcopy(encoding).double()
    q, k, v = (x.to(dtype) for x in tensors(pos, pos, 2))
    trains = name in BY_DISTANCE
    leaves = [x.requires_grad_(trains) for x in (q, k, v)]

    def run(path, *leaves):
        with torch.set_grad_enabled(trains):
            out = by_path(path, *leaves, encoding, pos, pos, causal())
        return out, *(torch.autograd.grad(out.square().sum(), leaves) if trains else ())

    few = {torch.bfloat16: 16, torch.float16: 32, torch.float64: 2**27}[dtype]
    few *= torch.finfo(dtype).eps  # roundings; tables of the encodings are float32
    exact = run("reference", *(x.detach().double().requires_grad_(trains) for x in leaves))
    for made, expected in zip(run("view", *leaves), exact, strict=True):
        assert made.dtype == dtype
        off = (made.double() - expected).norm() / expected.norm()
        assert off < few


@pytest.mark.parametrize("name", [*BY_DISTANCE, *BY_CONTENT])
@torch.no_grad()
def test_strides_of_the_inputs_do_not_matter(name):
    encoding, pos = {**BY_DISTANCE, **BY_CONTENT}[name], sequence(150)
    q, k, v = torch.randn(DIM, 3, 2, 150, HEADS).permute(1, 2, 4, 3, 0)
    run = lambda *x: by_path("view", *x, encoding, pos, pos, causal())  # noqa: E731
    torch.testing.assert_close(run(q, k, v), run(*(x.contiguous() for x in (q, k, v))))


@pytest.mark.parametrize("name", [*BY_DISTANCE, *BY_CONTENT])
@torch.no_grad()
def test_queries_that_see_nothing_give_0_and_nan_that_nobody_sees_does_not_spread(name):
    encoding = {**BY_DISTANCE, **BY_CONTENT}[name]
    at, k_at = sequence(200), sequence(200, 20)
    q, k, v = tensors(at, k_at)
    expected = by_path("reference", q, k, v, encoding, at, k_at, causal(at, k_at))
    k[..., 180:, :] = v[..., 180:, :] = float("nan")  # these stand after all queries
    out = by_path("view", q, k, v, encoding, at, k_at, causal(at, k_at))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    assert out[..., :20, :].eq(0).all()


# The cut


def uncut(q, k, v, encoding, mask, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(toeplitz, "cut", lambda *_: None)
        return attend(q, k, v, encoding, mask=mask, implementation="view")


def cut_tiles(q, k, v, encoding, mask):
    """Pairs that are left, of all that the mask shows."""
    pos, seen = sequence(q.shape[2]), strip(mask, q.shape[2], k.shape[2])
    bias = encoding.on_scores(q, k, pos, pos, DIM**-0.5)
    call = toeplitz.Call(encoding, q, k, v, pos, pos, DIM**-0.5, bias, mask)
    u = toeplitz.vector(call, seen, (1, 0))
    tiles = toeplitz.cut(u, q, k, v, DIM**-0.5, seen)
    return tiles, u, toeplitz.tiled(seen, slice(0, q.shape[1]))


def area(tiles):
    return sum((h.stop - h.start) * (r.stop - r.start) * (k.stop - k.start) for h, r, k in tiles)


@pytest.mark.parametrize("mask", [None, causal()], ids=["all", "causal"])
def test_what_is_cut_is_less_than_a_rounding(mask, monkeypatch):
    q, k, v = (heads(8, 2000) for _ in range(3))
    tiles, _, whole = cut_tiles(q, k, v, ALiBi(8), mask)
    assert area(tiles) < 0.75 * area(whole)
    full = attend(*(x.double() for x in (q, k, v)), ALiBi(8), mask=mask, implementation="reference")
    for made in (attend(q, k, v, ALiBi(8), mask=mask), uncut(q, k, v, ALiBi(8), mask, monkeypatch)):
        assert (made - full).abs().max() < 2e-6


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
        assert attend(q, k_, v_, ALiBi(4), mask=causal(), implementation="view").equal(made)


class Far(Encoding):
    """Falls steeply, and stands high again at 700 … 720: nothing is assumed of f."""

    def on_scores(self, q, k, q_at, k_at, scale):
        back = lambda h, δ: torch.where((δ - 710).abs() < 10, 60.0, -2.0 * δ.abs()) + 0.0 * h  # noqa: E731
        return DistanceBias(back, q, q_at, k_at)


@pytest.mark.parametrize("mask", [None, causal()], ids=["all", "causal"])
def test_a_bias_that_comes_back_far_away_is_not_cut_off(mask):
    q, k, v = (heads(2, 1000) for _ in range(3))
    made = attend(q, k, v, Far(), mask=mask, implementation="view")
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


# Which path, and why

POS = sequence(200)


@pytest.mark.parametrize(
    ("encoding", "pos", "mask", "path", "why"),
    [
        (NoPE(), POS, masks.padding([200, 9]), "sdpa", "NoPE adds nothing to scores"),
        (RoPE(DIM), POS, causal(POS), "sdpa", "RoPE adds nothing to scores"),
        (RoPE(DIM), POS, causal() & window(9), "view", "^positions stand at equal steps and"),
        (ALiBi(4), POS, causal(), "view", "ALiBi goes by distance, .* equal steps and the mask"),
        (ALiBi(4), 7 * POS + 3, causal(7 * POS), "view", "goes by distance"),
        (Shaw(DIM), POS, None, "view", "Shaw goes by distance"),
        (TransformerXL(DIM, 4), POS, causal(POS) & window(9, POS), "view", "goes by distance"),
        (ALiBi(4), POS, masks.padding([200, 9]), "blocks", "the mask is no strip"),
        (ALiBi(4), POS, causal() | window(3), "blocks", "the mask is no strip"),
        (ALiBi(4), POS, lambda b, h, i, j: i >= j, "blocks", "the mask is no strip"),
        (ALiBi(4), POS, causal() & (lambda b, h, i, j: i > 3), "blocks", "the mask is no strip"),
        (ALiBi(4), POS, causal(POS.flip(0)), "blocks", "the mask is no strip"),
        (ALiBi(4), POS.flip(0), None, "blocks", "not whole numbers at equal steps"),
        (ALiBi(4), POS * 0.5, None, "blocks", "not whole numbers at equal steps"),
        (ALiBi(4), torch.stack((POS, POS + 1)), None, "blocks", "not .* alike in the batch"),
        (Sum(ALiBi(4), Shaw(DIM)), POS, None, "blocks", "the bias of Sum is no view"),
        (FIRE(4, length=9), POS, None, "blocks", "the bias of FIRE is no view"),
    ],
)  # fmt: skip
def test_the_path_is_explained(encoding, pos, mask, path, why):
    q, k, v = tensors(POS, POS)
    with torch.no_grad():
        said = explain(q, k, v, encoding, encoding.prepare(pos), mask=mask)
    assert said.path == path
    assert str(said).startswith(f"{path}: ")
    assert re.search(why, said.why)
    assert said.why.endswith(".")


def test_gradients_and_few_queries_are_reasons_too():
    q, k, v = tensors(POS, POS)
    said = explain(q, k, v, Shaw(DIM))
    assert said.path == "blocks"
    assert "scores of Shaw go by content and offset, and have no gradients" in said.why
    said = explain(q[..., :5, :], k, v, ALiBi(4), POS[:5] * 0.5, POS)
    assert said.path == "blocks"
    assert "5 queries are one block" in said.why
    said = explain(q[..., :1, :], k, v, ALiBi(4), POS[-1:], POS)
    assert said.path == "blocks"
    assert "as in decoding" in said.why
    said = explain(q[..., :1, :].requires_grad_(), k, v, ALiBi(4), POS[-1:], POS)
    assert said.path == "reference"
    said = explain(q.to("meta"), k.to("meta"), v.to("meta"), ALiBi(4))
    assert "torch's CPU kernel" in said.why


@pytest.mark.parametrize(
    ("encoding", "mask", "message"),
    [
        (Sum(ALiBi(4), Shaw(DIM)), None, '"view"` cannot serve here: the bias of Sum is no view'),
        (ALiBi(4), masks.padding([9, 9]), "the mask is no strip along the diagonal; use "),
        (DeBERTa(DIM, 4), None, "DeBERTa go by content and offset, and have no gradients"),
    ],
)
def test_what_is_no_view_is_refused(encoding, mask, message):
    q = heads(4, 9).requires_grad_()
    with pytest.raises(ValueError, match=message):
        attend(q, q, q, encoding, mask=mask, implementation="view")


def test_there_is_no_second_derivative():
    q = heads(4, 9).requires_grad_()
    out = attend(q, q, q, ALiBi(4))
    with pytest.raises(
        RuntimeError, match=r'no second derivative, .*: pass `implem.*="reference"`'
    ):
        torch.autograd.grad(out.sum(), q, create_graph=True)
    out = attend(q, q, q, ALiBi(4), implementation="reference")
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), q)[0].ne(0).any()


@pytest.mark.parametrize("encoding", [ALiBi(4), T5Bias(4), Shaw(DIM)], ids=type)
@pytest.mark.parametrize(("queries", "keys"), [(0, 0), (0, 5)])
def test_nothing_attends_to_anything(encoding, queries, keys):
    at, k_at = sequence(queries), sequence(keys)
    q, k, v = tensors(at, k_at)
    assert attend(q, k, v, encoding, at, k_at).shape == (2, HEADS, queries, DIM)


def test_transforms_of_functions_find_another_path():
    q = heads(4, 9)
    run = lambda q: attend(q, q, q, ALiBi(4), mask=causal())  # noqa: E731
    each = torch.vmap(lambda one: run(one.unsqueeze(0)).squeeze(0))(q)
    torch.testing.assert_close(each, run(q))
    (expected,) = torch.autograd.grad(run(q.requires_grad_()).sum(), q)
    torch.testing.assert_close(torch.func.grad(lambda q: run(q).sum())(q.detach()), expected)


# Regular positions, and strips


@pytest.mark.parametrize(
    ("pos", "expected"),
    [
        ([3, 4, 5], Line(3, 1)),
        ([3, 7, 11], Line(3, 4)),
        ([[3, 4], [3, 4]], Line(3, 1)),
        ([9], Line(9, 0)),
        ([3, 3, 3], None),
        ([5, 4, 3], None),
        ([3, 4, 6], None),
        ([[3, 4], [4, 5]], None),
        ([0.0, 1.0], None),
        ([], None),
    ],
)
def test_a_line_has_one_step(pos, expected):
    assert line(torch.tensor(pos)) == expected


def test_a_single_token_goes_with_any_step():
    assert lines(torch.tensor([12]), 3 * sequence(4)) == (3, 12)
    assert lines(3 * sequence(4), torch.tensor([12])) == (3, -12)
    assert lines(torch.tensor([2]), torch.tensor([5])) == (1, -3)
    assert lines(2 * sequence(4), 3 * sequence(4)) is None


@masked
@both
def test_a_strip_is_what_the_mask_shows(mask, place):
    q_pos, k_pos = PLACES[place]
    made = MASKS[mask](q_pos, k_pos)
    found = strip(made, q_pos.shape[-1], k_pos.shape[-1])
    i, j = torch.meshgrid(
        torch.arange(q_pos.shape[-1]), torch.arange(k_pos.shape[-1]), indexing="ij"
    )
    seen = torch.ones_like(i).bool()
    if made is not None:
        seen = made(torch.tensor(0), torch.tensor(0), i, j)
    assert ((i - j >= found.low) & (i - j <= found.high)).equal(seen)
    rows = seen.any(-1).nonzero().flatten().tolist()
    assert rows == list(found.rows)
    for start in found.rows[::11]:
        some = slice(start, min(start + 11, found.rows.stop))
        keys = found.seen(some)
        by_some = seen[some].any(0).nonzero().flatten().tolist()
        assert by_some == list(range(keys.start, keys.stop))


def test_a_mask_is_read_once_a_layer_and_a_plain_triangle_never():
    read = []

    def sees(b, h, i, j):
        read.append(i.numel() * j.numel())
        return i >= j

    q, k, v = (heads(4, 300) for _ in range(3))
    for encoding in (NoPE(), ALiBi(4), Shaw(DIM)):
        read.clear()
        attend(q, k, v, encoding, mask=Mask(sees))
        assert sum(read) == 300**2
        read.clear()
        attend(q, k, v, encoding, mask=causal())
        assert not read


# Memory: the views rely on the kernel reading strides, so this guards them in every torch

MEASURE = """
import ctypes, gc, json, sys, torch
from posenc import *
torch.set_num_threads(1)
S, H, D = 4096, 8, 64
libc = ctypes.CDLL(None)

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

def peak(encoding, mask, trains, path):
    q, k, v = (torch.randn(1, H, S, D, requires_grad=trains) for _ in range(3))
    gc.collect(), libc.malloc_trim(0)
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    with torch.set_grad_enabled(trains):
        out = attend(q, k, v, encoding, mask=mask, implementation=path)
        if trains:
            out.sum().backward()
    return status("VmHWM") - before

causal = masks.causal()
made = {
    "alibi": (ALiBi(H), causal, False, "view"),
    "t5": (T5Bias(H), None, False, "view"),
    "kerple": (Kerple(H), causal, False, "view"),
    "fire": (FIRE(H, length=8192), causal, False, "view"),
    "shaw": (Shaw(D, reach=64), causal, False, "view"),
    "transformer-xl": (TransformerXL(D, H), causal, False, "view"),
    "deberta": (DeBERTa(D, H, buckets=256), None, False, "view"),
    "deberta in blocks": (DeBERTa(D, H, buckets=256), None, False, "blocks"),
    "alibi, training": (ALiBi(H), causal, True, "view"),
    "t5, training": (T5Bias(H), causal, True, "view"),
}
S = 256
for case in made.values():
    peak(*case)  # what is loaded once
S = 4096
print(json.dumps({name: peak(*case) for name, case in made.items()}))
"""
MOST = {  # MB; a matrix of scores has 512, and naive Shaw 5,250
    "alibi": 30, "t5": 30, "kerple": 30, "fire": 30, "shaw": 100, "transformer-xl": 160,
    "deberta": 300, "deberta in blocks": 400, "alibi, training": 100, "t5, training": 120,
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_view_makes_the_square_of_the_tokens():
    asked = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout)
    assert found.keys() == MOST.keys()
    assert {name: mb for name, mb in found.items() if mb > MOST[name]} == {}, found
