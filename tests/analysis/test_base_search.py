"""The search on tensors against sums of cosines, and against every base and distance in turn."""

import itertools
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import frequencies
from posenc.analysis.base_search import search, similarity
from posenc.analysis.frequencies import BASES


def test_similarity_is_the_sum_of_cosines():
    theta = frequencies(16, 500.0)
    made = similarity(theta, 1000)
    for m in (0, 1, 7, 31, 32, 33, 500, 999):
        expected = sum(math.cos(m * 500.0 ** (-2 * j / 16)) for j in range(8))
        assert made[m].item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("dim", "length"), [(4, 200), (20, 1000), (32, 7000), (64, 1500), (128, 513), (256, 200)]
)
def test_the_smallest_base_is_that_of_an_exhaustive_search(dim, length):
    """Every base in turn, every distance with its cosines."""
    m, j = torch.arange(length, dtype=torch.float64)[:, None], torch.arange(0, dim, 2)
    for step in itertools.count():
        base = 2 * 1.01**step
        theta = base ** (-j.double() / dim)
        near, far = (m[part] * theta for part in (slice(60), slice(60, None)))
        if base >= 1e15 or all((angle.cos().sum(-1) >= 0).all() for angle in (near, far)):
            break
    assert search(dim, length, BASES) == (None if base >= 1e15 else step)


class Work(TorchDispatchMode):
    """Counts the numbers that torch computes, products of matrices by all their terms."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not func.is_view:
            terms = args[0].shape[-1] if func is torch.ops.aten.mm.default else 1
            self.numbers += made.numel() * terms
        return made


@pytest.mark.parametrize(
    ("dim", "length"),
    [(32, 131072), (64, 65), (64, 524288), (128, 33), (128, 524288), (256, 131072)],
)
def test_the_smallest_base_is_found_with_little_work(dim, length):
    """A search of every base at every distance would take up to 2·10¹³ numbers."""
    with Work() as work:
        search(dim, length, BASES)
    assert work.numbers < 2e9  # of which 10⁹ terms of products take some 0.1 s
