"""A transformer block: attention and an MLP, each preceded by normalisation.

x + attention(norm(x)),  then x + mlp(norm(x))
"""

from typing import Any

from torch import nn

from posenc.attention.cache import Cache
from posenc.attention.call import Implementation
from posenc.attention.layer import SelfAttention
from posenc.core.encoding import Encoding, placed
from posenc.core.hooks import applied
from posenc.core.masks import Mask, causal
from posenc.core.shapes import Embeddings, HeadPositions, Points, Positions, Seen
from posenc.support.arguments import count, embeddings, room, switch
from posenc.support.foreign_arguments import LAYER, LAYER_CALL, reject_foreign_names


class Block(nn.Module):
    """Transformer block with attention and an MLP: `Block(512, heads=8, encoding=RoPE(64))(x)`.

    - `width`: channels of the embeddings
    - `heads`: query heads, a divisor of `width`
    - `encoding`: an `Encoding`, or a name such as "rope"
    - `groups`: heads of keys and values, a divisor of `heads`; None: as many as `heads`
    - `mlp`: hidden channels of the MLP, as a multiple of `width`; 4 by default
    - `causal`: True hides later tokens
    - `dropout`: probability in training, for weights, and for the outputs of attention and MLP, as
      in GPT-2 and in Vaswani et al. 2017, §5.4
    - `softcap`: c; a score s becomes c · tanh(s / c), as in `attend`; None: no cap
    - `sinks`: True gives each head a learned logit that is part of the softmax

    An encoding that acts on embeddings is added to x itself, as in GPT-2, not to the normalised x.
    Pass it to the first block, and `NoPE()` to the others.

    Raises ValueError for sizes that do not divide each other or do not fit the encoding.

    >>> import torch
    >>> Block(64, heads=4, encoding="alibi", causal=True)(torch.randn(2, 5, 64)).shape
    torch.Size([2, 5, 64])
    """

    @reject_foreign_names(LAYER)
    def __init__(
        self,
        width: int,
        heads: int,
        encoding: Encoding | str,
        groups: int | None = None,
        mlp: int = 4,
        causal: bool = False,
        dropout: float = 0.0,
        softcap: float | None = None,
        sinks: bool = False,
    ):
        super().__init__()
        self.attention = SelfAttention(width, heads, encoding, groups, dropout, softcap, sinks)
        self.causal, hidden = switch(causal, "causal"), count(mlp, "mlp") * width
        room("the MLP", hidden, width)
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.dropout = nn.Dropout(dropout)

    @reject_foreign_names(LAYER_CALL)
    def forward(
        self,
        x: Embeddings,
        pos: Positions | Points | HeadPositions | None = None,
        mask: Mask | Seen | None = None,
        implementation: Implementation = "auto",
        cache: Cache | None = None,
    ) -> Embeddings:
        """Apply the block to embeddings, and return new ones of the same shape.

        - `x`: embeddings, (batch, token, width)
        - `pos`: positions, as in `SelfAttention`; None: 0, 1, 2, …, or those that follow the
          `cache`
        - `mask`: a mask of `posenc.masks`, or a function (b, h, i, j) -> bool; a causal block
          combines it with its own mask
        - `implementation`: the path of `attend`, "auto" by default
        - `cache`: a `Cache`, to which the tokens of x are added; None: x is the whole text
        """
        embeddings(x, self.attention.width, self.attention.q)
        at: Any = self.attention.prepare(x, pos, cache)
        x = applied("on_embeddings", placed(self.attention.encoding, at, at), x)
        if self.causal:
            mask = causal() if mask is None else causal() & mask
        read = self.before_attention(x)
        x = x + self.dropout(self.attention.attended(read, at, mask, implementation, cache))
        return x + self.dropout(self.mlp(self.before_mlp(x)))
