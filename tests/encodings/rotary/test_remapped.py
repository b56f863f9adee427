"""Remapped offsets against loops over pairs that follow their authors' code, and against RoPE."""

import cmath
import pickle

import pytest
import torch

from posenc import Remapped, RoPE, attend, dual_chunk, masks, rerope, self_extend

DIM, TOKENS = 4, 14
THETA = [1.0, 0.01]


def of_rerope(i, j):
    """`rectified_mask` of rerope_patch.py: positions as they are, or the window and 0."""
    return i - j if i - j < 5 else 5


def of_self_extend(i, j):
    """`group_query_position` − `group_key_position` of self_extend_patch/Llama.py."""
    return i - j if i - j < 4 else i // 2 + 4 - 4 // 2 - j // 2


def of_dual_chunk(i, j):
    """Entries of the tables `q_t`, `qc_t` and `k_t` of chunkllama_attn_replace.py."""
    chunk, local = 5, 1
    length = chunk - local
    q_t = list(range(length))
    qc_t = [min(n + length, chunk) for n in range(length)]
    between = i // length - j // length
    query = [q_t[i % length], qc_t[i % length], qc_t[length - 1]][min(between, 2)]
    return query - j % length


MAPS = pytest.mark.parametrize(
    ("remap", "offset"),
    [
        (rerope(5), of_rerope),
        (self_extend(2, 4), of_self_extend),
        (dual_chunk(5, 1), of_dual_chunk),
    ],
    ids=["rerope", "self_extend", "dual_chunk"],
)


def pairs(x):
    """Pairs of interleaved channels as complex numbers."""
    return [complex(*x[c : c + 2]) for c in range(0, DIM, 2)]


@MAPS
def test_scores_turn_by_the_mapped_offset(remap, offset):
    q, k = torch.randn(2, 1, 2, TOKENS, DIM, dtype=torch.float64)
    v = torch.eye(TOKENS, dtype=torch.float64).expand(1, 2, -1, -1)
    weights = attend(q, k, v, Remapped(DIM, remap), mask=masks.causal())
    for h in range(2):
        for i in range(TOKENS):
            scores = []
            for j in range(i + 1):
                f = offset(i, j)
                both = zip(
                    pairs(q[0, h, i].tolist()), pairs(k[0, h, j].tolist()), THETA, strict=True
                )
                scores.append(
                    sum((a * cmath.exp(1j * f * t) * b.conjugate()).real for a, b, t in both)
                )
            expected = torch.tensor(scores, dtype=torch.float64).div(DIM**0.5).softmax(0)
            torch.testing.assert_close(weights[0, h, i, : i + 1], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("remap", [rerope(TOKENS), self_extend(3, TOKENS), dual_chunk(20, 4)])
def test_within_the_window_it_is_rope(remap):
    q, k, v = torch.randn(3, 2, 4, TOKENS, DIM)
    made, rope = (
        attend(q, k, v, encoding, mask=masks.causal())
        for encoding in (Remapped(DIM, remap, layout="half"), RoPE(DIM, layout="half"))
    )
    torch.testing.assert_close(made, rope)


@MAPS
def test_survives_a_pickle(remap, offset):
    q, k, v = torch.randn(3, 1, 2, TOKENS, DIM)
    encoding = Remapped(DIM, remap)
    again = pickle.loads(pickle.dumps(encoding))
    made, expected = (attend(q, k, v, e, mask=masks.causal()) for e in (again, encoding))
    assert made.equal(expected)


def test_points_are_refused():
    with pytest.raises(ValueError, match=r"`freqs` must be a vector.*\(2, 3\)"):
        Remapped(torch.ones(2, 3, dtype=torch.float64))
