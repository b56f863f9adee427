"""One block of a transformer, normalised before each part.

x + attention(norm(x)),  then x + mlp(norm(x))
"""

from typing import Any

from torch import nn

from posenc.attention.cache import Cache
from posenc.attention.call import Implementation
from posenc.attention.hooks import embedded
from posenc.attention.layer import SelfAttention
from posenc.core.arguments import count, embeddings, room, switch
from posenc.core.elsewhere import CALLED, CONFIGURED, answering
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask, causal
from posenc.core.shapes import Embeddings, HeadPositions, Points, Positions, Seen


class Block(nn.Module):
    """`Block(512, heads=8, encoding=RoPE(64))(x)`; with `causal`, no token sees what follows it.

    What acts on embeddings is added to x itself, as at the bottom of GPT-2, not to what is
    normalised: give it to the first block, and `NoPE()` to the others. `mlp` is how many times
    wider than x its hidden layer is.

    `softcap` and `sinks` are those of `SelfAttention`. `dropout` falls on the weights, as there,
    and on what attention and the MLP add to x, as in GPT-2 and in Vaswani et al. 2017, §5.4.
    """

    @answering(CONFIGURED)
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

    @answering(CALLED)
    def forward(
        self,
        x: Embeddings,
        pos: Positions | Points | HeadPositions | None = None,
        mask: Mask | Seen | None = None,
        implementation: Implementation = "auto",
        cache: Cache | None = None,
    ) -> Embeddings:
        """Take what `SelfAttention` takes; a causal block joins its mask with `mask`."""
        embeddings(x, self.attention.width, self.attention.q)
        at: Any = self.attention.prepare(x, pos, cache)
        x = embedded(self.attention.encoding, x, at)
        if self.causal:
            mask = causal() if mask is None else causal() & mask
        read = self.before_attention(x)
        x = x + self.dropout(self.attention.attended(read, at, mask, implementation, cache))
        return x + self.dropout(self.mlp(self.before_mlp(x)))
