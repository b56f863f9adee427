"""xPos: RoPE with queries and keys scaled by position, so that each pair decays with distance.

    xpos(q, m)ⱼ = qⱼ exp(i m θⱼ) ζⱼ^((m − c)/S)      ζⱼ = (2j + 0.4 d) / (1.4 d),  j = 0 … d/2 − 1
    xpos(k, n)ⱼ = kⱼ exp(i n θⱼ) ζⱼ^((c − n)/S)      S = `span`, c = `centre`, in tokens
    ⟨xpos(q, m), xpos(k, n)⟩ = Re Σⱼ qⱼ k̄ⱼ exp(i (m − n) θⱼ) ζⱼ^((m − n)/S)

Fast pairs decay most, the fastest to 0.29 every S tokens. Scores of keys after the query grow at
the same rate, so use causal attention. The centre cancels if it is the same for all tokens.
Libraries that set it to the middle of the text so far break cached keys.

The factors can overflow: keys grow 3.5-fold every S tokens after the centre, and queries before it.
float32 and bfloat16 suffice for 16,430 tokens on either side of the centre (IndexError beyond),
even for a query at one end and a key at the other; float16 for about 3,500, without a warning. Move
the centre for texts far from 0.

Sun et al. 2022, "A Length-Extrapolatable Transformer", arXiv:2212.10554, algorithm 1; the authors'
code for ζ and S, though it centres by length.
"""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.compat.tracing import has_values
from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, angles, base_of, checked, theta
from posenc.core.positions import exact
from posenc.core.prepared import Prepared
from posenc.core.shapes import Frequencies, Heads, PerHead, Positions
from posenc.properties import length_independent, order_sensitive, shift_invariant, unique_positions
from posenc.properties.card import Card, paper
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn, turn
from posenc.support.arguments import real, whole_number

GAMMA = 0.4
# Two factors of this size leave float32 2¹¹ for queries, keys and their sums
LARGEST = 2.0**58


class Stretch(Prepared, NamedTuple("Stretch", [("queries", Turn), ("keys", Turn)])):
    """cos and sin for queries, multiplied by xPos's scaling, and for keys, divided by it."""


def zeta(pairs: int) -> Tensor:
    """Return the factor ζ by which each pair decays over `span` tokens, fastest pair first.

    >>> zeta(3)
    tensor([0.2857, 0.5238, 0.7619], dtype=torch.float64)
    """
    share = torch.arange(pairs, dtype=torch.float64, device="cpu") / pairs
    return (share + GAMMA) / (1 + GAMMA)


class XPos(Encoding):
    """Rotation with pairs that decay with distance, for causal attention: `XPos(64)`.

    - `freqs`: number of channels, or a vector of frequencies (pair,) in radians per token
    - `span`: tokens over which a pair decays by the factor ζ, 512 by default
    - `centre`: position where the scaling is 1, 2048 by default: `XPos(64, centre=100_000)`
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + dim / 2
    - `base`: base of θ if `freqs` is a number of channels; None: 10,000

    Raises ValueError if `span` is not positive, and for frequencies of several axes.

    >>> XPos(64, base=500_000).extra_repr()
    "64 channels, base=500000, span=512, centre=2048, layout='interleaved'"

    Sun et al. 2022, arXiv:2212.10554, algorithm 1.
    """

    prepared = Stretch

    def __init__(
        self,
        freqs: int | Frequencies,
        span: float = 512,
        centre: int = 2048,
        layout: Layout = "interleaved",
        base: float | None = None,
    ):
        super().__init__()
        if not 0 < real(span, "span") < float("inf"):
            raise ValueError(f"`span` must be a positive number of tokens, got {span}.")
        self.freqs = theta(freqs, base)
        if self.freqs.ndim != 1:
            given = tuple(self.freqs.shape)
            raise ValueError(f"`freqs` must be a vector for xPos, got shape {given}.")
        self.dim = 2 * len(self.freqs)
        self.span, self.centre = span, whole_number(centre, "centre")
        self.layout: Layout = checked(layout)
        self.rates = zeta(len(self.freqs)).log() / span
        fastest = log(GAMMA / (1 + GAMMA)) / span
        self.reach = int(-log(LARGEST) / fastest)

    def prepare(self, pos: Positions) -> Stretch:
        """Return the rotations of queries and keys; raise IndexError if a factor overflows."""
        away = exact(pos) - self.centre
        if has_values(away) and (away.abs() > self.reach).any():
            raise IndexError(
                f"`pos` must be within {self.reach:,} tokens of the centre {self.centre:,} of"
                " xPos, because the factors of xPos grow exponentially with the distance from the"
                f" centre, got {pos.min():,} … {pos.max():,}. Pass"
                " a `centre` in the middle of your text, or train with a larger `span`."
            )
        fade = angles(away, self.rates)
        return Stretch(turn(pos, self.freqs, fade.exp()), turn(pos, self.freqs, (-fade).exp()))

    def on_queries(self, q: Heads, at: Stretch) -> Heads:
        return rotate(q, at.queries, self.layout)

    def on_keys(self, k: Heads, at: Stretch) -> PerHead:
        return rotate_keys(k, at.keys, self.layout)

    def extra_repr(self) -> str:
        far = f"span={self.span:g}, centre={self.centre}"
        return f"{self.dim} channels{base_of(self.freqs)}, {far}, layout={self.layout!r}"


CARD = Card(
    name="xPos",
    paper=paper("sun2022length"),
    used_by="RetNet",
    make=lambda dim, heads, base=10_000.0, **options: XPos(dim, base=base, **options),
    holds=frozenset({unique_positions, shift_invariant, length_independent, order_sensitive}),
)
