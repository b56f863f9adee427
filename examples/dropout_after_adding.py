"""Dropout after positions are added to embeddings, as in Vaswani et al. 2017 §5.4 (source 002).

An encoding that adds can be held by one that drops channels of what it returns; in eval nothing is
dropped. Of an encoding that acts on queries and keys there is no sum: drop the words before it.
"""

import torch
from torch import nn

from posenc import Encoding, SelfAttention, create


class Dropped(Encoding):
    """Embeddings plus position vectors, with channels of the sum dropped with probability `p`."""

    def __init__(self, encoding: Encoding, p: float = 0.1):
        super().__init__()
        self.encoding, self.dropout = encoding, nn.Dropout(p)
        self.width, self.prepared = encoding.width, encoding.prepared

    def prepare(self, pos):
        return self.encoding.prepare(pos)

    def on_embeddings(self, x, at):
        return self.dropout(self.encoding.on_embeddings(x, at))


rows = create("sinusoidal", dim=16, heads=4)
dropped = Dropped(rows)
x, at = torch.ones(1, 1000, 64), rows.prepare(torch.arange(1000))
torch.manual_seed(0)
summed, training = rows.on_embeddings(x, at), dropped.train().on_embeddings(x, at)
share = (training[summed != 0] == 0).float().mean().item()
stays = torch.equal(dropped.eval().on_embeddings(x, at), summed)
print(f"in training {share:.1%} of the channels are dropped; in eval the sum stays: {stays}")
out = SelfAttention(64, heads=4, encoding=dropped)(x)
print("in a layer:", *out.shape)
