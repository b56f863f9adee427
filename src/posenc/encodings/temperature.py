"""Temperature: scale queries up with their position, so that attention stays sharp in long texts.

    Temperature   q′(p) = q · (1 + a ln(1 + n)),  n = max(0, ⌊(p + start) / every⌋)
    SSMax         q′(p) = q · s_h ln(p + 1)                  p: position of the query; h: its head

The softmax over n keys becomes flatter as n grows; these factors sharpen it again, the first in
steps. They do not depend on positions of keys, so add them to an encoding: `Sum(NoPE(),
Temperature(8192))`. With causal attention, a query at p sees n = p + 1 keys.

Llama 4 counts positions from 1 (`start=1`) and uses it in layers without RoPE, with a = 0.1 and
every = 8,192. Ministral 3 and Mistral 4 count from 0 and use it in all layers, with `every` equal
to the trained length. SSMax: Nakanishi 2025, "Scalable-Softmax Is Superior for Attention",
arXiv:2501.19399, with a learned s for each head; initial s as in gdevos010/Scalable-Softmax.
"""

from math import inf
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.core.encoding import Encoding
from posenc.core.frequencies import for_heads, refuse_broadcast
from posenc.core.positions import exact
from posenc.core.prepared import Prepared
from posenc.core.shapes import Heads, Positions
from posenc.support.arguments import number, query_heads, real, whole_number


class Factor(Prepared, NamedTuple("Factor", [("factor", Tensor)])):
    """The factor that multiplies each query, shape (*batch, 1 or head, token, 1)."""


class Temperature(Encoding):
    """Factor of queries that grows with their position: `Temperature(8192)`.

    - `every`: tokens after which the factor grows by one step
    - `strength`: a, 0.1 by default
    - `start`: number added to all positions, 0 by default
    """

    prepared = Factor

    def __init__(self, every: float, strength: float = 0.1, start: int = 0):
        super().__init__()
        if not 1 <= real(every, "every") < inf:
            raise ValueError(f"`every` must be at least 1 token, got {every}.")
        self.every, self.strength = every, number(strength, "strength")
        self.start = whole_number(start, "start")

    def prepare(self, pos: Positions) -> Factor:
        # Queries at negative positions have the factor 1
        steps = ((exact(pos) + self.start) // self.every).clamp_min(0)
        return Factor(for_heads((1 + self.strength * steps.float().log1p()).unsqueeze(-1)))

    def on_queries(self, q: Heads, at: Factor) -> Heads:
        refuse_broadcast(q, at.factor)
        return (q * at.factor).to(q.dtype)


class SSMax(Encoding):
    """Scalable softmax: scores times the logarithm of the number of keys, `SSMax(heads=8)`.

    - `heads`: query heads; each learns a factor s
    - `initial`: s before training, 0.43 by default

    Positions must count from 0 in each text.

    Nakanishi 2025, arXiv:2501.19399.
    """

    prepared = Factor

    def __init__(self, heads: int, initial: float = 0.43):
        super().__init__()
        self.heads = query_heads(heads)
        self.factors = nn.Parameter(torch.full((heads,), number(initial, "initial")))

    def prepare(self, pos: Positions) -> Factor:
        # Queries at negative positions see as many keys as the first
        keys = (exact(pos) + 1).clamp_min(1)
        return Factor(for_heads(keys.double().log().float().unsqueeze(-1)))

    def on_queries(self, q: Heads, at: Factor) -> Heads:
        refuse_broadcast(q, at.factor)
        return (q * at.factor * self.factors[:, None, None]).to(q.dtype)
