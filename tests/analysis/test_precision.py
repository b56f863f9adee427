"""Angles in few bits: numpy's float32, loops with cmath, and how far each dtype can count."""

import cmath
import math

import numpy as np
import pytest
import torch

from posenc import frequencies
from posenc.analysis.precision import WAYS, WINDOW, precision

POSITIONS = [100, 300, 1000, 10_000, 100_000, 10**7]
OURS = "posenc: float64, rounded once"


@pytest.fixture(scope="module")
def found():
    return precision(frequencies(64), POSITIONS)


def at(values, position):
    return values[POSITIONS.index(position)]


def test_ours_is_right_to_half_a_unit_in_the_last_place_to_ten_million(found):
    assert max(found.error[OURS]) <= 2**-25
    assert max(found.drift[OURS] + found.far[OURS]) < 1e-7


def test_float32_angles_are_those_of_numpy(found):
    theta = np.array([10000 ** (-2 * j / 64) for j in range(32)])
    for start in POSITIONS:
        angles = [np.float32(p) * theta.astype("f4") for p in range(start, start + WINDOW)]
        off = max(
            abs(f(float(a)) - f(p * t))
            for p, row in enumerate(angles, start)
            for a, t in zip(row, theta, strict=True)
            for f in (math.cos, math.sin)
        )
        assert at(found.error["float32 angles"], start) == pytest.approx(off, abs=1e-7)
    assert at(found.error["float32 angles"], 10**7) > 0.3


def test_bfloat16_cannot_count_past_256_nor_float16_past_2048(found):
    assert len(set(torch.arange(4096).bfloat16().tolist())) == 769
    for way, fine, not_ in (("bfloat16", 100, 300), ("float16", 1000, 10_000)):
        error = found.error[f"{way} positions"]
        assert at(error, fine) == at(found.error["float32 angles"], fine)
        assert at(error, not_) > 0.5
    assert at(found.drift["bfloat16 positions"], 1000) == pytest.approx(0.3, abs=0.1)
    assert at(found.drift["bfloat16 positions"], 10_000) == pytest.approx(0.75, abs=0.15)
    assert at(found.error["float16 positions"], 100_000) is None


def test_cos_and_sin_in_16_bits_cost_the_same_everywhere(found):
    for way, half_unit in (("bfloat16", 2**-9), ("float16", 2**-12)):
        error, drift = found.error[f"{way} cos and sin"], found.drift[f"{way} cos and sin"]
        assert max(error) < 1.001 * half_unit
        assert max(drift) < 1.2 * min(drift)
        assert max(drift) < half_unit


def test_frequencies_in_bfloat16_move_far_tokens_only(found):
    assert at(found.drift["bfloat16 frequencies"], 10_000) < 2e-3
    assert at(found.far["bfloat16 frequencies"], 100) < 0.1
    assert at(found.far["bfloat16 frequencies"], 10_000) > 0.3


def test_drift_is_the_change_of_scores_pair_by_pair(found):
    made = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, WINDOW, 32, dtype=torch.complex128, generator=made).tolist()
    theta = [10000 ** (-2 * j / 64) for j in range(32)]
    rounded = torch.tensor(theta).bfloat16().tolist()

    def score(m, n, q_at, k_at, theta):
        turned = (
            a * b.conjugate() * cmath.exp(1j * (q_at + m - k_at - n) * t)
            for a, b, t in zip(q[m], k[n], theta, strict=True)
        )
        return sum(turned).real

    for k_at, values in ((300, found.drift), (0, found.far)):
        places = [(m, n) for m in range(WINDOW) for n in range(WINDOW)]
        true = [score(m, n, 300, k_at, theta) for m, n in places]
        off = [score(m, n, 300, k_at, rounded) for m, n in places]
        change = sum((a - b) ** 2 for a, b in zip(true, off, strict=True))
        expected = math.sqrt(change / sum(a**2 for a in true))
        assert at(values["bfloat16 frequencies"], 300) == pytest.approx(expected, rel=0.01)


def test_every_way_has_a_number_for_every_position(found):
    for values in (found.error, found.drift, found.far):
        assert list(values) == list(WAYS)
        assert {len(row) for row in values.values()} == {len(POSITIONS)}
