"""CoPE against its formulas in loops, NoPE with a table of zeros, and its memory."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refusals import refused

from posenc import CoPE, NoPE, attend, masks
from posenc.core.positions import sequence

DIM, HEADS = 8, 3


def by_hand(q, k, rows, i, keys, j, scale):
    """qᵢ · e(n) in Python's own numbers; n counts `keys` from j on."""
    q, k, rows = q.tolist(), k.tolist(), rows.tolist()
    dot = lambda a, b: sum(map(math.prod, zip(a, b, strict=True)))  # noqa: E731
    n = sum(1 / (1 + math.exp(-dot(q[i], k[t]) * scale)) for t in keys if t >= j)
    n = min(n, len(rows) - 1)
    low, high = rows[math.floor(n)], rows[math.ceil(n)]
    return dot(q[i], [(1 - n % 1) * a + n % 1 * b for a, b in zip(low, high, strict=True)])


SEEN = {
    "all": lambda i, j: True,
    "causal": lambda i, j: j <= i,
    "two documents": lambda i, j: j <= i and (i < 4) == (j < 4),
}


@pytest.mark.parametrize("sees", SEEN.values(), ids=SEEN)
@pytest.mark.parametrize("count", [2, 4, 64])
def test_is_the_formula_pair_by_pair(sees, count):
    cope, (q, k) = CoPE(DIM, count), torch.randn(2, 2, HEADS, 9, DIM)
    seen = torch.tensor([[sees(i, j) for j in range(9)] for i in range(9)])
    bias = cope.on_scores(q, k, sequence(9), sequence(9), scale=0.3)
    bias = bias.block(slice(None), slice(None), seen)
    for i, j in seen.nonzero().tolist():
        keys = [t for t in range(9) if sees(i, t)]
        for b, h in ((0, 0), (1, 2)):
            expected = by_hand(q[b, h], k[b, h], cope.rows.detach(), i, keys, j, 0.3)
            assert bias[b, h, i, j].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("mask", [None, masks.causal()])
def test_a_table_of_zeros_is_no_encoding(mask):
    cope, (q, k, v) = CoPE(DIM), torch.randn(3, 2, HEADS, 150, DIM)
    cope.rows.data.zero_()
    made = attend(q, k, v, cope, mask=mask)
    torch.testing.assert_close(made, attend(q, k, v, NoPE(), mask=mask))


@pytest.mark.parametrize("tokens", [3, 150])
@torch.no_grad()
def test_nan_in_a_key_is_counted_by_the_queries_that_see_it_alone(tokens):
    """NaN cannot be an index of a row; the fused kernel of a block spreads NaN by itself."""
    cope, (q, k, v) = CoPE(DIM), torch.randn(3, 1, HEADS, tokens, DIM)
    run = lambda path: attend(q, k, v, cope, mask=masks.causal(), implementation=path)  # noqa: E731
    expected = run("reference")
    k[..., -1, :] = float("nan")
    assert run("auto")[..., -1, :].isnan().all()
    made = run("reference")
    torch.testing.assert_close(made[..., :-1, :], expected[..., :-1, :])
    assert made[..., -1, :].isnan().all()


def test_gradients_are_those_of_small_steps():
    cope, (q, k, v) = CoPE(4, 3).double(), torch.randn(3, 1, 1, 4, 4, dtype=torch.float64)
    q.requires_grad_(), k.requires_grad_()
    run = lambda q, k, rows: torch.func.functional_call(cope, {"rows": rows}, (q, k))  # noqa: E731
    cope.forward = lambda q, k: attend(q, k, v, cope, mask=masks.causal())
    assert torch.autograd.gradcheck(run, (q, k, cope.rows))


MEASURE = """
import torch
from posenc import CoPE, attend, masks
from posenc.core.positions import sequence
from benchmarks.memory import peak
cope = CoPE(64)
def run(tokens):
    q, k, v = torch.randn(3, 1, 8, tokens, 64)
    return peak(lambda: attend(q, k, v, cope, mask=masks.causal()))
with torch.no_grad():
    run(256)  # loads what is loaded once
    print(run(2048))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read from /proc, of Linux"
)
def test_its_memory_stays_below_the_square_of_the_tokens():
    """One number for each pair of 2,048 tokens in 8 heads would take 134 MB."""
    memory = pytest.importorskip("benchmarks.memory", reason="reads the repository")
    environment = os.environ | memory.FREE_AT_ONCE
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 120


def test_says_what_it_needs(unchecked):
    with refused(ValueError, "`count`", 2, 1):
        CoPE(8, count=1)
