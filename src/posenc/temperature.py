"""Temperature: queries far into a text ask more sharply, lest many keys drown the few that matter.

    q′(p) = q · (1 + a ln(1 + ⌊(p + start) / every⌋))        p the position of the query

The softmax over n keys flattens as n grows; this sharpens it, in steps. It says nothing of where
keys stand: add it to an encoding, as in `Sum(NoPE(), Temperature(8192))`.

Llama 4 counts from 1 (`start=1`) and does so in its layers without RoPE, a = 0.1, every = 8,192;
Ministral 3 and Mistral 4 count from 0, in all layers, `every` the length trained on. After
Nakanishi 2025, "Scalable-Softmax Is Superior for Attention", arXiv:2501.19399.
"""

from torch import Tensor

from posenc.encoding import Encoding
from posenc.positions import exact
from posenc.shapes import Heads, Positions
from posenc.theta import one_each


class Temperature(Encoding):
    def __init__(self, every: int, strength: float = 0.1, start: int = 0):
        super().__init__()
        if every < 1:
            raise ValueError(f"`every` is the tokens of a step, at least 1, got {every}.")
        self.every, self.strength, self.start = every, strength, start

    def prepare(self, pos: Positions) -> Tensor:
        """The factor of each query, shape (*batch, 1, token, 1), the same for all heads."""
        steps = (exact(pos) + self.start) // self.every
        return (1 + self.strength * steps.float().log1p())[..., None, :, None]

    def on_queries(self, q: Heads, at: Tensor) -> Heads:
        one_each(q, at)
        return (q * at).to(q.dtype)
