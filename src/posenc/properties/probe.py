"""Run an encoding on random text at any positions; return scores, or the vectors of positions.

All values are computed in float64 by the hooks of a copy of the encoding.
"""

from copy import copy, deepcopy
from functools import cached_property

import torch
from torch import Tensor

from posenc.attention.scores import scores
from posenc.core.encoding import Encoding
from posenc.core.masks import causal
from posenc.core.positions import folded
from posenc.support.arguments import brief, channels, count, switch

LARGE = 2.0**20  # norm of a query and of a key, whose product is much larger than any bias
TOKENS = 9  # tokens of the random text, or fewer if the encoding accepts fewer positions


class Probe:
    """A copy of an encoding in float64, with random text on which its properties are measured.

    - `encoding`: the encoding to copy
    - `dim`, `heads`, `width`: channels of a head, query heads, and channels of an embedding; None:
      the sizes of the encoding
    - `seed`: seed of a private generator; the global seed is not used
    - `causal`: True uses a causal mask; None: `encoding.causal`
    """

    def __init__(
        self,
        encoding: Encoding,
        dim: int | None = None,
        heads: int | None = None,
        width: int | None = None,
        seed: int = 0,
        causal: bool | None = None,
    ):
        if not isinstance(encoding, Encoding):
            raise TypeError(
                "`encoding` must be an encoding, `RoPE(64)` for instance, got"
                f" {brief(encoding)}. Create an encoding by its name with `posenc.create`."
            )
        for name, size in (("dim", dim), ("heads", heads), ("width", width)):
            if size is not None:
                channels(size, name)
        self.encoding = in_float64(encoding)
        self.causal = encoding.causal if causal is None else switch(causal, "causal")
        self.heads = heads or encoding.heads or 4
        width = width or encoding.width
        if width and not dim and not encoding.dim and width % self.heads:
            self.heads = 1
        self.dim = dim or encoding.dim or (width // self.heads if width else 16)
        self.width = width or self.dim * self.heads
        self.random = torch.Generator().manual_seed(count(seed, "seed", 0))
        self.x = self.normal(2 * TOKENS, self.width)
        self.to_q, self.to_k = (
            self.normal(self.width, self.heads * self.dim) * self.width**-0.5 for _ in "qk"
        )

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64)

    def line(self, tokens: int, start: int = 0) -> Tensor:
        """Return the positions 0, 1, 2, …; with several axes, the points of a square or cube."""
        return folded(tokens, self.encoding.axes) + start

    def at(self, coordinate: int, tokens: int) -> Tensor:
        """Return one position for all tokens, with `coordinate` on every axis."""
        axes = self.encoding.axes
        return torch.full((tokens,) if axes == 1 else (tokens, axes), coordinate)

    @cached_property
    def tokens(self) -> int:
        """The length of the test text in tokens.

        The length is at most half of `limit`.
        """
        return max(1, min(TOKENS, self.limit // 2))

    @cached_property
    def limit(self) -> int:
        """The number of positions that the encoding accepts, rounded down to a power of two.

        The number is at most 2²².
        """
        for power in range(22, 0, -1):
            try:
                self.encoding.prepare(self.at(2**power - 1, 1))
            except IndexError:
                continue
            return 2**power
        return 1

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Apply the encoding to embeddings (token, width)."""
        return self.encoding.on_embeddings(x.unsqueeze(0), self.encoding.prepare(pos)).squeeze(0)

    def split(self, x: Tensor) -> Tensor:
        """Split heads: (token, head · channel) -> (1, head, token, channel)."""
        return x.unflatten(-1, (self.heads, self.dim)).transpose(0, 1).unsqueeze(0)

    def scores(self, q_pos: Tensor, k_pos: Tensor, order: Tensor | None = None) -> Tensor:
        """Return the scores of the random text at these positions, (head, query, key).

        `order` permutes the tokens of the text. Masked pairs have the score 0.
        """
        text = self.x if order is None else self.x[order]
        x, k_x = (self.embed(text[: len(pos)], pos) for pos in (q_pos, k_pos))
        return self._scores(
            self.split(x @ self.to_q), self.split(k_x @ self.to_k), x, k_x, q_pos, k_pos
        )

    def _scores(
        self, q: Tensor, k: Tensor, x: Tensor, k_x: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> Tensor:
        mask = causal() if self.causal else None
        logits = scores(self.encoding, q, k, q_pos, k_pos, mask=mask, x=x[None], k_x=k_x[None])
        return logits.squeeze(0).masked_fill(~self.seen(len(q_pos), len(k_pos)), 0)

    def seen(self, queries: int, keys: int) -> Tensor:
        """Return the mask (query, key) that is True where the query sees the key."""
        all_pairs = torch.ones(queries, keys, dtype=torch.bool)
        return all_pairs.tril() if self.causal else all_pairs

    def rows(self, pos: Tensor) -> Tensor | None:
        """Return the encoding's vector at each position, (position, channel), or None.

        The vector is PE(p), or a query of ones that is encoded at p. Encodings that act on scores
        only have none.

        A hook that needs the input of the layer has no rows, because these depend on p only.
        """
        return self.rows_of_both(pos)[0]

    def rows_of_both(self, pos: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the encoding's vectors at each position, one tensor for queries and one for keys.

        Both are PE(p) for encodings of embeddings. Others encode a vector of ones.
        """
        encoding, tokens = self.encoding, len(pos)
        if "on_embeddings" in encoding.acts_on:
            rows = self.embed(torch.zeros(tokens, self.width, dtype=torch.float64), pos)
            return rows, rows
        if "on_queries" in encoding.acts_on and "on_hidden" not in encoding.acts_on:
            ones = torch.ones(1, self.heads, tokens, self.dim, dtype=torch.float64)
            at = encoding.prepare(pos)
            return encoding.on_queries(ones, at)[0, 0], encoding.on_keys(ones, at)[0, 0]
        return None, None

    @cached_property
    def first_rows(self) -> tuple[Tensor | None, Tensor | None]:
        """The encoding's vectors at the first positions, at most 1,024 of them."""
        return self.rows_of_both(self.line(min(1024, self.limit)))

    def keys_as_seen(self, pos: Tensor) -> Tensor:
        """Return each key as the encoding transforms it for each query.

        The product of this key with q is the score.

        k has norm 1. The shape is (head, query, key, channel), because the result may depend on the
        query.

        M k is computed from the scores of a large k with a large q along each channel, so that a
        bias is negligible.
        """
        x = self.embed(self.x[: len(pos)], pos).expand(self.dim, -1, -1)
        q = torch.eye(self.dim, dtype=torch.float64).view(self.dim, 1, 1, self.dim)
        k = self.normal(self.dim)
        q, k = (
            (LARGE * side).expand(self.dim, self.heads, len(pos), -1) for side in (q, k / k.norm())
        )
        mask = causal() if self.causal else None
        products = scores(self.encoding, q, k, pos, pos, 1.0, x=x, mask=mask)
        return products.movedim(0, -1) / LARGE**2

    def with_encoding(self, encoding: Encoding) -> "Probe":
        """Return a copy of the probe for another encoding with the same sizes."""
        other = copy(self)
        other.encoding = encoding
        return other

    def alike(self, pos: Tensor) -> Tensor:
        """Return scores when all tokens have equal content, (1 or head, query, key).

        The content is 0 for encodings that add rows to embeddings, and 1 for all others.
        """
        additive = "on_embeddings" in self.encoding.acts_on
        x = torch.full((len(pos), self.width), 0.0 if additive else 1.0, dtype=torch.float64)
        x = self.embed(x, pos)
        q = self.split(x if self.width == self.heads * self.dim else x @ self.to_q)
        logits = self._scores(q, q, x, x, pos, pos)
        return logits.sum(0, keepdim=True) if additive else logits


def copied(encoding: Encoding) -> Encoding:
    """Return a deep copy of an encoding, so that the original is not changed."""
    try:
        return deepcopy(encoding)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"`encoding` must support `copy.deepcopy`, and this {type(encoding).__name__} raised:"
            f" {error} Store only parameters, buffers and constants, and compute the rest in"
            " hooks."
        ) from error


def in_float64(encoding: Encoding) -> Encoding:
    """Return a copy of an encoding with all tensors in float64 and dropout off.

    Conversion to float64 is exact, so the measured encoding is the same with less rounding.
    """
    twin = copied(encoding).double().eval()
    for module in twin.modules():
        # Tensors that are neither parameters nor buffers
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                vars(module)[name] = value.double()
    return twin
