"""ALiBi against the paper's rule transcribed anew, its numbers, and transformers' Bloom."""

import math

import pytest
import torch
from refusals import refused
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from posenc import ALiBi, attend, masks
from posenc.encodings.bias.alibi import slopes


def of_the_paper(heads):
    """ "The set of slopes is the geometric sequence that starts at 2^(−8/n) and uses that same
    value as its ratio"; between powers of two, every other slope of twice the lower one."""
    if math.log2(heads).is_integer():
        start = 2 ** (-8 / heads)
        return [start * start**n for n in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return of_the_paper(lower) + of_the_paper(2 * lower)[0::2][: heads - lower]


@pytest.mark.parametrize("heads", [*range(1, 19), 20, 24, 32, 40, 64, 71, 112])
def test_slopes_follow_the_rule_of_the_paper(heads):
    assert slopes(heads).tolist() == pytest.approx(of_the_paper(heads), rel=1e-6)
    assert len(set(slopes(heads).tolist())) == heads


def test_slopes_of_the_paper():
    assert slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert slopes(4).tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    assert slopes(1).tolist() == [1 / 256]
    assert slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]


def test_the_bias_is_minus_slope_times_distance():
    q_pos, k_pos = torch.tensor([0, 5, 100]), torch.tensor([3, 5, 0, -7])
    bias = ALiBi(8)(q_pos, k_pos)
    assert bias.shape == (1, 8, 3, 4)
    for h in range(8):
        for i, p in enumerate(q_pos.tolist()):
            for j, r in enumerate(k_pos.tolist()):
                assert bias[0, h, i, j].item() == -(2.0 ** -(h + 1)) * abs(p - r)


def test_positions_may_be_fractions_and_differ_within_a_batch():
    bias = ALiBi(8)(torch.tensor([[0.5, 2.0], [0.0, 9.0]]), torch.tensor([1.25]))
    assert bias[:, 0, :, 0].tolist() == [[-0.375, -0.375], [-0.625, -3.875]]


@pytest.mark.parametrize("heads", [4, 6, 8, 14])
def test_attends_as_bloom_does(heads):
    q, k, v = torch.randn(3, 1, heads, 12, 16).unbind()
    bloom = build_alibi_tensor(torch.ones(1, 12), heads, torch.float32).view(1, heads, 1, 12)
    ahead = torch.ones(12, 12).triu(1).bool()
    logits = (q @ k.mT / 4 + bloom).masked_fill(ahead, float("-inf"))
    out = attend(q, k, v, ALiBi(heads), mask=masks.causal())
    torch.testing.assert_close(out, logits.softmax(-1) @ v)


def test_the_bias_is_not_divided_by_the_root_of_the_channels():
    q, v = torch.zeros(1, 8, 2, 64), torch.eye(2).expand(1, 8, 2, 2)
    weights = attend(q, q, v, ALiBi(8))
    assert weights[0, 0, 0].tolist() == pytest.approx(
        [1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5))]
    )


def test_in_bfloat16_far_out_nothing_changes():
    q, k, v = torch.randn(3, 1, 4, 50, 16, dtype=torch.bfloat16).unbind()
    encoding, pos = ALiBi(4).bfloat16(), torch.arange(50)
    near, far = (attend(q, k, v, encoding, encoding.prepare(pos + at)) for at in (0, 10**6 + 1))
    assert near.equal(far)
    assert encoding(pos + 10**6)[0, 0, -1, :3].tolist() == [-49 / 4, -48 / 4, -47 / 4]


def test_a_head_sees_about_4_6_tokens_over_its_slope():
    weights = ALiBi(8)(torch.tensor([9999]), torch.arange(10_000)).softmax(-1)[0, :, 0].flip(-1)
    for h in range(8):
        tokens = (weights[h].cumsum(-1) < 0.99).sum().item()
        assert tokens == pytest.approx(4.6 * 2 ** (h + 1), abs=2)


def test_says_that_there_must_be_heads():
    with refused(ValueError, "`heads`", 1, 0):
        ALiBi(0)


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 32, 71])
def test_slopes_are_what_python_computes_to_the_last_bit(heads):
    power = 2 ** int(math.log2(heads))
    expected = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    expected += [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    assert slopes(heads).tolist() == pytest.approx(expected[:heads], rel=1e-15, abs=0)


def test_attention_in_float64_has_slopes_in_float64():
    """Rounded to float32 they were off by 2.7e-8."""
    q, pos, alibi = torch.randn(1, 12, 9, 8, dtype=torch.float64), 1000 * torch.arange(9), ALiBi(12)
    away = (pos.unsqueeze(-1) - pos).abs().double()
    bias = torch.stack([-m * away for m in slopes(12).tolist()])
    expected = (q @ q.mT * 8**-0.5 + bias).softmax(-1) @ q
    for path in ("reference", "blocks", "auto"):
        made = attend(q, q, q, alibi, pos, implementation=path)
        torch.testing.assert_close(made, expected, rtol=1e-13, atol=1e-13)


def test_constants_are_not_cast_with_the_model():
    assert ALiBi(12).bfloat16().slopes.equal(slopes(12))
    assert torch.equal(ALiBi(12, strength=0.125).slopes, slopes(12) / 8)
