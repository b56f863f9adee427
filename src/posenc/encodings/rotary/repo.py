"""RePo: RoPE at positions that a small network computes from the content of each token.

    rope(q, n, h)ⱼ = qⱼ · exp(i p(n, h) θⱼ),   p(n, ·) = W ( SiLU(W_g x_n) ⊙ W_c x_n )
    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1, in radians per unit of p

x is the input of the layer, and p is a real number for each token and head. Related tokens can get
nearby positions, however many tokens are between them. The position of a token depends only on its
own x, so RePo alone is blind to word order; models have RoPE in their first layers and RePo in
later ones. With W = 0 all tokens have position 0. The positions of the caller are not used.

Li et al. 2025, "RePo: Language Models with Context Re-Positioning", arXiv:2512.14391; inner width
of an eighth, initial values and base as in SakanaAI/repo, OLMo/olmo/model.py at 1508a73,
`dynamic_position_encoding_swigluex_multihead`.
"""

from torch.nn.functional import silu

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, checked, frequencies
from posenc.core.running_sums import by_head, linear
from posenc.core.shapes import Embeddings, HeadPositions, Heads, PerHead, Positions
from posenc.properties import order_sensitive
from posenc.properties.card import RELATIVE, Card, paper
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn
from posenc.support.arguments import layer_sizes


class RePo(Encoding):
    """Rotation by positions that are computed from content: `RePo(512, heads=8)`.

    - `width`: channels of the layer's input
    - `heads`: query heads, a divisor of `width`; each has its own positions
    - `base`: base of θ, 500,000 by default
    - `layout`: "half" pairs channel j with j + dim / 2, "interleaved" neighbouring channels

    Positions are computed from the layer's input, so use `SelfAttention` or `Block`.

    >>> RePo(512, heads=8).dim
    64
    """

    prepared = Turn
    causal = True

    def __init__(self, width: int, heads: int, base: float = 500_000.0, layout: Layout = "half"):
        super().__init__()
        self.width, self.heads, self.dim = layer_sizes(width, heads)
        self.layout: Layout = checked(layout)
        self.freqs, self.base = frequencies(self.dim, base), float(base)
        inner = max(1, width // 8)
        self.gate, self.content = linear(width, inner), linear(width, inner)
        self.place = linear(inner, heads)

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> Turn:
        chosen = silu(by_head(x, 1, self.gate)) * by_head(x, 1, self.content)
        place = by_head(chosen.squeeze(1), self.heads, self.place)
        angle = place.double() * self.freqs.to(x.device)
        return Turn(angle.cos().float(), angle.sin().float())

    def on_queries(self, q: Heads, at: Turn) -> Heads:
        return rotate(q, at, self.layout)

    def on_keys(self, k: Heads, at: Turn) -> PerHead:
        return rotate_keys(k, at, self.layout)


CARD = Card(
    name="RePo",
    paper=paper("li2025repo"),
    make=lambda dim, heads, **options: RePo(dim * heads, heads, **options),
    holds=RELATIVE - {order_sensitive},
)
