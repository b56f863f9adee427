"""What is kept with positions is what would be made anew, whatever has been written to since."""

import copy
import pickle

import pytest
import torch

from posenc import FIRE, ALiBi, DeBERTa, Kerple, Shaw, T5Bias, TransformerXL, attend
from posenc.core.cache import MOST_ENTRIES, kept
from posenc.core.masks import causal
from posenc.core.positions import sequence

DIM, HEADS, KEYS = 8, 4, 40
LEARNED = [T5Bias(HEADS), Kerple(HEADS), FIRE(HEADS), Shaw(DIM, reach=3)]
LEARNED += [DeBERTa(DIM, HEADS, reach=9), DeBERTa(64, 4, reach=64), TransformerXL(DIM, HEADS)]


def decoded(encoding, at, k_at, path="auto", queries=1):
    dim = encoding.dim or DIM
    torch.manual_seed(1)
    pos = k_at if isinstance(k_at, torch.Tensor) else k_at.pos
    q, (k, v) = torch.randn(1, HEADS, queries, dim), torch.randn(2, 1, HEADS, len(pos), dim)
    return attend(q, k, v, encoding, at, k_at, implementation=path)


def step(encoding, how):
    with torch.no_grad():
        for x in encoding.parameters():
            if how == "data":
                x.data.add_(0.1 * torch.randn_like(x))
            elif how == "other data":
                x.data = x + 0.1 * torch.randn_like(x)
            elif how == "copied":
                x.copy_(x + 0.1 * torch.randn_like(x))
    if how in ("SGD", "Adam"):
        for x in encoding.parameters():
            x.grad = torch.randn_like(x)
        options = {"lr": 0.1} if how == "SGD" else {"lr": 0.1, "foreach": True}
        getattr(torch.optim, how)(encoding.parameters(), **options).step()
        encoding.zero_grad()


@pytest.mark.parametrize("how", ["SGD", "Adam", "data", "other data", "copied"])
@pytest.mark.parametrize("encoding", LEARNED, ids=lambda encoding: type(encoding).__name__)
@pytest.mark.parametrize("queries", [1, 20])
def test_after_a_step_of_an_optimiser_nothing_is_stale(encoding, how, queries):
    encoding = copy.deepcopy(encoding)
    at, k_at = encoding.prepare(sequence(queries, KEYS - queries)), encoding.prepare(sequence(KEYS))
    with torch.no_grad():
        before = decoded(encoding, at, k_at, queries=queries)
        assert decoded(encoding, at, k_at, queries=queries).equal(before)
        step(encoding, how)
        after = decoded(encoding, at, k_at, queries=queries)
        expected = decoded(encoding, at, k_at, "reference", queries=queries)
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-5)
    assert not after.allclose(before)


def test_encodings_that_share_weights_and_positions_are_told_apart():
    one, other = Kerple(HEADS), Kerple(HEADS, "power")
    other.p, other.a = one.p, one.a
    at, k_at = sequence(1, KEYS - 1), sequence(KEYS)
    with torch.no_grad():
        for encoding in (one, other, one):
            expected = decoded(encoding, at, k_at, "reference")
            torch.testing.assert_close(decoded(encoding, at, k_at), expected)


def test_positions_and_masks_that_are_written_to_count_as_others():
    encoding, at, k_at = ALiBi(HEADS), sequence(1, 3), sequence(KEYS)
    mask = causal(at, k_at)
    torch.manual_seed(1)
    q, (k, v) = torch.randn(1, HEADS, 1, DIM), torch.randn(2, 1, HEADS, KEYS, DIM)
    for _ in range(3):
        runs = [attend(q, k, v, encoding, at, k_at, mask, None, p) for p in ("auto", "reference")]
        torch.testing.assert_close(*runs)
        at += 9


def test_what_is_made_in_inference_mode_is_not_met_in_training():
    encoding, at, k_at = ALiBi(HEADS), sequence(1, KEYS - 1), sequence(KEYS)
    with torch.inference_mode():
        decoded(encoding, at, k_at)
    q = torch.randn(1, HEADS, 1, DIM, requires_grad=True)
    k = torch.randn(1, HEADS, KEYS, DIM)
    attend(q, k, k, encoding, at, k_at).sum().backward()
    assert q.grad.ne(0).any()


def test_a_copy_and_a_pickle_leave_it_behind_and_it_does_not_grow_for_ever():
    pos = sequence(9)
    for n in range(3 * MOST_ENTRIES):
        assert kept(pos, n, (pos,), lambda n=n: n) == n
    assert len(pos._kept) <= MOST_ENTRIES
    assert not copy.deepcopy(pos)._kept
    assert not pickle.loads(pickle.dumps(pos))._kept
    assert kept(pos, 3 * MOST_ENTRIES - 1, (pos,), lambda: "made anew") == 3 * MOST_ENTRIES - 1
