"""The shapes of the library, named once. Axes of one name agree within a call."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

Positions = Num[Tensor, "*#batch token"]  # a position is a number: an index, a time, a coordinate
KeyPositions = Num[Tensor, "*#texts key"]
Points = Num[Tensor, "*#batch token axis"]  # or a point, for encodings with more than one axis
HeadPositions = Num[Tensor, "#texts head token"] | Num[Tensor, "#texts head token axis"]
Embeddings = Float[Tensor, "*batch token channel"]
Heads = Float[Tensor, "batch head token channel"]  # queries; or keys, where they come alone
# Queries or keys with channels that an encoding has added
Wider = Float[Tensor, "batch head token more"]
PerHead = Float[Tensor, "batch query_head token more"]  # keys, where heads turn by their own
Keys = Float[Tensor, "batch key_head key channel"]
Values = Float[Tensor, "batch key_head key value"]
Sinks = Float[Tensor, "head"]  # a logit of each head that has no value
Scores = Float[Tensor, "batch head query key"]  # logits
Frequencies = Float[Tensor, "pair"] | Float[Tensor, "axis pair"]  # radians per unit of position
Index = Int[Tensor, "*#index"]

# The bias of one query-key pair, in logits: (batch, head, query, key) indices -> value. Written for
# one pair and broadcast over all, it serves dense attention, blocks of it, and fused kernels alike.
PairBias = Callable[[Index, Index, Index, Index], Tensor]


@runtime_checkable
class BlockBias(Protocol):
    """A bias that goes by all that a query sees, or that is faster for many pairs at once."""

    def block(self, rows: slice, keys: slice, seen: Tensor | None) -> Tensor:
        """The bias of some queries and keys; it broadcasts to (batch, head, query, key).

        `seen` is the mask of these pairs, bool, in a shape that broadcasts to the same; None: each
        of the queries sees each of the keys.
        """
        ...


Bias = PairBias | BlockBias | Tensor
Seen = Callable[[Index, Index, Index, Index], Bool[Tensor, "*#index"]]  # does the query see the key
