"""FIRE: a small network computes the bias from the distance divided by the query's position.

    score(i, j) = qᵢ · kⱼ · scale + f_h( ψ(|pᵢ − pⱼ|) / (ψ(max(L, pᵢ)) + ε) )
    ψ(x) = ln(|c| x + 1),  f(x) = W₂ ReLU(w₁ x + b₁),  ε = 10⁻⁶

c, L and f are learned; L is |multiplier| · `length`, so that updates of L are proportional to it.
The argument of f stays within 0 … 1 for every length, so a model trained beyond L tokens meets no
new values. Up to L tokens the bias depends on distance only. Beyond, it also depends on the
position of the query, so shifting the whole text changes it.

Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context
Transformers", arXiv:2310.04418, eq. 5; initial values, |·| and ε as in its appendix. The network
there adds a constant per head at the end. It does not change the softmax and is left out.
"""

from functools import partial

import torch
from torch import Tensor, nn

from posenc.biases.distance import DistanceBias
from posenc.biases.pieces import piecewise_linear
from posenc.biases.relative import RelativeBias
from posenc.compat.tracing import is_eager_cpu, no_autocast, upcast
from posenc.core.biases import OfDistance
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties import (
    any_length,
    learned,
    length_independent,
    norm_preserving,
    order_sensitive,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import number, query_heads, room, whole_number

EPS = 1e-6


class FIRE(Encoding):
    """Bias that a small network computes from relative distances: `FIRE(8)`.

    - `heads`: query heads
    - `length`: initial L, the smallest divisor of distances, in tokens; 512 by default
    - `hidden`: hidden units of the network, 32 by default

    Raises ValueError if `length` or `hidden` is not positive.

    >>> FIRE(8)
    FIRE(8 heads, length=512)

    Li et al. 2024, arXiv:2310.04418, eq. 5.
    """

    def __init__(self, heads: int, length: float = 512.0, hidden: int = 32):
        super().__init__()
        if number(length, "length") <= 0 or whole_number(hidden, "hidden") < 1:
            raise ValueError(
                f"`length` must be above 0 and `hidden` at least 1, got {length} and {hidden}."
            )
        self.heads, self.length = query_heads(heads), length
        room("the network", heads, hidden)
        # A vector of one number, because FSDP2 cannot shard scalars
        self.c = nn.Parameter(torch.tensor([0.1]))
        self.multiplier = nn.Parameter(torch.tensor([1.0]))
        self.inner = nn.Linear(1, hidden)
        self.outer = nn.Linear(hidden, heads, bias=False)

    def ψ(self, x: Tensor) -> Tensor:
        """Compress a distance logarithmically: return ln(|c| x + 1).

        - `x`: distance in tokens
        """
        return (upcast(self.c)[0].abs() * x).log1p()

    def f(self, h: Tensor, x: Tensor) -> Tensor:
        """Apply each head's learned network to the normalised distance x.

        - `h`, `x`: head, and relative distance, 0 … 1, which broadcast
        """
        weight, outer = upcast(self.inner.weight)[:, 0], upcast(self.outer.weight)
        shift = upcast(self.inner.bias)
        # A fused kernel evaluates single pairs and cannot sum over an axis
        if not h.ndim:
            total = 0 * x
            for n in range(len(weight)):
                total = total + outer[:, n][h] * (weight[n] * x + shift[n]).relu()
            return total
        # `heads` is the axis of heads in h; x has size 1 there, or lacks the axis
        heads = 1 if h.ndim == 4 else 0
        x = x.reshape(*[1] * (h.ndim - x.ndim), *x.shape, 1)
        units = (x * weight + shift).relu()
        # Positions differ between heads
        if h.ndim == 4 and x.shape[1] != 1:
            return (units * outer[h]).sum(-1)
        with no_autocast(units):
            return (units @ outer[h.flatten()].mT).movedim(-1, heads).squeeze(heads + 1)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        if self._near_enough(q_at):
            return DistanceBias(self.of_distance, q, q_at, k_at)
        f = self.in_pieces() if is_eager_cpu(q_at, self.multiplier) else self.f
        return RelativeBias(self.factors, partial(self.of_places, f), q, q_at, k_at)

    def of_distance(self, h: Tensor, δ: Tensor) -> Tensor:
        """Return the bias at an offset, in logits, for query positions of at most the threshold L.

        - `h`, `δ`: head, and offset in tokens, query − key
        """
        return self.f(h, self.ψ(δ.abs()) / (self.ψ(self.L) + EPS))

    def of_places(self, f: OfDistance, h: Tensor, p: Tensor, p_key: Tensor) -> Tensor:
        """Return the bias for any positions of query and key, in logits.

        - `f`: the learned map, or its piecewise linear form
        - `h`, `p`, `p_key`: head, and the positions of query and key
        """
        reached = torch.maximum(self.L, p.to(self.L.dtype))
        # For a single pair, f itself is cheaper than its piecewise linear form
        f = f if h.ndim else self.f
        return f(h, self.ψ((p - p_key).abs()) / (self.ψ(reached) + EPS))

    def factors(self, δ: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        """Return the two factors of the network's input, and the network's weights.

        The factors are ψ(offset) and 1 / ψ(query position).

        - `δ`, `p`: offsets, and positions of queries, in tokens
        """
        reached = torch.maximum(self.L, p.to(self.L.dtype))
        weights = (
            upcast(self.inner.weight)[:, 0],
            upcast(self.inner.bias),
            upcast(self.outer.weight),
        )
        return self.ψ(δ.abs()), 1 / (self.ψ(reached) + EPS), *weights

    def in_pieces(self) -> OfDistance:
        """Return f, a sum of ReLUs, in its piecewise linear form, which is faster to compute."""
        weight, outer = upcast(self.inner.weight)[:, 0], upcast(self.outer.weight)
        return piecewise_linear(weight, upcast(self.inner.bias), outer)

    @property
    def L(self) -> Tensor:
        return upcast(self.multiplier)[0].abs() * self.length

    def _near_enough(self, q_at: Tensor) -> bool:
        """Test whether all query positions are at most L, so that only the distance matters."""
        if not is_eager_cpu(q_at, self.multiplier) or not q_at.numel():
            return False
        return bool(q_at.max() <= self.L)


CARD = Card(
    name="FIRE",
    paper=paper("li2024functional"),
    make=lambda dim, heads, **options: FIRE(heads, **options),
    holds=frozenset({norm_preserving, any_length, length_independent, order_sensitive, learned}),
)
