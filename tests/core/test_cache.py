"""What is kept with positions is what would be made anew, whatever has been written to since."""

import copy
import pickle

import pytest
import torch

from posenc import FIRE, ALiBi, DeBERTa, Kerple, RoPE, Shaw, T5Bias, TransformerXL, attend
from posenc.core.cache import MOST_ENTRIES, cached_with
from posenc.core.masks import causal
from posenc.core.positions import sequence

DIM, HEADS, KEYS = 8, 4, 40
LEARNED = [T5Bias(HEADS), Kerple(HEADS), FIRE(HEADS), FIRE(HEADS, 9.0), Shaw(DIM, reach=3)]
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
    if how == "loaded":
        moved = {n: x + 0.1 * torch.randn_like(x) for n, x in encoding.state_dict().items()}
        encoding.load_state_dict(moved)
    if how == "assigned":
        moved = {n: x + 0.1 * torch.randn_like(x) for n, x in encoding.state_dict().items()}
        encoding.load_state_dict(moved, assign=True)
    if how == "rounded":
        encoding.bfloat16().float()
    if how in ("SGD", "Adam"):
        for x in encoding.parameters():
            x.grad = torch.randn_like(x)
        options = {"lr": 0.1} if how == "SGD" else {"lr": 0.1, "foreach": True}
        getattr(torch.optim, how)(encoding.parameters(), **options).step()
        encoding.zero_grad()


STEPS = ["SGD", "Adam", "data", "other data", "copied", "loaded", "assigned", "rounded"]


@pytest.mark.parametrize("how", STEPS)
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
    assert not (after.equal(before) if how == "rounded" else after.allclose(before))


@pytest.mark.parametrize("encoding", [ALiBi(HEADS), *LEARNED[:3], Shaw(DIM, reach=3)], ids=repr)
def test_weights_of_another_dtype_count_as_others(encoding):
    encoding = copy.deepcopy(encoding)
    at, k_at = encoding.prepare(sequence(1, KEYS - 1)), encoding.prepare(sequence(KEYS))
    with torch.no_grad():
        for change in (lambda: None, encoding.double, encoding.float):
            change()
            expected = decoded(encoding, at, k_at, "reference")
            torch.testing.assert_close(decoded(encoding, at, k_at), expected, rtol=1e-4, atol=1e-5)


def test_gradients_flow_after_a_step_without():
    """Against `reference`, which caches nothing."""
    for encoding in LEARNED:
        dim = encoding.dim or DIM
        at, k_at = encoding.prepare(sequence(1, KEYS - 1)), encoding.prepare(sequence(KEYS))
        q, (k, v) = torch.randn(1, HEADS, 1, dim), torch.randn(2, 1, HEADS, KEYS, dim)
        grads = []
        for path in ("auto", "reference"):
            with torch.no_grad():
                attend(q, k, v, encoding, at, k_at, implementation=path)
            out = attend(q, k, v, encoding, at, k_at, implementation=path)
            grads.append(torch.autograd.grad(out.square().sum(), [*encoding.parameters()]))
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-5)


def test_what_fits_is_asked_again_of_a_call_that_differs():
    """Of positions that a call has been made with, each thing that may differ the next time."""
    encoding, at, k_at = Kerple(HEADS), sequence(1, KEYS - 1), sequence(KEYS)
    q, (k, v) = torch.randn(1, HEADS, 1, DIM), torch.randn(2, 1, HEADS, KEYS, DIM)
    call = lambda q=q, k=k, v=v, e=encoding, mask=None: attend(q, k, v, e, at, k_at, mask)  # noqa: E731
    with torch.no_grad():
        for _ in range(2):
            call(mask=causal(at, k_at))
            with pytest.raises(ValueError, match="one dtype"):
                call(v=v.double())
            with pytest.raises(ValueError, match="made for 4 heads"):
                call(q=q.repeat(1, 2, 1, 1))
            with pytest.raises(ValueError, match="39 positions"):
                call(mask=causal(at, k_at[1:]))
            with pytest.raises(ValueError, match="40 positions for 39 tokens"):
                call(k=k[:, :, 1:], v=v[:, :, 1:])
        torch.testing.assert_close(call(), call(mask=causal(at, k_at)))
        hidden = causal(at - 20, k_at)
        assert not call(mask=hidden).allclose(call())
        encoding.to("meta")
        with pytest.raises(ValueError, match="meta device"):
            call()


def test_tables_that_a_call_made_of_positions_are_not_kept_after_a_step():
    """RoPE's learned frequencies, with bare positions: `attend` prepares them in every call."""
    encoding, pos = RoPE(DIM, learned=True), sequence(KEYS)
    q, k, v = torch.randn(3, 1, HEADS, KEYS, DIM).unbind()
    with torch.no_grad():
        before = attend(q, k, v, encoding, pos)
        encoding.delta.add_(0.5)
        after = attend(q, k, v, encoding, pos)
        expected = attend(q, k, v, encoding, encoding.prepare(pos), implementation="reference")
    torch.testing.assert_close(after, expected)
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
        assert cached_with(pos, n, (pos,), lambda n=n: n) == n
    assert len(pos._cached) <= MOST_ENTRIES
    assert not copy.deepcopy(pos)._cached
    assert not pickle.loads(pickle.dumps(pos))._cached
    assert (
        cached_with(pos, 3 * MOST_ENTRIES - 1, (pos,), lambda: "made anew") == 3 * MOST_ENTRIES - 1
    )
