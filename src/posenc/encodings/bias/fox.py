"""FoX: each token sets a forget gate for each head, which lowers scores of all earlier tokens.

    score(i, j) = qᵢ · kⱼ · scale − |cᵢ − cⱼ|
    cᵢ = Σ_{t ≤ i} ln f_t,   f_t = σ(w_h · x_t + b_h)       Σ over tokens as read; f: 0 … 1

x is the input of the layer; f = 1 keeps all earlier tokens, f = 0 forgets them. If f is the same
everywhere, this is ALiBi with slopes −ln f. With learned gates, a full stop can forget the sentence
before it, and other words can forget nothing. Scores depend on the gates between key and query, not
on positions.

Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate", arXiv:2503.02130,
forget gates in logits; initial values as in the authors' code. Attention is causal there, and
cᵢ − cⱼ is never positive; the absolute value extends the formula to attention in both directions.
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
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import channels, query_heads


class Forgotten(RunningSums, Prepared, NamedTuple("Forgotten", [("total", Tensor)])):
    """Running sums c of the logarithms of forget gates, (batch, head, token), in logits."""

    shape = "head token"


class FoX(Encoding):
    """Bias from a forget gate for each token and head: `FoX(512, heads=8)`.

    - `width`: channels of the layer's input
    - `heads`: query heads; each has a gate

    The gates are computed from the layer's input, so use `SelfAttention` or `Block`.

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
    paper=paper("lin2025forgetting"),
    make=lambda dim, heads, **options: FoX(dim * heads, heads, **options),
    holds=RELATIVE | {decaying},
)
