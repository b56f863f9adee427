"""Low-rank biases against ALiBi, whose factors are known, and against the biases they replace."""

import pytest
import torch
from refusals import refused

from posenc import FIRE, ALiBi, Shaw, attend, masks
from posenc.encodings.bias.alibi import slopes
from posenc.encodings.bias.low_rank import LowRank, low_rank

HEADS, DIM, TOKENS = 4, 8, 50


def by_hand():
    """−m (i − j) = (−m i, m) · (1, j), as in `attention_with_alibi_bias.py` of FlashBias."""
    row, m = torch.arange(TOKENS).float(), slopes(HEADS).float()[:, None]
    one = torch.ones(HEADS, TOKENS)
    return LowRank(torch.stack([-m * row, m * one], -1), torch.stack([one, row * one], -1))


@pytest.mark.parametrize("key_heads", [HEADS, 2])
@pytest.mark.parametrize("implementation", ["reference", "sdpa"])
def test_alibi_is_two_channels_of_any_kernel(key_heads, implementation):
    q, (k, v) = torch.randn(2, HEADS, TOKENS, DIM), torch.randn(2, 2, key_heads, TOKENS, DIM)
    right = attend(q, k, v, ALiBi(HEADS), mask=masks.causal())
    found, error = low_rank(ALiBi(HEADS), HEADS, TOKENS, rank=2)
    assert error < 1e-5
    for encoding in (by_hand(), found):
        made = attend(q, k, v, encoding, mask=masks.causal(), implementation=implementation)
        torch.testing.assert_close(made, right)


def test_positions_select_the_rows():
    q, k, v = torch.randn(3, 2, HEADS, 6, DIM)
    pos = torch.tensor([[7, 0, 49, 3, 3, 8], [0, 1, 2, 0, 1, 2]])
    seen = masks.causal(pos, pos)
    right = attend(q, k, v, ALiBi(HEADS), pos, mask=seen)
    torch.testing.assert_close(attend(q, k, v, by_hand(), pos, mask=seen), right)


def test_the_error_is_that_of_the_scores_and_falls_with_the_rank():
    encoding, errors = FIRE(HEADS), []
    none, pos = torch.zeros(1, HEADS, TOKENS, 2), torch.arange(TOKENS)
    bias = encoding.on_scores(none, none, pos[None, None], pos[None, None], 1.0)
    index = (torch.arange(n).view(shape) for n, shape in (
        (1, (1, 1, 1, 1)), (HEADS, (1, -1, 1, 1)), (TOKENS, (1, 1, -1, 1)), (TOKENS, (1, 1, 1, -1))
    ))  # fmt: skip
    right = (bias(*index) if callable(bias) else bias.block(slice(None), slice(None)))[0]
    earlier = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    for rank in (2, 4, 8, TOKENS):
        made, error = low_rank(encoding, HEADS, TOKENS, rank)
        product = made.of_queries @ made.of_keys.mT
        seen = (product - right).abs()[:, earlier].max().item()
        assert seen <= error + 1e-5
        errors.append(error)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-5


def test_without_a_causal_mask_later_keys_count():
    """|i − j| has a high rank, so two channels are far off."""
    assert low_rank(ALiBi(HEADS), HEADS, TOKENS, 2, causal=False)[1] > 0.1
    made, error = low_rank(ALiBi(HEADS), HEADS, TOKENS, TOKENS, causal=False)
    assert error < 1e-4
    q, k, v = torch.randn(3, 1, HEADS, TOKENS, DIM)
    torch.testing.assert_close(
        attend(q, k, v, made), attend(q, k, v, ALiBi(HEADS)), rtol=1e-4, atol=1e-4
    )


def test_tables_of_other_shapes_are_refused():
    with refused(ValueError, "of_keys", (4, 5, 2), (4, 5, 3)):
        LowRank(torch.zeros(4, 5, 2), torch.zeros(4, 5, 3))
    with refused(ValueError, "rank", 50):
        low_rank(ALiBi(HEADS), HEADS, TOKENS, 51)
    with refused(ValueError, "content"):
        low_rank(Shaw(2), HEADS, TOKENS, 2)
