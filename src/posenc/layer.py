"""One attention layer of a transformer, with any encoding in it: project, encode, attend."""

from torch import nn

from posenc.attention import attend
from posenc.encoding import Encoding
from posenc.masks import Mask
from posenc.paths import Implementation
from posenc.positions import sequence
from posenc.shapes import Embeddings, Points, Positions, Seen


class SelfAttention(nn.Module):
    """`SelfAttention(512, heads=8, encoding=RoPE(64))(x)`, x of shape (batch, token, 512).

    With fewer `groups` than heads, neighbouring heads share keys and values. An additive encoding
    acts on what comes in; in a stack of layers it belongs to the bottom, so give the others `NoPE`.
    """

    def __init__(self, width: int, heads: int, encoding: Encoding, groups: int | None = None):
        super().__init__()
        groups = heads if groups is None else groups
        if min(heads, groups) < 1 or width % heads or heads % groups:
            raise ValueError(
                f"`heads` must divide `width`={width}, and `groups` must divide `heads`:"
                f" got {heads} heads in {groups} groups."
            )
        dim = width // heads
        self.heads, self.groups, self.encoding = heads, groups, encoding
        self.q, self.k, self.v = (nn.Linear(width, n * dim) for n in (heads, groups, groups))
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Embeddings,
        pos: Positions | Points | None = None,
        mask: Mask | Seen | None = None,
        implementation: Implementation = "auto",
    ) -> Embeddings:
        at = self.encoding.prepare(sequence(x.shape[-2], 0, x.device) if pos is None else pos)
        x = self.encoding.on_embeddings(x, at)
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (to(x).unflatten(-1, (self.groups, -1)).transpose(1, 2) for to in (self.k, self.v))
        made = attend(q, k, v, self.encoding, at, mask=mask, implementation=implementation)
        return self.out(made.transpose(1, 2).flatten(2))
