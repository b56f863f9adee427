"""The probe of an encoding: random content, positions where they are wanted, scores, rows.

Everything goes through the hooks of a copy of the encoding, in float64.
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

LARGE = 2.0**20  # length of a query and of a key: a bias is nothing beside their product
TOKENS = 9  # tokens of the random text, where an encoding takes so many


class Probe:
    """A copy of an encoding, and the random text that it is measured with, both in float64.

    `dim` channels for each of `heads` heads, `width` channels of an embedding; sizes left out are
    those the encoding says it was made for. With `causal`, or where the encoding is made for it, a
    token sees itself and those before it. Generators are private: no global seed is touched.
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
                f" {brief(encoding)}: make one; `posenc.create` does by name."
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
        """Positions one after the other; points fill a square or a cube."""
        return folded(tokens, self.encoding.axes) + start

    def at(self, coordinate: int, tokens: int) -> Tensor:
        """Positions of so many tokens that all stand at one coordinate."""
        axes = self.encoding.axes
        return torch.full((tokens,) if axes == 1 else (tokens, axes), coordinate)

    @cached_property
    def tokens(self) -> int:
        """The number of tokens to try: twice as many are accepted too."""
        return max(1, min(TOKENS, self.limit // 2))

    @cached_property
    def limit(self) -> int:
        """Positions 0 … limit − 1 are accepted: a power of two, at most 2²²."""
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
        """Score the random text, its tokens at these positions: (head, query, key).

        `order` says which token of the text is read when. Pairs that the mask hides score 0.
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
        """The pairs that the mask lets through, (query, key)."""
        all_pairs = torch.ones(queries, keys, dtype=torch.bool)
        return all_pairs.tril() if self.causal else all_pairs

    def rows(self, pos: Tensor) -> Tensor | None:
        """Rows (position, channel): PE(p), or a query of ones at p; None where there is neither.

        None too where the hook reads the input of the layer: a position alone gives no row then.
        """
        return self.rows_of_both(pos)[0]

    def rows_of_both(self, pos: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Rows as `rows` gives them, and those of keys of ones; PE(p) is the row of both."""
        encoding, tokens = self.encoding, len(pos)
        if "on_embeddings" in encoding.acts_on:
            rows = self.embed(torch.zeros(tokens, self.width, dtype=torch.float64), pos)
            return rows, rows
        if "on_queries" in encoding.acts_on and "on_hidden" not in encoding.acts_on:
            ones = torch.ones(1, self.heads, tokens, self.dim, dtype=torch.float64)
            at = encoding.prepare(pos)
            return encoding.on_queries(ones, at)[0, 0], encoding.on_keys(ones, at)[0, 0]
        return None, None

    def near(self) -> Tensor:
        """The first positions, 1,024 where so many are accepted."""
        return self.line(min(1024, self.limit))

    def keys_as_seen(self, pos: Tensor) -> Tensor:
        """M k of a key of length 1, where scores are q · M k: (head, query, key, channel).

        Scores of a large q, along each channel, and a large k: what is added to them is small
        beside them.
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

    def of(self, encoding: Encoding) -> "Probe":
        """The same probe of another encoding of this kind."""
        other = copy(self)
        other.encoding = encoding
        return other

    def alike(self, pos: Tensor) -> Tensor:
        """Score tokens of equal content, q and k projected alike: (curve, query, key).

        The content is 0 where the encoding brings its own rows, and 1 where it turns or adds.
        """
        additive = "on_embeddings" in self.encoding.acts_on
        x = torch.full((len(pos), self.width), 0.0 if additive else 1.0, dtype=torch.float64)
        x = self.embed(x, pos)
        q = self.split(x if self.width == self.heads * self.dim else x @ self.to_q)
        logits = self._scores(q, q, x, x, pos, pos)
        return logits.sum(0, keepdim=True) if additive else logits


def copied(encoding: Encoding) -> Encoding:
    """Copy an encoding, so that nothing of it changes, its gradients and its mode neither."""
    try:
        return deepcopy(encoding)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"`encoding` is measured on a copy of it, and this {type(encoding).__name__} cannot be"
            " copied: keep only parameters, buffers and constants in it, and compute the rest in"
            f" its hooks. It said: {error}"
        ) from error


def in_float64(encoding: Encoding) -> Encoding:
    """Copy an encoding: learned weights, buffers and other tensors in float64, dropout off.

    Widening a number changes nothing about it, so what is measured is the encoding as it is, with
    less rounding.
    """
    twin = copied(encoding).double().eval()
    for module in twin.modules():
        # Tensors that are neither parameters nor buffers
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                vars(module)[name] = value.double()
    return twin
