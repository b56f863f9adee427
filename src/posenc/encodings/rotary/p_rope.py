"""p-RoPE: rotate only the fastest share p of the pairs, and leave the slow pairs to content.

    θⱼ = base^(−2j/d)  for j < ⌊p · d/2⌋,  0 otherwise        j = 0 … d/2 − 1, radians per token

p = 1 is RoPE, p = 0 is NoPE. Barbero et al. find that models use the slowest pairs as if they were
not rotated, although in long texts they are; here their rotation is 0. Unlike in partial rotary
embeddings, the exponent has the full d, and pairs stay in place; transformers calls this
"proportional".

Barbero et al. 2024, "Round and Round We Go! What makes Rotary Positional Encodings useful?",
arXiv:2410.06205.
"""

from torch import arange, where

from posenc.core.frequencies import Layout, frequencies, theta
from posenc.core.shapes import Frequencies
from posenc.encodings.rotary.rope import RoPE
from posenc.properties.card import ROTATION, Card, paper
from posenc.support.arguments import real


def p_rope(freqs: Frequencies, p: float) -> Frequencies:
    """Return `freqs` with the slowest share 1 − p of the pairs set to 0.

    - `freqs`: θ, a vector (pair,) or a matrix (axis, pair), in radians per token
    - `p`: share of rotated pairs, 0 … 1

    Raises ValueError for a `p` outside 0 … 1.

    >>> p_rope(frequencies(8), 0.5).tolist()
    [1.0, 0.1, 0.0, 0.0]
    """
    freqs = theta(freqs)
    if not 0 <= real(p, "p") <= 1:
        raise ValueError(f"`p` must be a share of pairs, from 0 to 1, got {p}.")
    pairs = freqs.shape[-1]
    return where(arange(pairs, device=freqs.device) < int(p * pairs), freqs, 0.0)


def PRoPE(
    dim: int, p: float = 0.75, layout: Layout = "interleaved", base: float = 10_000.0
) -> RoPE:
    """Return a `RoPE` that does not rotate the slowest pairs.

    - `dim`: channels of a head
    - `p`: share of rotated pairs, 0 … 1
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + dim / 2
    - `base`: base of θ

    >>> PRoPE(8, p=0.5).freqs.tolist()
    [1.0, 0.1, 0.0, 0.0]
    """
    return RoPE(p_rope(frequencies(dim, base), p), layout=layout)


CARD = Card(
    name="p-RoPE",
    paper=paper("barbero2024round"),
    used_by="Gemma 4",
    make=lambda dim, heads, **options: PRoPE(dim, **options),
    holds=ROTATION,
)
