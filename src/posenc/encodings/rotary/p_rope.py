"""p-RoPE: turn the fastest share p of the pairs only; the slow rest carries content untouched.

    θⱼ = base^(−2j/d)  for j < ⌊p · d/2⌋,  else 0        j = 0 … d/2 − 1, radians per token

p = 1 is RoPE, p = 0 is NoPE. Barbero et al. find that models use the slowest pairs as if they did
not turn, though in a long text they do; here they do not. Unlike partial rotary, the exponent keeps
the full d and the pairs their places; transformers calls this "proportional".

Barbero et al. 2024, "Round and Round We Go! What makes Rotary Positional Encodings useful?",
arXiv:2410.06205.
"""

from torch import arange, where

from posenc.core.frequencies import Layout, frequencies, theta
from posenc.core.shapes import Frequencies
from posenc.encodings.rotary.rope import RoPE
from posenc.properties.card import ROTATION, Card, Paper
from posenc.support.arguments import real


def p_rope(freqs: Frequencies, p: float) -> Frequencies:
    """Return the same frequencies with the slowest 1 − p of them set to 0.

    - `freqs`: θ, a vector (pair,) or a matrix (axis, pair), in radians per token
    - `p`: the share of pairs that turn, 0 … 1

    Raises ValueError for a `p` outside 0 … 1.

    >>> p_rope(frequencies(8), 0.5).tolist()
    [1.0, 0.1, 0.0, 0.0]
    """
    freqs = theta(freqs)
    if not 0 <= real(p, "p") <= 1:
        raise ValueError(f"`p` is the share of pairs that turn, 0 … 1, got {p}.")
    pairs = freqs.shape[-1]
    return where(arange(pairs, device=freqs.device) < int(p * pairs), freqs, 0.0)


def PRoPE(
    dim: int, p: float = 0.75, layout: Layout = "interleaved", base: float = 10_000.0
) -> RoPE:
    """Return RoPE whose slowest pairs do not turn.

    - `dim`: channels of a head
    - `p`: the share of pairs that turn, 0 … 1
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + dim / 2
    - `base`: the base of θ

    >>> PRoPE(8, p=0.5).freqs.tolist()
    [1.0, 0.1, 0.0, 0.0]
    """
    return RoPE(p_rope(frequencies(dim, base), p), layout=layout)


CARD = Card(
    name="p-RoPE",
    paper=Paper(
        key="barbero2024round",
        title="Round and Round We Go! What makes Rotary Positional Encodings useful?",
        authors="Barbero, Federico and Vitvitskyi, Alex and Perivolaropoulos, Christos"
        " and Pascanu, Razvan and Veličković, Petar",
        year=2024,
        arxiv="2410.06205",
    ),
    used_by="Gemma 4",
    make=lambda dim, heads, **options: PRoPE(dim, **options),
    holds=ROTATION,
)
