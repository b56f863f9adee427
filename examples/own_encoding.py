"""An encoding of your own, compared with others; the example is a logarithmic bias (KERPLE).

    score(i, j) = qᵢ · kⱼ · scale − a ln(1 + b |pᵢ − pⱼ|)          a, b > 0, for each head

Use it in place of a name: `posenc compare examples/own_encoding.py:LogBias alibi`.
"""

import torch
from torch import nn

from posenc import Encoding, SelfAttention, masks, properties
from posenc.biases.distance import DistanceBias


class LogBias(Encoding):
    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads
        self.a = nn.Parameter(torch.ones(heads))
        self.b = nn.Parameter(torch.linspace(0.1, 2.0, heads))

    def on_scores(self, q, k, q_at, k_at, scale):
        return DistanceBias(self.curve, q, q_at, k_at)

    def curve(self, h, offset):
        return -self.a[h].abs() * torch.log1p(self.b[h].abs() * offset.abs())


if __name__ == "__main__":
    layer = SelfAttention(64, heads=4, encoding=LogBias(4))
    print(layer(torch.randn(1, 10, 64), mask=masks.causal()).shape)
    for name, finding in properties.check(LogBias(4)).items():
        print(f"{name:20} {finding}")
