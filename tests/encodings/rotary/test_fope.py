"""FoPE against its sums in Python's own numbers, and RoPE, which it is with unit matrices."""

import math

import pytest
import torch

from posenc import FoPE, RoPE, attend

DIM, HEADS, LENGTH = 16, 2, 64


def waves():
    """θ of RoPE above one turn in `LENGTH` tokens: 1, 0.32 and 0.1 of eight."""
    each = [10_000 ** (-2 * i / DIM) for i in range(DIM // 2)]
    return [w for w in each if w > 2 * math.pi / LENGTH]


def test_cos_and_sin_are_sums_over_the_kept_waves():
    fope, pos = FoPE(DIM, HEADS, LENGTH), torch.tensor([0, 3, 1000])
    at = fope.prepare(pos)
    assert len(waves()) == 3
    for table, of, matrix, rest in (
        (at.cos, math.cos, fope.cosines, 1.0),
        (at.sin, math.sin, fope.sines, 0.0),
    ):
        for h in range(HEADS):
            for n, p in enumerate(pos.tolist()):
                for j in range(DIM // 2):
                    expected = (
                        rest
                        if j >= 3
                        else sum(of(p * w) * matrix[h, i, j].item() for i, w in enumerate(waves()))
                    )
                    assert table[h, n, j].item() == pytest.approx(expected, abs=1e-5)


def test_pairs_without_a_wave_pass_unturned():
    fope, q = FoPE(DIM, HEADS, LENGTH, layout="interleaved"), torch.randn(1, HEADS, 5, DIM)
    turned = fope.on_queries(q, fope.prepare(torch.arange(5)))
    assert turned[..., 6:].equal(q[..., 6:])
    assert not turned[..., 1:, :6].allclose(q[..., 1:, :6])


def test_the_authors_turn_pairs_without_a_wave_by_45_degrees():
    """The authors' code pads cos and sin with 1: (a, b) → (a − b, b + a), which doubles scores."""
    fope, q = FoPE(DIM, HEADS, LENGTH, layout="interleaved", rest=1.0), torch.randn(1, 2, 5, DIM)
    turned = fope.on_queries(q, fope.prepare(torch.arange(5)))[..., 6:]
    a, b = q[..., 6::2], q[..., 7::2]
    torch.testing.assert_close(turned[..., 0::2], a - b)
    torch.testing.assert_close(turned[..., 1::2], b + a)
    still = q[..., 6:] @ q[..., 6:].mT
    torch.testing.assert_close(turned @ turned.mT, 2 * still)


def test_without_random_numbers_it_is_rope_on_the_kept_pairs():
    fope = FoPE(DIM, length=10**6, gain=0.0)
    q, k, v = torch.randn(3, 1, 4, 9, DIM)
    torch.testing.assert_close(attend(q, k, v, fope), attend(q, k, v, RoPE(DIM, layout="half")))


def test_query_heads_that_share_a_key_share_its_waves():
    fope = FoPE(DIM, 2, LENGTH)
    q, (k, v) = torch.randn(1, 4, 6, DIM), torch.randn(2, 1, 2, 6, DIM)
    made = attend(q, k, v, fope)
    for head in range(4):
        own = FoPE(DIM, 1, LENGTH)
        own.cosines.data, own.sines.data = (x[head // 2, None] for x in (fope.cosines, fope.sines))
        one, shared = slice(head, head + 1), slice(head // 2, head // 2 + 1)
        alone = attend(q[:, one], k[:, shared], v[:, shared], own)
        torch.testing.assert_close(made[:, one], alone)


def test_coefficients_train_if_asked_to():
    q = torch.randn(1, 2, 5, DIM)
    for learned in (False, True):
        fope = FoPE(DIM, 2, LENGTH, learned=learned)
        assert all(x.requires_grad is learned for x in fope.parameters())
    attend(q, q, q, fope).sum().backward()
    assert fope.sines.grad.abs().sum() > 0


def test_the_number_of_waves_may_be_given():
    """`num_inv_freq` of a config."""
    assert len(FoPE(DIM, waves=5).freqs) == 5
