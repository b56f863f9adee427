"""Likeness of positions: cmath, published numbers, loops over pairs, ALiBi's known slope."""

import cmath
import math

import pytest
import torch

from posenc import ALiBi, NoPE, RoPE, SelfAttention, Sinusoidal, T5Bias, axial, frequencies
from posenc.analysis.similarity import between, bound, curve, of_distance, of_words, peak, turned


def test_is_the_mean_over_all_pairs_so_far_apart():
    layer, x = SelfAttention(16, 2, RoPE(8)), torch.randn(2, 5, 16)
    whole = curve(of_words(layer, x))
    with torch.no_grad():
        q = layer.q(x).view(2, 5, 2, 8)
        for distance in range(5):
            found = []
            for window in range(2):
                for head in range(2):
                    for i in range(distance, 5):
                        pos = torch.tensor([i, i - distance])
                        pair = q[window, pos, head].view(1, 1, 2, 8)
                        turned, _ = layer.encoding(pair, pair, pos)
                        found.append((turned[0, 0, 0] @ turned[0, 0, 1] / 8**0.5).item())
            assert whole.mean[distance] == pytest.approx(sum(found) / len(found), abs=1e-5)
            assert whole.low[distance] <= whole.mean[distance] <= whole.high[distance]


def test_alibi_lowers_the_mean_by_the_mean_slope():
    x, layer = torch.randn(3, 12, 16), SelfAttention(16, 4, NoPE())
    plain = curve(of_words(layer, x))
    layer.encoding = ALiBi(4)
    biased = curve(of_words(layer, x))
    slope = (2**-2 + 2**-4 + 2**-6 + 2**-8) / 4
    for distance in plain.distance:
        fall = plain.mean[distance] - biased.mean[distance]
        assert fall == pytest.approx(slope * distance, abs=1e-5)


def test_distance_is_counted_back_from_the_query():
    x, layer = torch.randn(3, 6, 16), SelfAttention(16, 2, NoPE())
    plain = curve(of_words(layer, x))
    layer.encoding = t5 = T5Bias(2, buckets=8, reach=16)
    biased = curve(of_words(layer, x))
    for distance in (0, 1):  # each has a bucket of its own; those of keys ahead begin at 4
        expected = t5.weight[distance].mean().item()
        assert biased.mean[distance] - plain.mean[distance] == pytest.approx(expected, abs=1e-5)


def test_dot_and_cosine_of_sinusoids_are_sums_of_cosines():
    found = between(Sinusoidal(8), 30, start=5)
    assert found.position == list(range(5, 35))
    for i, j in ((0, 0), (3, 20), (29, 1)):
        expected = sum(math.cos((i - j) / 10000 ** (2 * n / 8)) for n in range(4))
        assert found.dot[i][j] == pytest.approx(expected, abs=1e-5)
        assert found.cosine[i][j] == pytest.approx(expected / 4, abs=1e-5)


def test_rows_of_rope_are_what_it_makes_of_ones():
    found = between(RoPE(8), 12)
    for i, j in ((0, 0), (2, 11)):
        expected = sum(2 * math.cos((i - j) / 10000 ** (2 * n / 8)) for n in range(4))
        assert found.dot[i][j] == pytest.approx(expected, abs=1e-5)


def test_a_bias_has_no_rows_and_cells_of_a_square_have_points():
    assert between(ALiBi(4), 8) is None
    assert between(RoPE(axial(8, 2)), 4).position == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("dim", "rises", "negative"), [(64, 6, 725), (128, 12, 1707), (512, 44, 3284)]
)
def test_similarity_rises_early_and_turns_negative_late(dim, rises, negative):
    """The numbers were computed in numpy when the project began."""
    found = of_distance(frequencies(dim), 8000)
    assert (found.rises, found.negative) == (rises, negative)


def test_distance_to_position_0_is_that_of_the_rows():
    found = of_distance(frequencies(16), 50)
    rows = Sinusoidal(16)(torch.zeros(1, 50, 16))[0].double()
    apart = (rows - rows[0]).norm(dim=-1)
    assert torch.tensor(found.apart).allclose(apart.double().float(), atol=1e-5)
    assert found.similarity[0] == 8


def test_the_bound_holds_and_levels_off():
    """RoFormer, figure 2, at the values computed in numpy when the project began: d = 128."""
    q, k = torch.randn(2, 128, dtype=torch.float64)
    found = bound(frequencies(128), q, k, 4001)
    for distance, mean in ((5, 20.85), (50, 12.6), (256, 6.5), (1000, 4.5), (4000, 5.0)):
        assert found.mean[distance] == pytest.approx(mean, abs=0.05)
    assert all(abs(s) <= b for s, b in zip(found.score, found.bound, strict=True))
    rising = sum(b > a for a, b in zip(found.mean, found.mean[1:], strict=False))
    assert 0.48 < rising / 4000 < 0.5


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_bound_and_score_of_two_pairs_by_complex_numbers(layout):
    q, k = torch.randn(2, 4, dtype=torch.float64)
    found = bound(frequencies(4, 100.0), q, k, 9, layout)
    first, second = ((0, 2), (1, 3)) if layout == "interleaved" else ((0, 1), (2, 3))
    h = [
        complex(q[a], q[b]) * complex(k[a], k[b]).conjugate()
        for a, b in zip(first, second, strict=True)
    ]
    for m in range(9):
        waves = [cmath.exp(1j * m), cmath.exp(0.1j * m)]
        sums = abs(waves[0]) + abs(waves[0] + waves[1])
        assert found.bound[m] == pytest.approx(max(abs(h[1] - h[0]), abs(h[1])) * sums)
        assert found.mean[m] == pytest.approx(sums / 2)
        score = sum(x * w for x, w in zip(h, waves, strict=True)).real
        assert found.score[m] == pytest.approx(score)


def test_any_distance_can_be_the_best():
    q = torch.randn(128)
    found = peak(frequencies(128), q, 777, 2000)
    assert found.best == 777
    assert found.score[777] == pytest.approx(float(q.double() @ q.double()), rel=1e-5)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_the_turned_key_peaks_in_attention_itself(layout):
    rope, q = RoPE(64, layout=layout), torch.randn(64)
    key = turned(q, rope.freqs, 40, layout)
    queries, keys = (x.expand(1, 1, 100, 64).contiguous() for x in (q, key))
    made = rope(queries, keys)
    assert (made[0] @ made[1].mT)[0, 0, 99].argmax() == 99 - 40


def test_vectors_of_ones_do_decay():
    found = peak(frequencies(64), torch.ones(64), 0, 1001)
    assert found.score[0] == pytest.approx(64)
    assert found.score[1000] == pytest.approx(17.85, abs=0.01)
