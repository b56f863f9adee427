"""Sixty calls in a loop of decoding leave nothing: the bytes of tensors, as torch counts them.

Its profiler counts each allocation and each release, whoever holds the tensor. Memory held by a
cycle through the base of a view counts too, which Python's collector cannot follow.
"""

import gc
import weakref
from contextlib import suppress
from itertools import product

import pytest
import torch
from thorough import some
from torch.autograd.profiler import profile

from posenc import CATALOG, FIRE, ALiBi, Cache, NoPE, SelfAttention, Sum, T5Bias, attend, masks
from posenc.core.positions import folded

pytestmark = pytest.mark.slow

DIM, HEADS, WIDTH, TOKENS = 8, 4, 32, 15
CARDS = {card.slug: card.make for card in CATALOG}
CARDS["sum"] = lambda dim, heads: Sum(ALiBi(heads), T5Bias(heads), FIRE(heads))
ALONE = [
    name
    for name, make in CARDS.items()
    if not {"on_embeddings", "on_hidden"} & {*make(DIM, HEADS).acts_on}
]
MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode}


def bytes_left(run):
    """The bytes of tensors that are alive after `run` and were not before it."""
    run()  # what is imported or looked up once is not counted
    gc.collect()
    with profile(use_kineto=False, profile_memory=True) as events:
        run()
        gc.collect()
    # Not `function_events`, which takes minutes to arrange them.
    of_memory = [event for event in events.kineto_results.events() if event.name() == "[memory]"]
    return sum(event.nbytes() for event in of_memory)


def alive(tensors):
    gc.collect()
    return sum(tensor() is not None for tensor in tensors)


def decode(encoding, held):
    """One query after another against all keys so far: bare, with a mask, and prepared."""
    for n in range(1, TOKENS + 1):
        pos = folded(n, encoding.axes)
        q, (k, v) = torch.randn(1, HEADS, 1, DIM), torch.randn(2, 1, 2, n, DIM)
        attend(q, k, v, encoding, pos[-1:], pos)
        mask = masks.causal(pos[-1:], pos) if encoding.axes == 1 else None
        at, k_at = encoding.prepare(pos[-1:]), encoding.prepare(pos)
        attend(q, k, v, encoding, pos[-1:], pos, mask)
        for _ in range(2):
            attend(q, k, v, encoding, at, k_at)
        held += map(weakref.ref, (q, k, v, pos))


@pytest.mark.parametrize("mode", some(MODES, 2))
@pytest.mark.parametrize("name", ALONE)
def test_a_loop_over_attend_leaves_nothing(name, mode):
    encoding, held = CARDS[name](DIM, HEADS), []
    with MODES[mode]():
        assert bytes_left(lambda: decode(encoding, held)) == 0
    assert alive(held) == 0


PATHS = "reference", "sdpa", "toeplitz", "blocks"


def by_path(encoding, path, held):
    """Run whole texts and single queries on one path; return whether it supports any of them."""
    served = False
    for n in (TOKENS, 4 * TOKENS) * 15:
        pos = folded(n, encoding.axes)
        q, (k, v) = torch.randn(1, HEADS, n, DIM), torch.randn(2, 1, 2, n, DIM)
        mask = masks.window(9, pos) & masks.causal(pos) if encoding.axes == 1 else None
        for some_q, at, seen in ((q, pos, mask), (q[:, :, -1:], pos[-1:], None)):
            with suppress(ValueError):  # the path cannot carry it
                out = attend(some_q, k, v, encoding, at, pos, seen, implementation=path)
                served = True
                held += map(weakref.ref, (out, q, k, v, pos))
    return served


@pytest.mark.parametrize(("name", "path"), some(product(ALONE, PATHS), 3))
def test_sixty_calls_on_any_path_leave_nothing(name, path):
    encoding, held = CARDS[name](DIM, HEADS), []
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            left = bytes_left(lambda: by_path(encoding, path, held))
        assert (left, alive(held)) == (0, 0)


def test_every_path_serves_some():
    for path, make in zip(PATHS, (T5Bias, lambda heads: NoPE(), ALiBi, FIRE), strict=True):
        assert by_path(make(HEADS), path, [])


@pytest.mark.parametrize("mode", some(MODES, 2))
@pytest.mark.parametrize("name", CARDS)
def test_layers_and_a_cache_that_is_dropped_leave_nothing(name, mode):
    """Whole texts of growing length, positions given and left out, and a text token by token."""
    layer, held = SelfAttention(WIDTH, HEADS, CARDS[name](DIM, HEADS), groups=2), []

    def run():
        cache, axes = Cache(), layer.encoding.axes
        for n in range(1, TOKENS + 1):
            x, pos = torch.randn(1, n, WIDTH), folded(n, axes)
            layer(x, pos, masks.causal())
            if axes == 1:
                layer(x, mask=masks.causal())
            if name != "normalized":
                layer(x[:, -1:], pos[-1:], masks.causal(), cache=cache)
            held.extend(map(weakref.ref, (x, pos)))
        held.append(weakref.ref(cache))

    with MODES[mode]():
        assert bytes_left(run) == 0
    assert alive(held) == 0


@torch.no_grad()
def test_what_is_kept_is_counted():
    """The measure against what it must see: a list, and a cycle through the base of a view."""
    kept = []
    assert bytes_left(lambda: kept.append(torch.zeros(1000))) == 4000

    def cycle():
        base = torch.zeros(1000)
        base.view_of_it = base[:1]

    assert bytes_left(cycle) == 4000
