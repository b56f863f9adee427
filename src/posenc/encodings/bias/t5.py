"""T5: a learned bias for each head and bucket of distances, with wider buckets for far distances.

    score(i, j) = qᵢ · kⱼ · scale + weight[bucket(pᵢ − pⱼ), h]
    bucket(δ) = δ                                                   δ < e
    bucket(δ) = min(B − 1, e + ⌊(B − e) ln(δ/e) / ln(reach/e)⌋)     δ ≥ e = ⌊B/2⌋

Causal: B buckets for δ ≥ 0; keys after the query share bucket 0. Bidirectional: half of the buckets
for each direction, with keys after the query in the upper half. Distances beyond the start of the
last bucket (113 for 32 causal buckets and a reach of 128, 91 bidirectional) have the same bias. A
model trained on shorter texts has untrained buckets, which longer texts use. T5 sets `scale` to 1.

Raffel et al. 2020, arXiv:1910.10683, §2.1; the formula is in the authors' code. Bucket starts are
computed with integers here, and with float32 logarithms there.
"""

from bisect import bisect_left

import torch
from torch import Tensor, nn

from posenc.biases.distance import DistanceBias, looked_up
from posenc.compat.tracing import upcast
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import brief, count, query_heads, room, switch, whole_number

MOST_BUCKETS, MOST_REACH = 2**10, 2**22  # every call builds a table of all offsets within reach


def starts(buckets: int, reach: int) -> list[int]:
    """Return the smallest distance in each bucket, for keys on one side of the query.

    >>> starts(32, 128)[16:]
    [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    """
    exact = whole_number(buckets, "buckets") // 2
    if exact < 1 or whole_number(reach, "reach") <= exact:
        raise ValueError(
            "`buckets` must be at least 2 in each direction, and `reach` greater than half of this"
            f" number, got {buckets} buckets in each direction and `reach`={reach}. Pass more"
            " `buckets` or a larger `reach`."
        )
    if buckets > MOST_BUCKETS or reach > 2**62:
        raise ValueError(
            f"`buckets` must be at most {MOST_BUCKETS:,} and `reach` below 2⁶², got"
            f" {brief(buckets)} and {brief(reach)}."
        )
    log = buckets - exact  # (B − e) ln(δ/e) ≥ n ln(reach/e)  ⇔  δ^(B−e) eⁿ ≥ reachⁿ e^(B−e)
    first = list(range(exact))
    distances = range(exact, reach + 1)
    for n in range(log):
        least = reach**n * exact**log
        first.append(distances[bisect_left(distances, least, key=lambda d, n=n: d**log * exact**n)])
    return first


def bucket(offset: Tensor, buckets: int, reach: int, bidirectional: bool) -> Tensor:
    """Return the bucket of each offset, query − key."""
    side = buckets // 2 if bidirectional else buckets
    later = torch.tensor(starts(side, reach)[1:], device=offset.device)
    return _bucketed(offset, later, bidirectional)


def _bucketed(offset: Tensor, later: Tensor, bidirectional: bool) -> Tensor:
    """Return the bucket of each offset, where `later` are the starts of all buckets but the first.

    The first bucket holds all offsets below the start of the second, including negative ones.
    """
    if not bidirectional:
        return torch.bucketize(offset, later, right=True)
    bucket = torch.bucketize(offset.abs(), later, right=True)
    return bucket + (offset < 0) * (len(later) + 1)


class T5Bias(Encoding):
    """Learned bias for each head and bucket of distances: `T5Bias(8)`.

    - `heads`: query heads
    - `buckets`: buckets of distances, 32 by default; for both directions together if
      `bidirectional`
    - `reach`: distance in tokens that ends the logarithmic buckets; all farther distances are in
      the last bucket; 128 by default
    - `bidirectional`: True, the default, for encoders; False for decoders, where keys after the
      query share bucket 0

    Raises ValueError for fewer than 2 buckets per direction, or a `reach` within the exact buckets.

    >>> T5Bias(8, bidirectional=False)
    T5Bias(8 heads, 32 causal buckets, reach=128)

    Raffel et al. 2020, arXiv:1910.10683, §2.1.
    """

    def __init__(self, heads: int, buckets: int = 32, reach: int = 128, bidirectional: bool = True):
        super().__init__()
        self.heads, self.buckets = query_heads(heads), whole_number(buckets, "buckets")
        self.reach = count(reach, "reach", most=MOST_REACH)
        self.bidirectional = switch(bidirectional, "bidirectional")
        first = starts(buckets // 2 if bidirectional else buckets, reach)
        self.later = torch.tensor(first[1:], device="cpu")
        room("a table", 2 * reach + 1, heads)
        self.weight = nn.Parameter(torch.randn(buckets, heads) * 0.1)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        return DistanceBias(self.of_distance, q, q_at, k_at, self.reach, all_heads=True)

    def of_distance(self, h: Tensor | None, δ: Tensor) -> Tensor:
        """Return the bias at an offset, in logits.

        - `h`, `δ`: head, and offset in tokens, query − key; `h` None: all heads
        """
        bucket = _bucketed(δ, self.later.to(δ.device), self.bidirectional)
        # The gradient of a bucket is the sum over all pairs in it
        return looked_up(upcast(self.weight).mT, h, bucket)

    def extra_repr(self) -> str:
        way = "bidirectional" if self.bidirectional else "causal"
        return f"{self.heads} heads, {self.buckets} {way} buckets, reach={self.reach}"


CARD = Card(
    name="T5",
    paper=paper("raffel2020exploring"),
    used_by="T5, mT5, Flan-T5, MPNet",
    make=lambda dim, heads, **options: T5Bias(heads, **options),
    holds=RELATIVE,
)
