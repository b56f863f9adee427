"""FoX: each token says, for each head, how much of what was read before it is forgotten.

    score(i, j) = qᵢ · kⱼ · scale − |cᵢ − cⱼ|
    cᵢ = Σ_{t ≤ i} ln f_t,   f_t = σ(w_h · x_t + b_h)       Σ over tokens as read; f: 0 … 1

x is what the layer reads; f = 1 keeps all, f = 0 forgets all. With the same f everywhere it is
ALiBi with slopes −ln f; with its own, a full stop can forget a sentence at once, and a word
nothing. A score falls by what the tokens between key and query forget: positions are not looked at.

Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate", arXiv:2503.02130,
forget gates in logits; initial values as in the authors' code. There keys ahead are always hidden,
and cᵢ − cⱼ is negative: the absolute value is for those who see both ways.
"""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import logsigmoid

from posenc.biases.decay import DecayBias
from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running_sums import RunningSums, by_head, linear, running_sum
from posenc.core.shapes import Bias, Embeddings, HeadPositions, Heads, Keys, Positions
from posenc.properties import decaying
from posenc.properties.card import RELATIVE, Card, Paper
from posenc.support.arguments import channels, query_heads


class Forgotten(RunningSums, Prepared, NamedTuple("Forgotten", [("total", Tensor)])):
    """c, (batch, head, token), in logits."""

    shape = "head token"


class FoX(Encoding):
    """Bias by forget gates, which each token sets: `FoX(512, heads=8)`.

    - `width`: channels that the layer reads
    - `heads`: query heads; each has a gate

    It reads the layer's input, so use it in `SelfAttention` or `Block`.

    >>> FoX(512, heads=8)
    FoX(512 channels, 8 heads)

    Lin et al. 2025, arXiv:2503.02130.
    """

    prepared = Forgotten
    causal = True

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.width, self.heads = channels(width, "width"), query_heads(heads)
        self.gate = linear(width, heads, bias=0.0)

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> Forgotten:
        return Forgotten(running_sum(logsigmoid(by_head(x, self.heads, self.gate))).squeeze(-1))

    def on_scores(self, q: Heads, k: Keys, q_at: Forgotten, k_at: Forgotten, scale: float) -> Bias:
        return DecayBias(q, q_at.total, k_at.total)


CARD = Card(
    name="FoX",
    paper=Paper(
        key="lin2025forgetting",
        title="Forgetting Transformer: Softmax Attention with a Forget Gate",
        authors="Lin, Zhixuan and Nikishin, Evgenii and He, Xu Owen and Courville, Aaron",
        year=2025,
        arxiv="2503.02130",
    ),
    make=lambda dim, heads, **options: FoX(dim * heads, heads, **options),
    holds=RELATIVE | {decaying},
)
