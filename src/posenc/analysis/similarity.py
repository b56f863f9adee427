"""Measure how alike positions are, and how scores depend on distance.

    between       pₘ · pₙ and cos(pₘ, pₙ)           rows of an encoding at positions m and n
    of_distance   B(δ) = Σⱼ cos(δ θⱼ)                of sinusoids, and of a query turned by RoPE
                  |PE(δ) − PE(0)| = √(2 (B(0) − B(δ)))
    bound         |Σⱼ hⱼ exp(i δ θⱼ)| ≤ maxⱼ |hⱼ₊₁ − hⱼ| Σⱼ |Sⱼ₊₁|,     hⱼ = qⱼ k̄ⱼ, h_{d/2} = 0
                  Sⱼ = Σ_{l<j} exp(i δ θₗ)
    peak          k = R(r) q:  score(δ) = Σⱼ |qⱼ|² cos((δ − r) θⱼ), largest at δ = r
    curve         scores of real words against their distance

δ = position of the query − position of the key, in tokens. B is not monotone, and the bound levels
off: neither says that far keys score less. `peak` is why: any distance can be the best.

Vaswani et al. 2017, arXiv:1706.03762, §3.5; Su et al. 2021, "RoFormer", arXiv:2104.09864, §3.4.3,
eq. 35-37; Barbero et al. 2024, arXiv:2410.06205, proposition 3.1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from posenc.analysis.base_search import similarity
from posenc.attention.layer import SelfAttention
from posenc.attention.scores import scores
from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, split
from posenc.core.masks import causal
from posenc.core.positions import folded
from posenc.core.shapes import Frequencies
from posenc.properties.probe import Probe
from posenc.rotation.rotate import rotate
from posenc.rotation.table import turn


@dataclass(frozen=True)
class Between:
    """Every position with every other: (position, position)."""

    position: list[int] | list[list[int]]
    dot: list[list[float]]
    cosine: list[list[float]]


@dataclass(frozen=True)
class PairsApart:
    """Two positions so far apart, in each of the d/2 pairs at once."""

    channels: int  # d
    distance: list[int]
    similarity: list[float]  # B
    share: list[float]  # B(δ) / B(0)
    apart: list[float]  # |PE(δ) − PE(0)|
    rises: int | None  # the first distance more alike than the one before
    negative: int | None  # the first distance of B < 0


@dataclass(frozen=True)
class Bound:
    """RoFormer's upper bound, and the score of the query and key that it is for; no scale."""

    distance: list[int]
    mean: list[float]  # mean of |S₁| … |Sₙ|: the bound for any q and k, but for their factor
    bound: list[float]  # the bound for these q and k
    score: list[float]
    size: list[float]  # |score|, which the bounds are of


@dataclass(frozen=True)
class Peak:
    """A query with a key that is the same vector, turned by `target` tokens beforehand."""

    target: int
    distance: list[int]
    score: list[float]
    best: int  # distance of the largest score


@dataclass(frozen=True)
class Curve:
    """Scores by distance, over all queries and the keys before them, all heads and windows."""

    distance: list[int]
    mean: list[float]
    low: list[float]  # a tenth of the scores is lower
    high: list[float]  # a tenth is higher


@dataclass(frozen=True)
class Effect(Curve):
    """Scores that an encoding adds: those of the same words without positions are subtracted."""

    heads: list[list[float]]  # (head, distance): the mean of each
    by_distance_alone: bool  # the same for all words: a bias of distance


@torch.no_grad()
def between(encoding: Encoding, tokens: int, start: int = 0) -> Between | None:
    """Compare the rows PE(p), or a vector of ones at each p. None: no rows, as in ALiBi.

    With several axes the positions are the cells of a square, line by line.
    """
    probe = Probe(encoding, heads=None if encoding.heads else 1)
    pos = probe.line(tokens, start)
    rows = probe.rows(pos)
    if rows is None:
        return None
    unit = normalize(rows, dim=-1)
    return Between(pos.tolist(), (rows @ rows.mT).tolist(), (unit @ unit.mT).tolist())


def of_distance(freqs: Frequencies, length: int) -> PairsApart:
    """Compute the similarity at distances 0 … length − 1.

    >>> from posenc import frequencies
    >>> of_distance(frequencies(64), 1000).rises, of_distance(frequencies(64), 1000).negative
    (6, 725)
    """
    alike = similarity(freqs, length)
    apart = (2 * (alike[0] - alike)).clamp_min(0).sqrt()
    return PairsApart(
        2 * len(freqs),
        list(range(length)),
        alike.tolist(),
        (alike / alike[0]).tolist(),
        apart.tolist(),
        _first_place(alike.diff() > 0, 1),
        _first_place(alike < 0),
    )


def bound(
    freqs: Frequencies,
    q: Float[Tensor, "channel"],
    k: Float[Tensor, "channel"],
    length: int,
    layout: Layout = "interleaved",
) -> Bound:
    """Bound the score of a query and a key not yet turned, paired by `layout`."""
    h = _complex(q, layout) * _complex(k, layout).conj()
    waves = _waves(freqs, length)
    sums = waves.cumsum(-1).abs()
    steps = torch.cat((h, h.new_zeros(1))).diff().abs().max()
    score = (waves * h).sum(-1).real
    return Bound(
        list(range(length)),
        sums.mean(-1).tolist(),
        (steps * sums.sum(-1)).tolist(),
        score.tolist(),
        score.abs().tolist(),
    )


def turned(
    q: Float[Tensor, "channel"], freqs: Frequencies, target: int, layout: Layout = "interleaved"
) -> Float[Tensor, "channel"]:
    """The key that this query finds best `target` tokens behind it: R(target) q."""
    return rotate(q.view(1, 1, 1, -1), turn(torch.tensor([target]), freqs), layout).flatten()


def peak(
    freqs: Frequencies,
    q: Float[Tensor, "channel"],
    target: int,
    length: int,
    layout: Layout = "interleaved",
) -> Peak:
    """Score `q` with the key `turned` by `target`, at distances 0 … length − 1; no scale."""
    key = turned(q, freqs, target, layout)
    h = _complex(q, layout) * _complex(key, layout).conj()
    score = (_waves(freqs, length) * h).sum(-1).real
    return Peak(target, list(range(length)), score.tolist(), int(score.argmax()))


def by_distance(layer: SelfAttention, x: Tensor) -> Curve:
    """Average scores by distance in windows of text, `x` (window, token, channel)."""
    return curve(of_words(layer, x))


@torch.no_grad()
def of_words(layer: SelfAttention, x: Tensor) -> Float[Tensor, "window head token token"]:
    """Score all pairs of tokens in windows of text, `x` (window, token, channel).

    The layer's query projection serves for queries and keys alike, so that a score measures
    likeness, and what changes with distance is the encoding's doing.
    """
    encoding = layer.encoding
    pos = folded(x.shape[-2], encoding.axes)
    x = encoding.on_embeddings(x, encoding.prepare(pos))
    q, *_ = layer.project(x, encoding.prepare(pos))
    # Each key stands before its query here, so the mask hides none of them
    mask = causal() if encoding.causal else None
    return scores(encoding, q, q, pos, pos, x=x, mask=mask)


@torch.no_grad()
def effect(
    scores: Float[Tensor, "window head token token"],
    plain: Float[Tensor, "window head token token"],
) -> Effect:
    """Average what an encoding adds, by distance: its scores minus those of the words without."""
    added = scores - plain
    tokens = added.shape[-1]
    diagonals = [added.diagonal(-distance, -2, -1) for distance in range(tokens)]
    by_head = torch.stack([values.mean((0, 2)) for values in diagonals], -1)
    spread = max((values - values.mean((0, 2), keepdim=True)).abs().max() for values in diagonals)
    alone = bool(spread <= 1e-5 * plain.abs().max())
    return Effect(**vars(curve(added)), heads=by_head.tolist(), by_distance_alone=alone)


@torch.no_grad()
def curve(scores: Float[Tensor, "batch head token token"]) -> Curve:
    """Average scores by distance, computed by attention or captured in a model."""
    tokens = scores.shape[-1]
    diagonals = [scores.diagonal(-distance, -2, -1).flatten() for distance in range(tokens)]
    tenths = torch.tensor([0.1, 0.9])
    bands = [torch.quantile(values, tenths).tolist() for values in diagonals]
    return Curve(
        distance=list(range(tokens)),
        mean=[values.mean().item() for values in diagonals],
        low=[low for low, _ in bands],
        high=[high for _, high in bands],
    )


def _waves(freqs: Frequencies, length: int) -> Tensor:
    """Compute exp(i δ θⱼ), (distance, pair)."""
    angle = torch.arange(length).double().unsqueeze(-1) * freqs.detach().double()
    return torch.polar(torch.ones_like(angle), angle)


def _complex(x: Tensor, layout: Layout) -> Tensor:
    return torch.complex(*split(x.detach().double(), layout))


def _first_place(holds: Tensor, more: int = 0) -> int | None:
    places = holds.nonzero()
    return int(places[0]) + more if len(places) else None
