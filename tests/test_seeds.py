"""The numbers and claims printed in the five seed texts, each reproduced or refuted."""

import math

import numpy as np
import pytest
import torch

from posenc import NoPE, Normalized, RoPE, Sine, Sinusoidal, attend, masks, rotate, turn
from posenc.core.frequencies import frequencies

WORDS = ("dog", "bites", "man")


def weights(text, encoding, mask=None):
    """Return attention weights of the seed's random words; v is the identity."""
    np.random.seed(42)
    words = {word: np.random.randn(8) for word in WORDS}
    x = torch.tensor(np.stack([words[word] for word in text]))[None, None]
    v = torch.eye(len(text), dtype=torch.float64)[None, None]
    return attend(x, x, v, encoding, mask=mask)[0, 0]


def pe(pos, dim):
    return Sinusoidal(dim)(torch.zeros(1, len(pos), dim), torch.tensor(pos))[0].double().numpy()


def rope(x, pos):
    """The seed's `apply_rope`, x of shape (token, channel)."""
    at = torch.as_tensor(pos)
    x = torch.as_tensor(x)[None, None]
    return rotate(x, turn(at, frequencies(x.shape[-1])), "interleaved")[0, 0].numpy()


def test_001_attention_of_dog_bites_man():
    dog_first = weights(WORDS, NoPE()).numpy()
    printed = [[0.954, 0.025, 0.021], [0.012, 0.833, 0.155], [0.009, 0.145, 0.845]]
    assert np.round(dog_first, 3).tolist() == printed
    man_first = weights(WORDS[::-1], NoPE()).numpy()
    printed = [[0.845, 0.145, 0.009], [0.155, 0.833, 0.012], [0.021, 0.025, 0.954]]
    assert np.round(man_first, 3).tolist() == printed


def test_001_and_003_attention_is_not_invariant_but_equivariant():
    q, k, v = torch.randn(3, 1, 2, 5, 8).unbind()
    shuffled = torch.tensor([3, 0, 4, 1, 2])
    out = attend(q, k, v, NoPE())
    moved = attend(*(x[:, :, shuffled] for x in (q, k, v)), NoPE())
    torch.testing.assert_close(moved, out[:, :, shuffled])
    assert (moved - out).abs().max() > 0.1


def test_001_rows_of_the_sinusoidal_encoding():
    zero, one, nine = np.round(pe([0, 1, 9], 8), 3)
    assert zero.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert one.tolist() == [0.841, 0.540, 0.100, 0.995, 0.010, 1.000, 0.001, 1.000]
    assert nine.tolist() == [0.412, -0.911, 0.783, 0.622, 0.090, 0.996, 0.009, 1.000]


def test_001_the_encoding_of_4_moved_on_by_3_is_that_of_7():
    m_3 = np.array([[math.cos(3), math.sin(3)], [-math.sin(3), math.cos(3)]])
    four, seven = pe([4, 7], 8)[:, :2]
    for found in (seven, m_3 @ four):
        assert np.round(found, 6).tolist() == pytest.approx([0.656987, 0.753902], abs=1.1e-6)


def test_001_rows_turned_by_rope():
    rows = np.round(rope(np.tile([1.0, 0.0], (3, 4)), [0, 1, 2]), 3)
    assert rows[0].tolist() == [1, 0, 1, 0, 1, 0, 1, 0]
    assert rows[1].tolist() == [0.54, 0.841, 0.995, 0.1, 1, 0.01, 1, 0.001]
    assert rows[2].tolist() == [-0.416, 0.909, 0.98, 0.199, 1, 0.02, 1, 0.002]


def test_001_dot_products_at_offset_3():
    np.random.seed(7)
    q, k = np.random.randn(1, 8), np.random.randn(1, 8)
    for m, n in ((2, 5), (10, 13), (100, 103)):
        assert (rope(q, [m]) @ rope(k, [n]).T).item() == pytest.approx(0.349969, abs=6e-7)


def test_000_the_sine_of_353_is_almost_that_of_2():
    two, far = Sine(1)(torch.zeros(1, 2, 1, dtype=torch.float64), torch.tensor([2, 353])).flatten()
    assert [f"{x:.5f}" for x in (two, far)] == ["0.90930", "0.90931"]


def test_000_four_times_25_degrees_are_100():
    quarter = RoPE(torch.tensor([math.radians(25)], dtype=torch.float64))
    x = torch.tensor([1.0, 0.0], dtype=torch.float64).view(1, 1, 1, 2)
    turned = quarter.on_queries(x, quarter.prepare(torch.tensor([4]))).flatten()
    assert math.degrees(math.atan2(turned[1], turned[0])) == pytest.approx(100)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [("the dog chased another dog", 1, 4), ("the brown dog chased the black dog", 2, 6)],
)
def test_000_and_004_the_same_word_twice_gives_the_same_only_without_mask_or_positions(
    text, first, second
):
    words = text.split()
    vocabulary = torch.randn(9, 16) / 2
    x = torch.stack([vocabulary[sorted(set(words)).index(word)] for word in words])[None, None]
    out = attend(x, x, x, NoPE())[0, 0]
    torch.testing.assert_close(out[first], out[second])
    for told in (attend(x, x, x, NoPE(), mask=masks.causal()), attend(x, x, x, RoPE(16))):
        assert (told[0, 0, first] - told[0, 0, second]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("alone", "later", "first", "second"),
    [
        ("a man threw a ball", "in the garden a man threw a ball", "man", "threw"),
        ("the big dog", "we saw the big dog", "big", "dog"),
        ("the pig chased the dog", "once upon a time the pig chased the dog", "pig", "chased"),
    ],
)
def test_000_001_003_two_words_keep_their_score_later_in_a_sentence_with_rope_only(
    alone, later, first, second
):
    """Scores of the second word at the first, with one projection for both sentences."""
    torch.manual_seed(0)
    words = {word: torch.randn(16) for word in later.split()}
    to_q, to_k = torch.randn(2, 16, 16) / 4

    def score(text, encoding):
        text = text.split()
        x = torch.stack([words[word] for word in text])[None]
        if isinstance(encoding, Sinusoidal):
            x = encoding(x)
        q, k = (x @ to_q)[None], (x @ to_k)[None]
        if isinstance(encoding, RoPE):
            q, k = encoding(q, k)
        return float(q[0, 0, text.index(second)] @ k[0, 0, text.index(first)])

    assert score(later, RoPE(16)) == pytest.approx(score(alone, RoPE(16)), abs=1e-4)
    assert abs(score(later, Sinusoidal(16)) - score(alone, Sinusoidal(16))) > 0.05


def wavelengths(dim):
    return 2 * math.pi / frequencies(dim)


def test_002_the_table_of_wavelengths_fits_no_width():
    printed = {0: 6.3, 64: 40, 128: 250, 192: 1580, 254: 62_832}
    for dim in range(256, 2049, 2):
        found = [wavelengths(dim)[channel // 2].item() for channel in printed]
        assert found != pytest.approx(list(printed.values()), rel=0.05)


@pytest.mark.parametrize(
    ("dim", "true"),
    [(256, [6.28, 62.8, 628, 6283, 58_470]), (512, [6.28, 19.9, 62.8, 199, 606])],
)
def test_002_the_table_of_wavelengths_as_it_should_be(dim, true):
    found = [wavelengths(dim)[channel // 2].item() for channel in (0, 64, 128, 192, 254)]
    assert found == pytest.approx(true, rel=3e-3)


@pytest.mark.parametrize("dim", [2, 64, 512, 4096])
def test_002_the_slowest_pair_is_faster_than_one_over_the_base(dim):
    assert frequencies(dim)[-1] > 1 / 10_000
    assert wavelengths(dim).max() < 62_831


def test_002_the_dot_product_is_a_function_of_the_distance_only():
    rows = pe([10, 15, 1010, 1015], 128)
    assert rows[0] @ rows[1] == pytest.approx(rows[2] @ rows[3], abs=1e-5)


def test_002_ten_is_never_more_similar_to_20_than_to_15():
    for dim in range(2, 513, 2):
        ten, fifteen, twenty = pe([10, 15, 20], dim)
        assert ten @ fifteen > ten @ twenty


@pytest.mark.parametrize("k", [1, 5, 10, 50, 100])
def test_002_a_shift_is_an_orthogonal_matrix(k):
    here, there = pe([10, 10 + k], 64)
    m_k, m_back = np.zeros((64, 64)), np.zeros((64, 64))
    for i, angle in enumerate(k * 10_000 ** (-2 * np.arange(32) / 64)):
        c, s = np.cos(angle), np.sin(angle)
        m_k[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, s], [-s, c]]
        m_back[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, -s], [s, c]]
    assert np.linalg.norm(m_k @ here - there) < 1e-6
    assert np.allclose(m_k @ m_k.T, np.eye(64))
    assert np.allclose(m_k.T, m_back)
    assert np.linalg.det(m_k) == pytest.approx(1)


def test_003_positions_0_and_6_do_not_share_an_encoding():
    zero, six = pe([0, 6], 2)
    assert six[0] == pytest.approx(-0.279, abs=1e-3)
    assert np.linalg.norm(six - zero) > 0.28


def test_003_of_four_tokens_each_stands_a_third_further():
    rows = Normalized(1, "N-1")(torch.zeros(1, 4, 1)).flatten().tolist()
    assert rows == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_003_the_proximity_of_sinusoids_is_not_monotone():
    similarity = pe(list(range(1001)), 64) @ pe([0], 64)[0]
    rises = (np.diff(similarity) > 0).mean()
    assert rises == pytest.approx(0.48, abs=0.015)


def test_003_the_printed_vector_form_of_rope_does_not_preserve_length():
    x = np.random.RandomState(0).randn(8)
    angle = np.repeat(5 * 10_000 ** (-2 * np.arange(4) / 8), 2)
    right = np.array([-x[1], x[0], -x[3], x[2], -x[5], x[4], -x[7], x[6]])
    printed = np.array([-x[1], x[0], -x[3], x[2], -x[5], x[4], -x[6], x[7]])
    made = rope(x[None], [5])[0]
    np.testing.assert_allclose(x * np.cos(angle) + right * np.sin(angle), made, atol=1e-6)
    wrong = x * np.cos(angle) + printed * np.sin(angle)
    assert np.linalg.norm(made) == pytest.approx(np.linalg.norm(x))
    assert np.linalg.norm(wrong) != pytest.approx(np.linalg.norm(x), rel=1e-4)


def test_004_the_printed_matrix_of_rope_turns_backwards():
    x, p = np.random.RandomState(0).randn(8), 5
    turned = []
    for i in range(4):
        c, s = np.cos(p * 10.0**-i), np.sin(p * 10.0**-i)
        turned += [*np.array([[c, s], [-s, c]]) @ x[2 * i : 2 * i + 2]]
    np.testing.assert_allclose(turned, rope(x[None], [-p])[0], atol=1e-6)
    assert not np.allclose(turned, rope(x[None], [p])[0], atol=0.1)


def test_004_positions_do_not_run_out_after_2_pi_times_10_000():
    period = round(2 * math.pi * 10_000)
    rows = pe([0, period - 1, period, period + 1, 10 * period, 1000 * period], 64)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=-1) + 9 * np.eye(6)
    assert distances.min() > 1.4
