"""Low-rank biases: a bias that is a product of vectors becomes extra channels of queries and keys.

    score(i, j) = qᵢ · kⱼ · scale + u[pᵢ] · w[pⱼ] = [qᵢ, u[pᵢ] / scale] · [kⱼ, w[pⱼ]] · scale

u and w have `rank` numbers for each head and position, so that any attention kernel computes the
bias, also one that accepts none. Causal ALiBi has rank 2: −m (pᵢ − pⱼ) = (−m pᵢ, m) · (1, pⱼ).
`low_rank` finds u and w of any other bias of positions by a singular value decomposition, which
leaves the smallest error of all products of that rank. With a causal mask, scores of later keys are
free; they are continued through a point, b(i, j) + b(j, i) = b(i, i) + b(j, j), which is exact for
ALiBi. In 16 bits, q and k round the new channels as well: ALiBi's positions are off beyond 256 in
bfloat16.

Wu et al. 2025, "FlashBias: Fast Computation of Attention with Bias", arXiv:2505.12044; thuml/
FlashBias, 1_Language_Model/attention_with_alibi_bias.py and 2_Vision_Transformer at 184fac9. There
is no card, because the properties are those of the bias.
"""

import torch
from torch import Tensor, nn

from posenc.attention.scores import scores
from posenc.core.encoding import Encoding
from posenc.core.positions import sequence, whole
from posenc.core.shapes import Heads, PerHead, Positions, Wider
from posenc.rotation.table import copied
from posenc.support.arguments import count, query_heads, switch


class LowRank(Encoding):
    """Bias u[pᵢ] · w[pⱼ], computed in extra channels of queries and keys.

    The function `low_rank(encoding, heads, length, rank)` creates one.

    - `of_queries`: u, (head, position, rank)
    - `of_keys`: w, of the same shape

    Positions must be whole numbers below the number of rows. Raises ValueError for other shapes.
    """

    def __init__(self, of_queries: Tensor, of_keys: Tensor):
        super().__init__()
        if of_queries.ndim != 3 or of_queries.shape != of_keys.shape:
            raise ValueError(
                "`of_queries` and `of_keys` must have the same shape, (head, position, rank), got"
                f" {tuple(of_queries.shape)} and {tuple(of_keys.shape)}."
            )
        self.of_queries = nn.Parameter(of_queries, False)
        self.of_keys = nn.Parameter(of_keys, False)

    def on_queries(self, q: Heads, at: Positions) -> Wider:
        return _joined(q, self.of_queries, at, self.scale(q.shape[-1]))

    def on_keys(self, k: Heads, at: Positions) -> PerHead:
        rows = _rows(self.of_keys, at)
        return _joined(copied(k, rows), self.of_keys, at)


def low_rank(
    encoding: Encoding, heads: int, length: int, rank: int, causal: bool = True
) -> tuple[LowRank, float]:
    """Approximate an encoding's bias by a `LowRank`, and return it and its largest error in logits.

    - `encoding`: an encoding that only adds a bias of positions, such as `ALiBi` or `FIRE`
    - `heads`: query heads
    - `length`: rows, the positions 0 … length − 1
    - `rank`: channels that are added
    - `causal`: True, the default: the bias of later keys, which queries do not see, may be wrong

    >>> from posenc import ALiBi
    >>> made, error = low_rank(ALiBi(4), heads=4, length=100, rank=2)
    >>> error < 1e-5
    True

    Raises ValueError for an encoding whose scores depend on content in another way.
    """
    dim = getattr(encoding, "dim", 0) or 2
    pos, none = sequence(count(length, "length")), torch.zeros(1, query_heads(heads), length, dim)
    with torch.no_grad():
        bias = scores(encoding, none, none, pos, pos)[0].double()
    _refuse_content(encoding, bias, dim)
    right = bias.clone()
    if switch(causal, "causal"):
        own = bias.diagonal(dim1=1, dim2=2)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        bias = torch.where(later, own.unsqueeze(-1) + own.unsqueeze(-2) - bias.mT, bias)
        right = torch.where(later, bias, right)
    u, s, w = torch.linalg.svd(bias, full_matrices=False)
    root = s[:, None, : count(rank, "rank", 1, length)].sqrt()
    made = LowRank((u[..., :rank] * root).float(), (w.mT[..., :rank] * root).float())
    product = made.of_queries.double() @ made.of_keys.double().mT
    return made, float((product - right).abs().max())


def _refuse_content(encoding: Encoding, bias: Tensor, dim: int) -> None:
    """Raise ValueError unless scores are q · k · scale + bias, tested with eight random tokens."""
    few = min(8, bias.shape[-1])
    q, k = torch.randn(2, 1, len(bias), few, dim)
    with torch.no_grad():
        found = scores(encoding, q, k, sequence(few), sequence(few))[0]
    right = (q @ k.mT * encoding.scale(dim))[0] + bias[:, :few, :few]
    if not found.double().allclose(right, rtol=1e-4, atol=1e-4):
        raise ValueError(
            f"`encoding` must add a bias of positions alone, got {encoding!r}, whose scores depend"
            " on content. Pass an encoding such as ALiBi."
        )


def _rows(table: Tensor, at: Positions) -> Tensor:
    """Return the rows of a table at positions, (batch or 1, head, token, rank)."""
    at = whole(at, "LowRank")
    heads = torch.arange(len(table), device=table.device)[:, None]
    return table[heads, at if at.ndim == 3 else at.reshape(-1, 1, at.shape[-1])]


def _joined(x: Heads, table: Tensor, at: Positions, scale: float = 1.0) -> Wider:
    rows = (_rows(table, at) / scale).to(x.dtype)
    return torch.cat((x, rows.expand(*x.shape[:-1], -1)), -1)
