"""Against the weights of attention itself, read off by one-hot values."""

import pytest
import torch

from posenc.attention.attend import attend
from posenc.attention.scores import scores
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.rotary.rope import RoPE


@pytest.mark.parametrize("encoding", [ALiBi(2), RoPE(8)], ids=["a bias", "a rotation"])
def test_their_softmax_is_the_weights_of_attention(encoding):
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 4, 8, dtype=torch.float64)
    pos = torch.tensor([5, 0, 9, 1])
    one_hot = torch.eye(4, dtype=torch.float64).expand(1, 2, 4, 4)
    weights = attend(q, k, one_hot, encoding, encoding.prepare(pos))
    torch.testing.assert_close(scores(encoding, q, k, pos, pos).softmax(-1), weights)
