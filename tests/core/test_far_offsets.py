"""Offsets of positions at the ends of int64, against Python's whole numbers: right, or refused.

A difference beyond 2⁶³ − 1 wraps around: a key 2⁶³ tokens behind would stand as far ahead.
"""

import math

import pytest
import torch
from refusals import refused

from posenc import (
    FIRE,
    ALiBi,
    DeBERTa,
    Kerple,
    RoPE,
    SelfAttention,
    Shaw,
    Sum,
    T5Bias,
    attend,
    masks,
    positions,
)
from posenc.catalog import CATALOG, create
from posenc.core.biases import dense

DIM, HEADS = 8, 2
FAR = 2**62
TOO_FAR = [(FAR, -FAR), (-FAR - 1, 0), (2**63 - 1, 0), (-(2**63), 0)]
ALLOWED = torch.tensor([-FAR, -FAR + 1, -1, 0, FAR - 2, FAR - 1])
too_far = refused(ValueError, "−2⁶²", "2⁶² − 1")
q = torch.randn(1, HEADS, 2, DIM)


def distances(pos):
    return torch.tensor([[float(abs(a - b)) for b in pos.tolist()] for a in pos.tolist()]).double()


def curves():
    kerple = Kerple(HEADS).double()
    p, a = kerple.p.clamp_min(0.01).view(-1, 1, 1), kerple.a.clamp_min(0.01).view(-1, 1, 1)
    yield "KERPLE", kerple, lambda d: -p * (a * d).log1p()
    alibi = ALiBi(HEADS, strength=0.25)
    yield "ALiBi", alibi, lambda d: -alibi.slopes.view(-1, 1, 1) * d
    shaken = T5Bias(HEADS).double()
    last = shaken.weight[[15, 31]].mT  # the last bucket behind, and the last one ahead
    behind = (torch.arange(6).unsqueeze(-1) > torch.arange(6)).long()
    far = lambda d: torch.where(d == 0, shaken.weight[0].view(-1, 1, 1), last[:, 1 - behind])  # noqa: E731
    yield "T5", shaken, lambda d: torch.where(d == 1, math.nan, far(d))


@pytest.mark.parametrize(("encoding", "curve"), [pytest.param(*x[1:], id=x[0]) for x in curves()])
def test_the_bias_of_the_furthest_offsets_is_right(encoding, curve):
    bias, expected = encoding(ALLOWED)[0].double(), curve(distances(ALLOWED))
    known = expected.isfinite()  # NaN for neighbours, which have a bucket of their own in T5
    torch.testing.assert_close(bias[known], expected[known], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("make", [Shaw, lambda dim: DeBERTa(dim, HEADS, reach=4)])
def test_the_furthest_offsets_have_the_row_at_the_reach(make):
    """Far offsets equal those just beyond the reach, which do not wrap around."""
    encoding, k = make(DIM), torch.randn(1, HEADS, 2, DIM)
    for path in ("reference", "blocks", "auto"):
        for low, high in ((-FAR, FAR - 1), (FAR - 1, -FAR)):
            far = torch.tensor([low, 0]), torch.tensor([high, 0])
            near = [pos.sign() * 100 for pos in far]
            out = attend(q, k, k, encoding, *far, implementation=path)
            torch.testing.assert_close(out, attend(q, k, k, encoding, *near))


@pytest.mark.parametrize("far", TOO_FAR, ids=str)
def test_a_bias_of_distance_refuses_what_would_wrap_around(far):
    for encoding in (ALiBi(1), T5Bias(1), Kerple(1), Kerple(1, "power"), FIRE(1)):
        with too_far:
            encoding(torch.tensor(far))


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_encoding_refuses_them(card):
    encoding = create(card.slug, DIM, HEADS)
    far = torch.tensor([FAR, -FAR])
    far = far if encoding.axes == 1 else far.unsqueeze(-1).expand(2, encoding.axes)
    with too_far:
        encoding.prepare(far)
    with too_far:
        SelfAttention(DIM * HEADS, HEADS, encoding)(torch.randn(1, 2, DIM * HEADS), far)


@pytest.mark.parametrize("path", ["reference", "blocks", "toeplitz", "auto"])
@pytest.mark.parametrize("encoding", [ALiBi(HEADS), Shaw(DIM), Sum(RoPE(DIM), FIRE(HEADS))])
def test_attention_with_bare_positions_refuses_them(encoding, path):
    near, far = torch.tensor([0, 1]), torch.tensor([0, FAR])
    with too_far:
        attend(q, q, q, encoding, far, implementation=path)
    with too_far:
        attend(q, q, q, encoding, near, far, implementation=path)


@pytest.mark.parametrize("far", TOO_FAR, ids=str)
def test_masks_refuse_them(far):
    with too_far:
        masks.window(4, torch.tensor(far))
    with too_far:
        masks.causal(torch.tensor(far))


def test_a_window_over_the_furthest_positions_sees_the_nearest():
    seen = dense(masks.window(2, ALLOWED), (1, 1, 6, 6))
    assert torch.equal(seen[0, 0], distances(ALLOWED) < 2)


def test_ids_of_documents_may_be_any_whole_numbers():
    ids = torch.tensor([2**63 - 1, -(2**63), -(2**63)])
    seen = dense(masks.documents(ids), (1, 1, 3, 3))
    assert seen[0, 0].int().tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]


def test_a_sequence_ends_before_them():
    assert positions.sequence(2, start=FAR - 2).tolist() == [FAR - 2, FAR - 1]
    with refused(ValueError, "`start`"):
        positions.sequence(2, start=FAR - 1)
