"""Biases per axis: add a bias for the offset along each axis, as LayoutLMv2 does for pages.

    score(i, j) = qᵢ · kⱼ · scale + Σ_a B_a(h, Δ_a)        Δ = pᵢ − pⱼ

B_a is any bias of distance, such as T5's buckets. Unlike the table of Swin, the axes have separate
numbers, and each axis has a reach of its own. LayoutLMv2 and v3 have three axes: the index of a
word in the text, and the left and lower edges of its box on the page, 0 … 1000:

    PerAxis(T5Bias(12, 32, 128), T5Bias(12, 64, 256), T5Bias(12, 64, 256))

LayoutLMv3 also divides the biases by √d: divide its weights when they are loaded. There is no card,
because the formula is that of the parts.

Xu et al. 2021, "LayoutLMv2", arXiv:2012.14740, eq. 6-8; Huang et al. 2022, arXiv:2204.08387.
"""

from torch import Tensor, nn

from posenc.biases.axes import along_axes, on_a_line
from posenc.biases.distance import DistanceBias
from posenc.core.biases import OfDistance
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPoints, Keys, Points
from posenc.support.arguments import brief

WRONG = "`parts` must be encodings with a bias of distance alone, such as `ALiBi(8)`, got {}."


class PerAxis(Encoding):
    """Sum of biases, one for each axis of the position: `PerAxis(ALiBi(8), ALiBi(8))`.

    - `parts`: an encoding with a bias of distance for each axis, at least two: `ALiBi`, `T5Bias` or
      `Kerple`, and `FIRE` up to its length

    Positions are whole numbers. Raises TypeError for parts without a bias of distance, and
    ValueError for a single part or different numbers of heads.

    >>> from posenc import ALiBi
    >>> from posenc.positions import grid
    >>> PerAxis(ALiBi(8), ALiBi(8))(grid(2, 2))[0, 0]
    tensor([[-0.0000, -0.5000, -0.5000, -1.0000],
            [-0.5000, -0.0000, -1.0000, -0.5000],
            [-0.5000, -1.0000, -0.0000, -0.5000],
            [-1.0000, -0.5000, -0.5000, -0.0000]])

    Xu et al. 2021, arXiv:2012.14740, eq. 6-8.
    """

    def __init__(self, *parts: Encoding):
        super().__init__()
        for part in parts:
            if not isinstance(part, Encoding) or part.acts_on != ("on_scores",):
                raise TypeError(WRONG.format(brief(part)))
        heads = {part.heads for part in parts}
        if len(parts) < 2 or len(heads) > 1:
            raise ValueError(
                "`parts` must be at least two encodings with the same number of heads, got"
                f" {len(parts)} encodings with {', '.join(map(str, sorted(heads)))} heads."
            )
        self.parts = nn.ModuleList(parts)
        self.axes, (self.heads,) = len(parts), heads
        self.causal = any(part.causal for part in parts)

    __repr__ = nn.Module.__repr__  # a line for each part

    def on_scores(self, q: Heads, k: Keys, q_at: Points, k_at: KeyPoints, scale: float) -> Bias:
        curves: list[OfDistance] = []
        for axis, part in enumerate(self.parts):
            bias = part.on_scores(q, k, q_at[..., axis], k_at[..., axis], scale)  # type: ignore
            curve = getattr(bias, "distance", None)
            if curve is None:
                raise TypeError(WRONG.format(brief(part)))
            curves.append(curve)

        def of_distance(h: Tensor, δ: Tensor) -> Tensor:
            each = zip(curves, along_axes(δ, self.axes), strict=True)
            first, *rest = (curve(h, offset) for curve, offset in each)
            return sum(rest, first)

        return DistanceBias(of_distance, q, on_a_line(q_at, "PerAxis"), on_a_line(k_at, "PerAxis"))
