"""Against the softmax over all keys at once, in float64."""

from itertools import pairwise

import pytest
import torch

from posenc.attention.cpu.merge_softmax import join_, softmax


def drawn(spread=1.0):
    torch.manual_seed(0)
    return spread * torch.randn(2, 3, 5, 11, dtype=torch.float64), torch.randn(2, 3, 11, 4).double()


def test_weights_and_log_sum_exps_are_those_of_torch():
    scores, _ = drawn(spread=300.0)
    weights, lse = softmax(scores)
    torch.testing.assert_close(weights, scores.softmax(-1))
    torch.testing.assert_close(lse, scores.logsumexp(-1))


@pytest.mark.parametrize("spread", [1.0, 300.0])
@pytest.mark.parametrize("cuts", [(4,), (1, 2, 9)], ids=str)
def test_parts_of_the_keys_join_to_all_of_them(spread, cuts):
    scores, v = drawn(spread)
    parts = [slice(*ends) for ends in pairwise([0, *cuts, 11])]
    held = [(w @ v[..., some, :], lse) for some in parts for w, lse in [softmax(scores[..., some])]]
    out, lse = held[0]
    for more, more_lse in held[1:]:
        join_(out, lse, more, more_lse)
    torch.testing.assert_close(out, scores.softmax(-1) @ v)
    torch.testing.assert_close(lse, scores.logsumexp(-1))
