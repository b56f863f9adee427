"""ALiBi: lower the score in proportion to the distance, with a fixed slope for each head.

    score(i, j) = qᵢ · kⱼ · scale − m_h |pᵢ − pⱼ|
    m_h = 2^(−8 h / H),  h = 1 … H          logits per token, H a power of two

For other H: the slopes of the largest power of two P below H, then every second slope of 2P.
There are no parameters, and every distance has a bias, but this does not imply that a model works
beyond its trained length. With equal keys, the weights of a head are mostly (99 %) within
4.6 / m_h tokens.

Press et al. 2022, "Train Short, Test Long", arXiv:2108.12409, §3; other H as in the authors' code,
which adds m_h j instead. The softmax is the same, but large numbers lose their last bits.
"""

import torch
from torch import Tensor

from posenc.biases.distance import DistanceBias
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties import (
    any_length,
    decaying,
    length_independent,
    norm_preserving,
    order_sensitive,
    shift_invariant,
    symmetric,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import number, query_heads, whole_number


def slopes(heads: int) -> Tensor:
    """Return ALiBi's slope m of each head in float64, steepest first if there are 2ⁿ heads.

    >>> slopes(3)
    tensor([0.0625, 0.0039, 0.2500], dtype=torch.float64)
    """
    if whole_number(heads, "heads") < 1:
        raise ValueError(f"`heads` must be at least 1, got {heads}.")
    query_heads(heads)
    power = 2 ** (heads.bit_length() - 1)
    return torch.cat((_geometric(power), _geometric(2 * power)[::2][: heads - power]))


def _geometric(heads: int) -> Tensor:
    count = torch.arange(1, heads + 1, dtype=torch.float64, device="cpu")
    return 2.0 ** (-8.0 * count / heads)


class ALiBi(Encoding):
    """Linear bias with a fixed slope for each head, the same in both directions: `ALiBi(8)`.

    - `heads`: query heads
    - `strength`: factor of all slopes, 1 by default; Falcon divides them by √channels

    >>> import torch
    >>> ALiBi(2)(torch.arange(3))[0, 0]
    tensor([[-0.0000, -0.0625, -0.1250],
            [-0.0625, -0.0000, -0.0625],
            [-0.1250, -0.0625, -0.0000]])

    Press et al. 2022, arXiv:2108.12409, §3.
    """

    def __init__(self, heads: int, strength: float = 1.0):
        super().__init__()
        self.heads, self.strength = heads, float(number(strength, "strength"))
        self.slopes = self.strength * slopes(heads)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        m = self.slopes.to(q.device, torch.float64 if q.dtype is torch.float64 else torch.float32)
        f = lambda h, δ: -(m.view(-1, 1, 1) if h is None else m[h]) * δ.abs()  # noqa: E731
        return DistanceBias(f, q, q_at, k_at, all_heads=True)


CARD = Card(
    name="ALiBi",
    paper=paper("press2022train"),
    used_by="BLOOM, MPT",
    make=lambda dim, heads, **options: ALiBi(heads, **options),
    holds=frozenset(
        {shift_invariant, symmetric, decaying, norm_preserving}
        | {any_length, length_independent, order_sensitive}
    ),
)
