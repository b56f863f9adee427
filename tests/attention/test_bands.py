"""Every path against the reference under bands of all kinds: random, contradictory, empty."""

import pytest
import torch

from posenc import (
    FIRE,
    ALiBi,
    CoPE,
    DeBERTa,
    Kerple,
    NoPE,
    RoPE,
    Shaw,
    Sum,
    T5Bias,
    TransformerXL,
    attend,
    masks,
)
from posenc.core.encoding import Encoding
from posenc.core.positions import sequence

DIM, HEADS = 8, 2


class Extra(Encoding):
    """Adds to the values, and nothing else."""

    def by_weight(self, weights, q_at, k_at, rows):
        return 5 * weights.square().sum(-1, keepdim=True)


ENCODINGS = {
    "nope": NoPE(),
    "rope": RoPE(DIM),
    "alibi": ALiBi(HEADS),
    "t5": T5Bias(HEADS),
    "kerple": Kerple(HEADS),
    "fire": FIRE(HEADS),
    "shaw": Shaw(DIM, reach=2),
    "deberta": DeBERTa(DIM, HEADS, reach=3),
    "transformer-xl": TransformerXL(DIM, HEADS),
    "cope": CoPE(DIM, count=9),
    "sum of distance": Sum(RoPE(DIM), ALiBi(HEADS), T5Bias(HEADS)),
    "sum of kinds": Sum(ALiBi(HEADS), DeBERTa(DIM, HEADS, reach=3)),
    "sum within a sum": Sum(Sum(Shaw(DIM, reach=2), Extra())),
}
every = pytest.mark.parametrize("name", ENCODINGS)


def same(encoding, q_pos, k_pos, mask, paths=("auto", "blocks"), trains=False, **options):
    """Asserts that paths agree with the reference, and so do their gradients; returns it."""
    q = torch.randn(2, HEADS, len(q_pos), DIM)
    k, v = torch.randn(2, 2, HEADS, len(k_pos), DIM).unbind()
    leaves = [x.requires_grad_(trains) for x in (q, k, v)]

    def run(path):
        with torch.set_grad_enabled(trains):
            at, k_at = encoding.prepare(q_pos), encoding.prepare(k_pos)
            out = attend(q, k, v, encoding, at, k_at, mask, implementation=path, **options)
            if not trains:
                return (out,)
            return out, *torch.autograd.grad(out.square().sum(), leaves)

    expected = run("reference")
    for path in paths:
        torch.testing.assert_close(run(path), expected, rtol=1e-4, atol=1e-4)
    return expected


def some(low, high):
    return int(torch.randint(low, high + 1, ()))


@every
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_any_bands_over_any_lines_are_the_reference(name, trains):
    """Test up to three bands with positions of their own, which often contradict each other."""
    for _ in range(12):
        step, queries, keys = some(1, 3), some(1, 14), some(1, 14)
        q_pos, k_pos = (step * sequence(n, some(-4, 9)) for n in (queries, keys))
        mask = masks.causal(q_pos, k_pos + some(-9, 9))
        for _ in range(some(0, 2)):
            places = q_pos + some(-5, 5), k_pos + some(-5, 5)
            band = masks.window(some(1, 9), *places)
            mask = mask & (band if some(0, 2) else masks.causal(*places))
        same(ENCODINGS[name], q_pos, k_pos, mask, trains=trains)


@every
def test_bands_over_positions_that_are_no_line_are_the_reference(name):
    for _ in range(5):
        q_pos, k_pos = torch.randint(0, 20, (6,)), torch.randint(0, 20, (9,))
        mask = masks.causal(q_pos, k_pos + some(-20, 9)) & masks.window(some(3, 30), q_pos, k_pos)
        same(ENCODINGS[name], q_pos, k_pos, mask)


@every
@pytest.mark.parametrize("tokens", [1, 16, 150])
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_where_there_is_nothing_to_see_there_is_0(name, tokens, trains):
    """The band of a ring whose keys all stand later, and bands that contradict each other."""
    encoding, q_pos, k_pos = ENCODINGS[name], sequence(tokens), sequence(tokens, 900)
    contradictory = masks.causal(q_pos, q_pos + 3) & masks.window(2)
    for keys, mask in ((k_pos, masks.causal(q_pos, k_pos)), (q_pos, contradictory)):
        for result in same(encoding, q_pos, keys, mask, trains=trains):
            assert result.eq(0).all()


@every
def test_learned_tensors_get_gradients_of_0_where_nothing_is_seen(name):
    encoding, pos = ENCODINGS[name], sequence(20)
    q, k = torch.randn(1, HEADS, 20, DIM), torch.full((1, HEADS, 20, DIM), float("nan"))
    at, k_at = encoding.prepare(pos), encoding.prepare(pos + 500)
    out = attend(q, k, k, encoding, at, k_at, masks.causal(pos, pos + 500))
    assert out.eq(0).all()
    if learned := list(encoding.parameters()):
        out.sum().backward()
        assert all(x.grad is None or x.grad.eq(0).all() for x in learned)
        encoding.zero_grad()


@every
@pytest.mark.parametrize("tokens", [1, 140])
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_nan_that_nobody_sees_changes_nothing_where_all_or_some_queries_see_nothing(
    name, tokens, trains
):
    encoding, pos = ENCODINGS[name], sequence(tokens)
    q, k = torch.randn(1, HEADS, tokens, DIM), torch.full((1, HEADS, tokens, DIM), float("nan"))
    for start in (500, tokens // 2):
        k_pos = pos + start
        seen = start < tokens
        k[..., : tokens - start, :] = 1.0 if seen else float("nan")
        at, k_at, mask = encoding.prepare(pos), encoding.prepare(k_pos), masks.causal(pos, k_pos)
        with torch.set_grad_enabled(trains):
            out = attend(q, k, k, encoding, at, k_at, mask)
            expected = attend(q, k.nan_to_num(), k.nan_to_num(), encoding, at, k_at, mask)
        torch.testing.assert_close(out, expected)
        assert seen or out.eq(0).all()


@every
@pytest.mark.parametrize("scale", [0.0, -0.3])
@pytest.mark.parametrize("tokens", [1, 7, 140])
def test_a_scale_of_0_or_below_is_a_scale(name, scale, tokens):
    pos, encoding = sequence(tokens), ENCODINGS[name]
    for mask in (masks.causal(), masks.causal() & masks.window(3), None):
        same(encoding, pos, pos, mask, trains=mask is not None, scale=scale)
    if "on_scores" not in encoding.acts_on:
        same(encoding, pos, pos, masks.causal(), ("sdpa", "toeplitz"), scale=scale)


def test_a_scale_of_0_is_the_mean_of_what_is_seen():
    q, k, v = torch.randn(3, 1, HEADS, 5, DIM).unbind()
    out = attend(q, k, v, NoPE(), mask=masks.causal(), scale=0.0)
    mean = v.cumsum(-2) / torch.arange(1, 6).unsqueeze(-1)
    torch.testing.assert_close(out, mean)


@every
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.filterwarnings("ignore:`torch.jit")  # by torch, of its own parts
def test_transforms_of_functions_give_what_they_give_of_the_reference(name, window):
    """Test forward and second derivatives and `vmap`, which the kernels of torch do not support."""
    encoding, (q, v, tangent) = ENCODINGS[name], torch.randn(3, 1, HEADS, 9, DIM).unbind()
    mask = masks.causal() if window is None else masks.causal() & masks.window(window)
    func = torch.func

    def run(path):
        f = lambda q: attend(q, v, v, encoding, mask=mask, implementation=path)  # noqa: E731
        g = func.grad(lambda q: f(q).square().sum())
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q, tangent)
            forward = torch.autograd.forward_ad.unpack_dual(f(dual)).tangent
        return (
            forward,
            func.jvp(f, (q,), (tangent,)),
            func.jvp(g, (q,), (tangent,)),
            func.grad(lambda q: g(q).square().sum())(q),
            func.vmap(f)(torch.stack((q, tangent))),
            func.vmap(g)(torch.stack((q, tangent))),
        )

    torch.testing.assert_close(run("auto"), run("reference"), rtol=1e-4, atol=1e-4)
