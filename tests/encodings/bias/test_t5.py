"""T5 bias against transformers' T5Attention at every distance, and against exact fractions."""

from copy import deepcopy
from fractions import Fraction

import pytest
import torch
from refusals import refused
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from posenc import T5Bias, attend
from posenc.encodings.bias.t5 import bucket, starts

WAYS = pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "causal"])


@WAYS
def test_equals_transformers_at_every_distance(bidirectional):
    offset = torch.arange(-2000, 2001)
    theirs = T5Attention._relative_position_bucket(-offset, bidirectional, 32, 128)
    assert bucket(offset, 32, 128, bidirectional).equal(theirs)


@WAYS
@pytest.mark.parametrize(
    ("buckets", "reach"), [(4, 3), (8, 20), (32, 17), (32, 64), (64, 256), (33, 100), (16, 1000)]
)
def test_equals_the_formula_in_exact_fractions(buckets, reach, bidirectional):
    side = buckets // 2 if bidirectional else buckets
    e = side // 2

    def expected(offset):
        if offset < 0:
            return side + expected(-offset) if bidirectional else 0
        if offset < e:
            return offset
        far = Fraction(offset, e) ** (side - e)  # reached the n-th step: far ≥ (reach/e)ⁿ
        return e + sum(far >= Fraction(reach, e) ** n for n in range(1, side - e))

    offsets = list(range(-reach - 50, reach + 50))
    made = bucket(torch.tensor(offsets), buckets, reach, bidirectional)
    assert made.tolist() == [expected(offset) for offset in offsets]


@pytest.mark.parametrize(("bidirectional", "start", "last"), [(False, 113, 31), (True, 91, 15)])
def test_the_last_bucket_starts_before_the_reach(bidirectional, start, last):
    found = bucket(torch.tensor([start - 1, start, 128, 10**6]), 32, 128, bidirectional)
    assert found.tolist() == [last - 1, last, last, last]


def test_begins_with_a_bias_of_a_tenth():
    weight = T5Bias(64, buckets=256).weight
    assert weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert abs(weight.mean().item()) < 0.01


@WAYS
def test_gives_the_bias_of_transformers_with_its_weights(bidirectional):
    config = T5Config(d_model=16, d_kv=4, num_heads=4, is_decoder=not bidirectional)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5Bias(4, bidirectional=bidirectional)
    ours.weight.data.copy_(theirs.relative_attention_bias.weight.data)
    bias = theirs.compute_bias(50, 300, past_seen_tokens=250)
    assert ours(torch.arange(250, 300), torch.arange(300)).equal(bias)


def test_is_added_to_the_scores_as_it_is():
    encoding, v = T5Bias(2), torch.eye(5).expand(1, 2, 5, 5)
    q, k = torch.randn(2, 1, 2, 5, 8).unbind()
    expected = q @ k.mT / 8**0.5
    for h in range(2):
        for i in range(5):
            for j in range(5):
                row = i - j if i >= j else 16 + j - i
                expected[0, h, i, j] += encoding.weight[row, h].item()
    torch.testing.assert_close(attend(q, k, v, encoding), expected.softmax(-1))


def test_only_the_buckets_met_are_trained():
    encoding = T5Bias(1, bidirectional=False)
    encoding(torch.arange(19)).sum().backward()
    met = encoding.weight.grad[:, 0].nonzero().flatten().tolist()
    assert met == list(range(17))  # 16 exact distances, and 16 … 18 together
    assert encoding.weight.grad[15, 0] == 4  # 4 pairs of 19 tokens are 15 apart


@pytest.mark.parametrize(
    ("buckets", "reach", "bidirectional", "says"),
    [
        (32, 16, False, [32, "`reach`", 16]),
        (32, 8, True, [16, "`reach`", 8]),
        (2, 128, True, [2]),
        (0, 128, False, [2]),
    ],
)
def test_says_what_cannot_be(buckets, reach, bidirectional, says):
    with refused(ValueError, *says):
        T5Bias(4, buckets, reach, bidirectional)


@pytest.mark.parametrize("reach", [10**9, 10**15])
def test_where_buckets_start_is_found_at_once_however_far_they_reach(reach):
    """Held against the float64 logarithm; counted off one by one it would take hours."""
    *_, last = starts(32, reach)
    assert last == pytest.approx(16 * (reach / 16) ** (15 / 16), rel=1e-6)


def test_a_gradient_in_bfloat16_sums_what_shares_a_bucket_before_it_is_rounded():
    """Thousands of pairs share one, and a sum in 16 bits loses what is small beside it."""
    t5, q = T5Bias(2).bfloat16(), torch.randn(1, 2, 600, 8, dtype=torch.bfloat16)

    def gradient(dtype):
        encoding, x = deepcopy(t5).to(dtype), q.to(dtype)
        out = attend(x, x, x, encoding, implementation="reference")
        return torch.autograd.grad((out * x).sum(), encoding.weight)[0]

    made, exact = gradient(torch.bfloat16).double(), gradient(torch.float64)
    torch.testing.assert_close(made, exact, rtol=2**-8, atol=1e-4 * exact.abs().max().item())
