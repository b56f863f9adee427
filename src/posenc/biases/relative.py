"""The bias of a distance taken relative to where the query stands: a sum of ReLUs of one number."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from posenc.core.biases import PlaceBias


class RelativeBias(PlaceBias):
    """A `PlaceBias` Σₙ outer[h, n] · ReLU(wₙ y + bₙ),      y = ψ(pᵢ − pⱼ) · ρ(pᵢ)

    `factors` receives offsets and positions of queries. It returns ψ and ρ, which are at least 0,
    w and b, (unit,), and `outer`, (head, unit).
    """

    def __init__(self, factors: Callable[[Tensor, Tensor], tuple[Tensor, ...]], *args: Any):
        super().__init__(*args)
        self.factors = factors
