"""Compute attention scores before mask and softmax, to measure properties of encodings."""

from jaxtyping import Float
from torch import Tensor

from posenc.attention.attend import apply_qkv_hooks
from posenc.attention.dispatch import add_bias
from posenc.attention.inputs import resolve_softmax
from posenc.attention.reference import logits
from posenc.core.biases import pairs, per_query_head
from posenc.core.check_positions import checked_at
from posenc.core.encoding import Encoding, placed
from posenc.core.hooks import hidden
from posenc.core.masks import Mask
from posenc.core.shapes import Heads, KeyPositions, Keys, Points, Positions, Scores, Seen


def scores(
    encoding: Encoding,
    q: Heads,
    k: Keys,
    q_pos: Positions | Points,
    k_pos: KeyPositions | Points,
    scale: float | None = None,
    *,
    x: Float[Tensor, "batch token width"] | None = None,
    k_x: Float[Tensor, "batch key width"] | None = None,
    mask: Mask | Seen | None = None,
) -> Scores:
    """Return the scores of all query-key pairs at given positions, (batch, head, query, key).

    - `encoding`: encoding to apply
    - `q`, `k`: queries and keys before the encoding
    - `q_pos`, `k_pos`: positions
    - `scale`: factor of q · k; None: the scale of the encoding
    - `x`, `k_x`: inputs of the layer for queries and keys, if the encoding overrides `on_hidden`;
      `k_x` None: the same as `x`
    - `mask`: argument of biases that depend on the visible keys; scores are not masked
    """
    at, k_at = encoding.prepare(q_pos), encoding.prepare(k_pos)
    if x is not None:
        at, k_at = hidden(encoding, x, at), hidden(encoding, x if k_x is None else k_x, k_at)
    at, k_at = checked_at(encoding, at, q, "`q_pos`"), checked_at(encoding, k_at, k, "`k_pos`")
    parts = placed(encoding, at, k_at)
    call = resolve_softmax(encoding, parts, q, k, k, scale=scale, implementation="reference")
    call = add_bias(apply_qkv_hooks(call))
    seen = None if mask is None else mask(*pairs(call.shape, device=q.device))
    return logits(call._replace(k=per_query_head(call.k, q)), slice(None), seen=seen)
