"""Compute the similarity of positions, and scores as functions of distance.

    between       pₘ · pₙ and cos(pₘ, pₙ)           rows of an encoding at positions m and n
    of_distance   B(δ) = Σⱼ cos(δ θⱼ)                of sinusoids, and of a query rotated by RoPE
                  |PE(δ) − PE(0)| = √(2 (B(0) − B(δ)))
    bound         |Σⱼ hⱼ exp(i δ θⱼ)| ≤ maxⱼ |hⱼ₊₁ − hⱼ| Σⱼ |Sⱼ₊₁|,     hⱼ = qⱼ k̄ⱼ, h_{d/2} = 0
                  Sⱼ = Σ_{l<j} exp(i δ θₗ)
    peak          k = R(r) q:  score(δ) = Σⱼ |qⱼ|² cos((δ − r) θⱼ), largest at δ = r
    curve         scores of real words against their distance

δ = position of the query − position of the key, in tokens. B is not monotone, and the bound becomes
flat, so neither implies that far keys have lower scores. `peak` is a counterexample: any distance
can have the largest score.

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
    """Dot products and cosines between the vectors of every two positions."""

    position: list[int] | list[list[int]]
    dot: list[list[float]]
    cosine: list[list[float]]


@dataclass(frozen=True)
class PairsApart:
    """The similarity B(δ) of two positions at distance δ, summed over all d/2 pairs of channels."""

    channels: int  # d
    distance: list[int]
    similarity: list[float]  # B
    share: list[float]  # B(δ) / B(0)
    apart: list[float]  # |PE(δ) − PE(0)|
    rises: int | None  # the first distance at which B is larger than at the previous one
    negative: int | None  # the first distance with B < 0


@dataclass(frozen=True)
class Bound:
    """RoFormer's upper bound of |score|, and the unscaled score q · k, at each distance."""

    distance: list[int]
    mean: list[
        float
    ]  # mean of |S₁| … |Sₙ|, the factor of the bound that does not depend on q and k
    bound: list[float]  # the bound for these q and k
    score: list[float]
    size: list[float]  # |score|, the bounded quantity


@dataclass(frozen=True)
class Peak:
    """Scores of a query and a rotated copy of the query, at each distance.

    The copy is rotated by `target` positions.
    """

    target: int
    distance: list[int]
    score: list[float]
    best: int  # distance of the largest score


@dataclass(frozen=True)
class Curve:
    """Mean and quantiles of scores by distance, over queries, earlier keys, heads and windows."""

    distance: list[int]
    mean: list[float]
    low: list[float]  # 10 % quantile
    high: list[float]  # 90 % quantile


@dataclass(frozen=True)
class Effect(Curve):
    """The difference of scores with an encoding and without positions, for the same words."""

    heads: list[list[float]]  # (head, distance), mean
    by_distance_alone: bool  # True if the difference depends on distance only


@torch.no_grad()
def between(encoding: Encoding, tokens: int, start: int = 0) -> Between | None:
    """Return similarities of all pairs of positions, computed from the encoding's position vectors.

    The vectors are PE(p), or a vector of ones that is encoded at p. Returns None for encodings
    without such vectors, as ALiBi.

    With several axes, positions are the points of a square in row-major order.
    """
    probe = Probe(encoding, heads=None if encoding.heads else 1)
    pos = probe.line(tokens, start)
    rows = probe.rows(pos)
    if rows is None:
        return None
    unit = normalize(rows, dim=-1)
    return Between(pos.tolist(), (rows @ rows.mT).tolist(), (unit @ unit.mT).tolist())


def of_distance(freqs: Frequencies, length: int) -> PairsApart:
    """Return the similarity of rotary positions at distances 0 … length − 1.

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
    """Return RoFormer's bound of |score| and the score at each distance, for unrotated q and k."""
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
    """Return q rotated by `target` positions.

    As a key, this vector has its largest score `target` positions away from q.
    """
    return rotate(q.view(1, 1, 1, -1), turn(torch.tensor([target]), freqs), layout).flatten()


def peak(
    freqs: Frequencies,
    q: Float[Tensor, "channel"],
    target: int,
    length: int,
    layout: Layout = "interleaved",
) -> Peak:
    """Return the scores of q and a rotated copy of q, at each distance.

    The copy is rotated by `target` positions. Scores are not scaled.
    """
    key = turned(q, freqs, target, layout)
    h = _complex(q, layout) * _complex(key, layout).conj()
    score = (_waves(freqs, length) * h).sum(-1).real
    return Peak(target, list(range(length)), score.tolist(), int(score.argmax()))


@torch.no_grad()
def of_words(layer: SelfAttention, x: Tensor) -> Float[Tensor, "window head token token"]:
    """Return scores of all pairs of tokens in windows of text, `x` (window, token, channel).

    Queries and keys use the same projection, so that scores measure similarity, and the dependence
    on distance comes from the encoding only.
    """
    encoding = layer.encoding
    pos = folded(x.shape[-2], encoding.axes)
    x = encoding.on_embeddings(x, encoding.prepare(pos))
    q, *_ = layer.project(x, encoding.prepare(pos))
    # The mask is needed for encodings that depend on visible keys; later keys are not used below
    mask = causal() if encoding.causal else None
    return scores(encoding, q, q, pos, pos, x=x, mask=mask)


@torch.no_grad()
def effect(
    scores: Float[Tensor, "window head token token"],
    plain: Float[Tensor, "window head token token"],
) -> Effect:
    """Return the difference between scores with and without an encoding, by distance."""
    added = scores - plain
    tokens = added.shape[-1]
    diagonals = [added.diagonal(-distance, -2, -1) for distance in range(tokens)]
    by_head = torch.stack([values.mean((0, 2)) for values in diagonals], -1)
    spread = max((values - values.mean((0, 2), keepdim=True)).abs().max() for values in diagonals)
    alone = bool(spread <= 1e-5 * plain.abs().max())
    return Effect(**vars(curve(added)), heads=by_head.tolist(), by_distance_alone=alone)


@torch.no_grad()
def curve(scores: Float[Tensor, "batch head token token"]) -> Curve:
    """Return mean and quantiles of scores by the distance from the query back to the key."""
    tokens = scores.shape[-1]
    diagonals = [scores.diagonal(-distance, -2, -1).flatten() for distance in range(tokens)]
    return Curve(
        distance=list(range(tokens)),
        mean=[values.mean().item() for values in diagonals],
        low=[_quantile(values, 1, 10) for values in diagonals],
        high=[_quantile(values, 9, 10) for values in diagonals],
    )


def _quantile(values: Tensor, nth: int, of: int) -> float:
    """Return the quantile of a vector for the probability `nth` / `of`.

    The result equals that of `torch.quantile`, but the vector is not sorted.
    """
    place, rest = divmod((len(values) - 1) * nth, of)
    low = values.kthvalue(place + 1).values.item()
    if not rest:
        return low
    return low + (values.kthvalue(place + 2).values.item() - low) * rest / of


def _waves(freqs: Frequencies, length: int) -> Tensor:
    """Return exp(i δ θⱼ) for all distances δ and channel pairs j, (distance, pair)."""
    angle = torch.arange(length).double().unsqueeze(-1) * freqs.detach().double()
    return torch.polar(torch.ones_like(angle), angle)


def _complex(x: Tensor, layout: Layout) -> Tensor:
    return torch.complex(*split(x.detach().double(), layout))


def _first_place(holds: Tensor, more: int = 0) -> int | None:
    places = holds.nonzero()
    return int(places[0]) + more if len(places) else None
