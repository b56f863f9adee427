"""Project vectors of words to a plane, before and after an encoding.

    project   x → (x − mean) V₂,  x − mean = U S Vᵀ       words in the two directions of most
                                                          variance, before and after positions
    turned    R(p θ) (x, y),  R(a) = [[cos a, −sin a], [sin a, cos a]]      words of two channels

A rotation by θ per token keeps the angle between two words if both are shifted. Added positions
move words, and large ones hide the content of the words.

Su et al. 2021, arXiv:2104.09864, eq. 13 and figure 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, degrees, remainder, tau

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.core.positions import folded
from posenc.core.shapes import Points, Positions
from posenc.rotation.rotate import rotate
from posenc.rotation.table import turn


@dataclass(frozen=True)
class Plane:
    """Words as points in a plane, before and after an encoding.

    The plane has the directions of most variance, which differ before and after.
    """

    words: list[str]
    position: list[int] | list[list[int]]
    before: list[list[float]]  # (word, 2)
    after: list[list[float]]
    explained: tuple[float, float]  # share of the variance that the plane shows, before and after
    kept: float  # share of words with the same nearest neighbour before and after
    ordered: tuple[float, float]  # |correlation| of the first axis with the order of the words


@dataclass(frozen=True)
class Turned:
    """Two-channel word vectors, before and after rotation in proportion to their positions."""

    words: list[str]
    position: list[int]
    theta: float  # radians per token
    before: list[list[float]]  # (word, 2)
    after: list[list[float]]

    def angle(self, first: int, second: int, after: bool = True) -> float:
        """Return the angle from one word to another, in degrees, −180 … 180, counter-clockwise."""
        (x, y), (u, v) = ((self.after if after else self.before)[n] for n in (first, second))
        return degrees(remainder(atan2(v, u) - atan2(y, x), tau))


@torch.no_grad()
def project(
    words: Sequence[str],
    x: Float[Tensor, "token channel"],
    encoding: Encoding,
    pos: Positions | Points | None = None,
) -> Plane:
    """Project words to a plane, before and after an encoding.

    If `pos` is None, the positions are 0, 1, 2, …, or the first points of a square or a cube.
    """
    if "on_embeddings" not in encoding.acts_on:
        raise ValueError(
            f"`encoding` must act on embeddings, got {type(encoding).__name__}. Use Sinusoidal,"
            " Integer or Learned, or `turned`."
        )
    pos = folded(len(x), encoding.axes) if pos is None else pos
    placed = encoding.on_embeddings(x.unsqueeze(0), encoding.prepare(pos)).squeeze(0)
    (before, shown), (after, shown_after) = plane(x), plane(placed)
    return Plane(
        list(words),
        pos.tolist(),
        before.tolist(),
        after.tolist(),
        (shown, shown_after),
        float((_nearest(x) == _nearest(placed)).double().mean()),
        (_ordered(before), _ordered(after)),
    )


def plane(x: Float[Tensor, "token channel"]) -> tuple[Tensor, float]:
    """Return `x` projected to two principal components, (token, 2), and their share of variance.

    The sign of each axis makes its largest weight positive, so that pictures are reproducible.
    """
    centred = x.double() - x.double().mean(0)
    _, size, axes = torch.linalg.svd(centred, full_matrices=False)
    largest = axes.gather(-1, axes.abs().argmax(-1, keepdim=True))
    shown = size[:2].square().sum() / size.square().sum()
    return centred @ (axes * largest.sign())[:2].mT, float(shown)


def turned(
    words: Sequence[str],
    x: Float[Tensor, "token 2"],
    theta: float,
    pos: Positions | None = None,
) -> Turned:
    """Rotate words of two channels by their positions.

    If `pos` is None, the positions are 0, 1, 2, …
    """
    pos = folded(len(x), 1) if pos is None else pos
    by = turn(pos, torch.tensor([theta], dtype=torch.float64))
    after = rotate(x[None, None], by, "interleaved")[0, 0]
    return Turned(list(words), pos.tolist(), theta, x.tolist(), after.tolist())


def _nearest(x: Tensor) -> Tensor:
    apart = torch.cdist(x.double(), x.double())
    return apart.fill_diagonal_(float("inf")).argmin(-1)


def _ordered(points: Tensor) -> float:
    places = torch.arange(len(points), dtype=points.dtype)
    return abs(float(torch.corrcoef(torch.stack((points[:, 0], places)))[0, 1]))
