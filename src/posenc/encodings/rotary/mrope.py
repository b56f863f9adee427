"""M-RoPE: divide RoPE's frequencies among the frame, row and column of images and video.

    angle(p, j) = p_a(j) · θⱼ,   p = (t, h, w)              j = 0 … d/2 − 1, θ in radians per token
    contiguous      a(j) = t t … h h … w w …                s_a pairs for axis a, fastest first
    interleaved     a(j) = j mod 3 if j < 3 s_(j mod 3), else t
    spatial first   a(j) = h w h w … t t …                  s_h = s_w

A token of text has t = h = w and is rotated exactly as with RoPE, so a language model can be
extended to images. Contiguous sections give t the fast pairs and w the slow ones; interleaved
sections give every axis fast and slow pairs. The axis of a pair is independent of the channels of a
pair: `layout` is "half" in Qwen's models, "interleaved" in GLM-4V's and ERNIE's. (HunYuan-VL
divides channels instead of pairs, so that the two channels of a pair have different angles. This is
not a rotation, and not included.)

Wang et al. 2024, "Qwen2-VL", arXiv:2409.12191, §2.1: contiguous. Qwen3-VL, arXiv:2511.21631:
interleaved, with two axes NeoMME too. ERNIE 4.5 VL: spatial first, and its config lists h, w, t.
"""

from collections.abc import Sequence

import torch

from posenc.core.frequencies import Layout, frequencies, theta
from posenc.core.shapes import Frequencies
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import several_axes
from posenc.properties.card import ROTATION, Card, paper
from posenc.support.arguments import brief, whole_number


def mrope(freqs: Frequencies, sections: Sequence[int], interleaved: bool = False) -> Frequencies:
    """Assign each pair of channels to one axis: return θ of shape (axis, pair) for `RoPE`.

    - `freqs`: θ, a vector (pair,) in radians per token
    - `sections`: pairs of each axis: time, row and column; their sum is the number of pairs
    - `interleaved`: True assigns pairs to the axes in turn, as in Qwen3-VL; False gives each axis a
      block of pairs

    Raises ValueError if the sum of the sections is not the number of pairs.

    >>> mrope(frequencies(8), (2, 1, 1)).tolist()
    [[1.0, 0.1, 0.0, 0.0], [0.0, 0.0, 0.01, 0.0], [0.0, 0.0, 0.0, 0.001]]
    >>> mrope(frequencies(8), (2, 1, 1), interleaved=True).tolist()
    [[1.0, 0.0, 0.0, 0.001], [0.0, 0.1, 0.0, 0.0], [0.0, 0.0, 0.01, 0.0]]
    """
    freqs, sections = theta(freqs), pairs_of_axes(sections)
    if not interleaved:
        return _followed(freqs, sections, [a for a, s in enumerate(sections) for _ in range(s)])
    n = len(sections)
    return _followed(
        freqs, sections, [j % n if j < n * sections[j % n] else 0 for j in range(sum(sections))]
    )


def spatial_first(freqs: Frequencies, sections: Sequence[int]) -> Frequencies:
    """Return θ of shape (axis, pair) in ERNIE 4.5 VL's order: row and column in turn, then time.

    `sections` are the numbers of pairs for time, row and column.

    >>> spatial_first(frequencies(8), (2, 1, 1)).tolist()
    [[0.0, 0.0, 0.01, 0.001], [1.0, 0.0, 0.0, 0.0], [0.0, 0.1, 0.0, 0.0]]
    """
    freqs, sections = theta(freqs), pairs_of_axes(sections)
    space, t = sections[1:], sum(sections[:1])
    return _followed(freqs, sections, [1 + j % len(space) for j in range(sum(space))] + [0] * t)


def pairs_of_axes(sections: Sequence[int]) -> list[int]:
    if not isinstance(sections, Sequence) or isinstance(sections, str):
        raise TypeError(
            f"`sections` must be a list of numbers of pairs, one per axis, got {brief(sections)}."
        )
    return [whole_number(pairs, "sections") for pairs in sections]


def _followed(freqs: Frequencies, sections: Sequence[int], axes: list[int]) -> Frequencies:
    """Assign θ to axes: return a matrix (axis, pair) with θⱼ in row `axes[j]`, 0 elsewhere."""
    if freqs.ndim != 1 or min(sections, default=0) < 1 or sum(sections) != len(freqs):
        raise ValueError(
            "`sections` must be numbers of channel pairs, at least 1 per axis, with the sum"
            f" {freqs.shape[-1]}, the length of the vector `freqs`, got {[*sections]}."
        )
    found = [axes.count(axis) for axis in range(len(sections))]
    if found != [*sections]:
        raise ValueError(
            f"`sections` must be {found} if pairs are assigned to the axes in turn, got"
            f" {[*sections]}. Pass {found}, or use `mrope` with `interleaved=False`, where each"
            " axis has a block of pairs."
        )
    follows = torch.tensor(axes, device=freqs.device)
    return torch.stack([torch.where(follows == a, freqs, 0.0) for a in range(len(sections))])


def MRoPE(
    dim: int,
    sections: Sequence[int] | None = None,
    interleaved: bool = False,
    layout: Layout = "half",
    base: float = 10_000.0,
) -> RoPE:
    """Return a `RoPE` for points (time, row, column), as in Qwen2-VL.

    - `dim`: channels of a head
    - `sections`: pairs of each axis; None: ¼, ⅜ and ⅜ of all, as in Qwen2-VL
    - `interleaved`: True assigns pairs to the axes in turn, as in Qwen3-VL; False gives each axis a
      block of pairs
    - `layout`: "half" pairs channel j with j + dim / 2, "interleaved" neighbouring channels
    - `base`: base of θ

    Raises ValueError if an axis would have no pair.

    >>> MRoPE(16, sections=(2, 3, 3))
    RoPE(16 channels, 3 axes, base=10000, layout='half')
    """
    pairs = dim // 2
    if sections is None and pairs < 3:
        raise ValueError(f"`dim` must be at least 6, a pair of channels per axis, got {dim}.")
    t, h = max(1, pairs // 4), max(1, (pairs - pairs // 4) // 2)  # 16, 24, 24 of 64 pairs
    shares = (t, h, pairs - t - h) if sections is None else sections
    return RoPE(mrope(frequencies(dim, base), shares, interleaved), layout=layout)


CARD = Card(
    name="M-RoPE",
    paper=paper("wang2024qwen2vl"),
    used_by="Qwen2-VL, Qwen2.5-VL, Qwen3-VL, GLM-4.1V",
    make=lambda dim, heads, **options: MRoPE(dim, **options),
    holds=ROTATION | {several_axes},
)
