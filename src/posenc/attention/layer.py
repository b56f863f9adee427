"""The self-attention layer of a transformer, with any encoding."""

import warnings
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from posenc.attention.attend import attend
from posenc.attention.cache import Cache, attend_cached, positions
from posenc.attention.call import Implementation
from posenc.core.check_positions import check_sizes
from posenc.core.encoding import Encoding, placed
from posenc.core.hooks import applied, hidden
from posenc.core.masks import Mask
from posenc.core.shapes import Embeddings, HeadPositions, Points, Positions, Seen
from posenc.support import names
from posenc.support.arguments import (
    brief,
    channels,
    embeddings,
    positive,
    probability,
    room,
    switch,
    whole_number,
)
from posenc.support.foreign_arguments import LAYER, LAYER_CALL, reject_foreign_names


class SelfAttention(nn.Module):
    """Self-attention with any encoding: `SelfAttention(512, heads=8, encoding=RoPE(64))(x)`.

    - `width`: channels of the embeddings
    - `heads`: query heads, a divisor of `width`
    - `encoding`: an `Encoding`, or a name such as "rope" for `posenc.create` with these sizes
    - `groups`: heads of keys and values, a divisor of `heads`; neighbouring query heads share one.
      None: as many as `heads`
    - `dropout`: probability of setting a weight to 0 in training, 0 by default
    - `softcap`: c; a score s becomes c · tanh(s / c), as in `attend`; None: no cap
    - `sinks`: True gives each head a learned logit, initially 0, that is part of the softmax

    An additive encoding is added to x in every layer that has it. Usually only the first layer of a
    stack has it, and the others have `NoPE()`. A second layer with the same instance warns.

    Raises ValueError for sizes that do not divide each other or do not fit the encoding.

    >>> import torch
    >>> layer = SelfAttention(64, heads=4, encoding="rope")
    >>> layer(torch.randn(2, 5, 64)).shape
    torch.Size([2, 5, 64])
    """

    @reject_foreign_names(LAYER)
    def __init__(
        self,
        width: int,
        heads: int,
        encoding: Encoding | str,
        groups: int | None = None,
        dropout: float = 0.0,
        softcap: float | None = None,
        sinks: bool = False,
    ):
        super().__init__()
        if not isinstance(encoding, Encoding | str):
            raise TypeError(
                f"`encoding` must be an encoding, `RoPE(64)` for instance, or the name of one, got"
                f" {brief(encoding)}."
            )
        width, heads = channels(width, "width"), whole_number(heads, "heads")
        groups = heads if groups is None else whole_number(groups, "groups")
        if min(heads, groups) < 1 or width % heads or heads % groups:
            raise ValueError(
                f"`heads` must divide `width`={width}, and `groups` must divide `heads`, got"
                f" {heads} heads in {groups} groups."
            )
        dim = width // heads
        if isinstance(encoding, str):
            made: Encoding = names.catalog().create(encoding, dim, heads)
            encoding = made
        check_sizes(encoding, heads, dim, width)
        room("a projection", width, width)
        if "on_embeddings" in encoding.acts_on:
            _once(self, encoding)
        self.width, self.heads, self.groups, self.encoding = width, heads, groups, encoding
        self.q, self.k, self.v = (nn.Linear(width, n * dim) for n in (heads, groups, groups))
        self.out = nn.Linear(width, width)
        self.dropout = probability(dropout, "dropout")
        self.softcap = None if softcap is None else positive(softcap, "softcap")
        self.sinks = nn.Parameter(torch.zeros(heads)) if switch(sinks, "sinks") else None

    @reject_foreign_names(LAYER_CALL)
    def forward(
        self,
        x: Embeddings,
        pos: Positions | Points | HeadPositions | None = None,
        mask: Mask | Seen | None = None,
        implementation: Implementation = "auto",
        cache: Cache | None = None,
    ) -> Embeddings:
        """Apply the layer to embeddings, and return new ones of the same shape.

        - `x`: embeddings, (batch, token, width)
        - `pos`: positions, (token,), (batch, token) or (batch, head, token); None: 0, 1, 2, …, or
          those that follow the last token of the `cache`
        - `mask`: a mask of `posenc.masks`, or a function (b, h, i, j) -> bool; with a `cache`, the
          mask of the whole text so far: `masks.causal()`, or `masks.documents(ids)` of all tokens
        - `implementation`: the path of `attend`, "auto" by default
        - `cache`: a `Cache`, to which the tokens of x are added; None: x is the whole text

        Raises ValueError for embeddings, positions or a mask that do not fit.
        """
        embeddings(x, self.width, self.q)
        at = self.prepare(x, pos, cache)
        x = applied("on_embeddings", placed(self.encoding, at, at), x)
        return self.attended(x, at, mask, implementation, cache)

    def prepare(self, x: Embeddings, pos: Any = None, cache: Cache | None = None) -> Any:
        """Prepare the positions of x; the result is the argument `at` of the encoding's hooks.

        - `x`: embeddings, (batch, token, width)
        - `pos`: positions; None: 0, 1, 2, …, or those that follow the last token of the `cache`
        - `cache`: a `Cache`, or None
        """
        if cache is not None and not isinstance(cache, Cache):
            raise TypeError(
                f"`cache` must be a `posenc.Cache`, got {brief(cache)}. Pass `Cache()`."
            )

        return self.encoding.prepare(positions(cache, self, x, pos, self.encoding.axes))

    def project(self, x: Embeddings, at: Any) -> tuple[Tensor, Tensor, Tensor, Any]:
        """Project x to q, k and v, (batch, head, token, channel), and apply `on_hidden`.

        - `x`: embeddings after `on_embeddings`, (batch, token, width)
        - `at`: result of `prepare`

        Returns q, k, v and the `at` of this layer.
        """
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (to(x).unflatten(-1, (self.groups, -1)).transpose(1, 2) for to in (self.k, self.v))
        return q, k, v, hidden(self.encoding, x, at)

    def attended(
        self,
        x: Embeddings,
        at: Any,
        mask: Mask | Seen | None = None,
        implementation: Implementation = "auto",
        cache: Cache | None = None,
    ) -> Embeddings:
        """Apply the layer to embeddings that are already encoded by `on_embeddings`.

        - `x`: embeddings, (batch, token, width)
        - `at`: result of `prepare`
        - `mask`: a mask of `posenc.masks`, or a function (b, h, i, j) -> bool; None: no mask
        - `implementation`: the path of `attend`, "auto" by default
        - `cache`: a `Cache`, to which the tokens of x are added, or None
        """
        q, k, v, at = self.project(x, at)
        attention: Any = attend if cache is None else partial(attend_cached, self, cache)
        out = attention(
            q, k, v, self.encoding, at, mask=mask, implementation=implementation,
            dropout=self.dropout if self.training else 0.0, softcap=self.softcap, sinks=self.sinks,
        )  # fmt: skip
        return self.out(out.transpose(1, 2).flatten(2))


_ADDED_BY: "WeakKeyDictionary[Encoding, ref[SelfAttention]]" = WeakKeyDictionary()


def _once(layer: SelfAttention, encoding: Encoding) -> None:
    before = _ADDED_BY.get(encoding)
    if before is not None and before() is not None:
        warnings.warn(
            f"two layers share one {type(encoding).__name__} object, which would be added to the"
            " embeddings twice. Pass `NoPE()` to the later layers, or, to add positions in each"
            " layer, pass a separate object to each layer.",
            stacklevel=3,
        )
    _ADDED_BY[encoding] = ref(layer)
