"""FoPE: RoPE in which a mixture of waves of several frequencies replaces each pair's cos and sin.

    cosⱼ(p) = Σ_i cos(p ω_i) C_ij,   sinⱼ(p) = Σ_i sin(p ω_i) S_ij       for each head its own C, S
    (a, b) → (a cosⱼ − b sinⱼ, b cosⱼ + a sinⱼ)
    ω_i = base^(−2i/d) of those above 2π/L, in radians per token; other pairs have cos 1, sin `rest`

Waves slower than one turn in the trained length L are dropped: a model has never seen them through.
The kept ones are mixed, so that damage to one wave does not fall on one pair. C and S are unit
matrices plus small random numbers, and are learned. A score then does not depend on the distance
alone, and the lengths of queries and keys change with the position.

Hua et al. 2024, "Fourier Position Embedding", arXiv:2412.17739; initial values as in
TsinghuaC3I/Fourier-Position-Embedding, olmo/model.py at bd94b20, which mixes into d/4 pairs at
most; all kept waves are mixed here, as in Intern-S1-Pro. Both pad sin with 1 (`rest=1`), on purpose
by issue 6 of the first: other pairs are turned by 45°, become √2 as long, and count twice in
scores. vLLM at 151a2c7 pads with 0, and so computes other scores than the code of Intern-S1-Pro.
"""

from math import pi

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, angles, checked, for_heads, frequencies
from posenc.core.shapes import Heads, PerHead, Positions
from posenc.properties import (
    any_length,
    bounded,
    learned,
    length_independent,
    order_sensitive,
    unique_positions,
)
from posenc.properties.card import Card, paper
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn
from posenc.support.arguments import channels, count, number, switch


class FoPE(Encoding):
    """Rotation of pairs by mixtures of waves: `FoPE(128, heads=8, length=4096)`.

    - `dim`: channels of a head
    - `heads`: heads with waves of their own, those of queries or of keys; 1, the default and what
      `create` makes: all share them
    - `length`: trained length L in tokens; waves slower than 2π/L are dropped
    - `waves`: number of kept waves, the fastest; None: those above 2π/L
    - `base`: base of ω, 10,000 by default
    - `gain`: size of the random part of C and S, 0.3 by default
    - `learned`: False keeps C and S as they begin, the default of the authors' code. While they
      train, call `prepare` in every forward pass
    - `layout`: "half" pairs channel j with j + dim / 2, "interleaved" neighbouring channels
    - `rest`: sin of the pairs without a wave: 0, the default, leaves them unchanged; 1 is that of
      the authors' code

    Intern-S1-Pro: `fope_init_factor` is `gain`, `num_inv_freq` is `waves`, and `fope_sep_head` True
    gives each key head waves of its own, `heads=num_key_value_heads`; `rest` is 1.

    >>> FoPE(16, heads=4, length=512).cosines.shape
    torch.Size([4, 4, 4])
    """

    prepared = Turn

    def __init__(
        self,
        dim: int,
        heads: int = 1,
        length: int = 2048,
        waves: int | None = None,
        base: float = 10_000.0,
        gain: float = 0.3,
        learned: bool = True,
        layout: Layout = "half",
        rest: float = 0.0,
    ):
        super().__init__()
        self.dim, self.rest = channels(dim), number(rest, "rest")
        self.layout: Layout = checked(layout)
        slowest = 2 * pi / count(length, "length")
        kept = sum(base ** (-2 * i / dim) > slowest for i in range(dim // 2))
        self.freqs = frequencies(dim, base)[: kept if waves is None else count(waves, "waves")]
        shape = count(heads, "heads"), len(self.freqs), number(gain, "gain")
        self.cosines, self.sines = (
            nn.Parameter(_mixed(*shape), switch(learned, "learned")) for _ in range(2)
        )

    def prepare(self, pos: Positions) -> Turn:
        angle, heads = for_heads(angles(pos, self.freqs)), len(self.cosines)
        if 1 < angle.shape[-3] < heads:  # positions for each head of the keys
            angle = angle.repeat_interleave(heads // angle.shape[-3], -3)
        rest = self.dim // 2 - len(self.freqs)
        cos, sin = angle.cos() @ self.cosines.double(), angle.sin() @ self.sines.double()
        return Turn(_padded(cos, rest, 1.0), _padded(sin, rest, self.rest))

    def on_queries(self, q: Heads, at: Turn) -> Heads:
        return rotate(q, _for_heads(at, q.shape[1]), self.layout)

    def on_keys(self, k: Heads, at: Turn) -> PerHead:
        return rotate_keys(k, at, self.layout)


def _mixed(heads: int, waves: int, gain: float) -> Tensor:
    """Return identity matrices plus Xavier noise as initial weights, (head, wave, pair)."""
    random = nn.init.xavier_normal_(torch.empty(heads, waves, waves), gain=gain)
    return torch.eye(waves) + random


def _padded(table: Tensor, pairs: int, value: float) -> Tensor:
    return pad(table, (0, pairs), value=value).float()


def _for_heads(at: Turn, heads: int) -> Turn:
    """Repeat tables of key heads, so that each query head has the cos and sin of its key head."""
    own = at.cos.shape[-3]
    if own in (1, heads) or heads % own:
        return at
    return Turn(*[table.repeat_interleave(heads // own, -3) for table in at])


CARD = Card(
    name="FoPE",
    paper=paper("hua2024fourier"),
    used_by="Intern-S1-Pro",
    make=lambda dim, heads, **options: FoPE(dim, **options),
    holds=frozenset(
        {unique_positions, bounded, any_length, length_independent, order_sensitive, learned}
    ),
)
