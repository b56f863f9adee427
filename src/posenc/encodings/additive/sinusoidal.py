"""Sinusoidal: add a sine and a cosine for each of d/2 frequencies, from fast to slow.

    PE(p, 2j) = sin(p θⱼ)        θⱼ = base^(−2j/d),  j = 0 … d/2 − 1, radians per token
    PE(p, 2j+1) = cos(p θⱼ)      layout="half": all sines first, then all cosines

Each pair is the hand of a clock. A step of k tokens turns every hand by a fixed angle, so
PE(p + k) = Mₖ PE(p), where Mₖ rotates each pair by kθ. Hence
⟨PE(p), PE(q)⟩ = Σⱼ cos((p − q) θⱼ), the norm is √(d/2) everywhere, and no position repeats. But
attention applies two different projections to these rows, which breaks the symmetry. MusicGen has
the cosines first, `cosines_first=True`.

Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, §3.5; their code has "half".
"""

from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, angles, checked, frequencies, join
from posenc.core.shapes import Embeddings, Frequencies, Positions
from posenc.encodings.additive.add import TokenRows, add
from posenc.properties import (
    any_length,
    bounded,
    length_independent,
    linear_shift,
    norm_constant,
    order_sensitive,
    unique_positions,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import paired, switch


def sines_and_cosines(
    pos: Positions,
    freqs: Frequencies,
    layout: Layout = "interleaved",
    cosines_first: bool = False,
) -> Tensor:
    """Return sin and cos of p·θ, (*batch, token, 2·pair), computed in float64 and rounded once."""
    angle = angles(pos, freqs)
    first, second = angle.sin(), angle.cos()
    if cosines_first:
        first, second = second, first
    return join(first, second, layout).float().to(pos.device)


class Sinusoidal(Encoding):
    """Sines and cosines of the position, added to embeddings: `Sinusoidal(512)`.

    - `width`: channels of the embeddings, even
    - `base`: base of θ, 10,000 by default
    - `layout`: "interleaved" alternates sine and cosine, "half" puts all sines before all cosines
    - `cosines_first`: True exchanges sines and cosines, False by default

    Raises ValueError for an odd `width`.

    >>> import torch
    >>> Sinusoidal(4)(torch.zeros(2, 4))
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])

    Vaswani et al. 2017, arXiv:1706.03762, §3.5.
    """

    prepared = TokenRows

    def __init__(
        self,
        width: int,
        base: float = 10_000.0,
        layout: Layout = "interleaved",
        cosines_first: bool = False,
    ):
        super().__init__()
        self.width = paired(width, "width")
        self.freqs, self.base = frequencies(width, base), float(base)
        self.layout: Layout = checked(layout)
        self.cosines_first = switch(cosines_first, "cosines_first")

    def prepare(self, pos: Positions) -> TokenRows:
        return TokenRows(sines_and_cosines(pos, self.freqs, self.layout, self.cosines_first))

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Sinusoidal",
    paper=paper("vaswani2017attention"),
    used_by="the first Transformer, Whisper, M2M-100",
    make=lambda dim, heads, **options: Sinusoidal(dim * heads, **options),
    holds=frozenset(
        {unique_positions, bounded, norm_constant, linear_shift}
        | {any_length, length_independent, order_sensitive}
    ),
)
