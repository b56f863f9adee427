"""Type aliases of tensor shapes; axes with equal names have equal sizes within a call."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

Positions = Num[Tensor, "*#batch token"]  # a position is a number: an index, a time, a coordinate
KeyPositions = Num[Tensor, "*#texts key"]
Points = Num[Tensor, "*#batch token axis"]  # or a point, for encodings with more than one axis
KeyPoints = Num[Tensor, "*#texts key axis"]
HeadPositions = Num[Tensor, "#texts head token"] | Num[Tensor, "#texts head token axis"]
Embeddings = Float[Tensor, "*batch token channel"]
Heads = Float[Tensor, "batch head token channel"]  # queries; or keys, where they come alone
# Queries or keys to which an encoding may have added channels
Wider = Float[Tensor, "batch head token more"]
PerHead = Float[Tensor, "batch query_head token more"]  # keys that differ between query heads
Keys = Float[Tensor, "batch key_head key channel"]
Values = Float[Tensor, "batch key_head key value"]
Sinks = Float[Tensor, "head"]  # one extra logit per head, without a value
Scores = Float[Tensor, "batch head query key"]  # logits
Frequencies = Float[Tensor, "pair"] | Float[Tensor, "axis pair"]  # radians per unit of position
Index = Int[Tensor, "*#index"]

# The bias of one query-key pair, in logits: (batch, head, query, key) indices -> value. It
# is written for one pair and broadcast, in dense attention, in blocks, and in fused kernels.
PairBias = Callable[[Index, Index, Index, Index], Tensor]


@runtime_checkable
class BlockBias(Protocol):
    """Type of a bias object that computes blocks of queries and keys, instead of single pairs."""

    def block(self, rows: slice, keys: slice, seen: Tensor | None) -> Tensor:
        """Return the bias between some queries (the slice `rows`) and some keys (`keys`).

        It broadcasts to (batch, head, query, key).

        `seen` is the bool mask of these pairs and broadcasts to the same shape; None: each of the
        queries sees each of the keys.
        """
        ...


Bias = PairBias | BlockBias | Tensor
# (batch, head, query, key) indices -> True if the query sees the key
Seen = Callable[[Index, Index, Index, Index], Bool[Tensor, "*#index"]]
