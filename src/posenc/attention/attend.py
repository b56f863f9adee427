"""The function `attend`, which shows where each hook of an encoding is applied.

    weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
    out = on_output( weights · on_values(v) + by_weight(weights) )
    where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))

`inputs.py` checks the arguments, `core/hooks.py` applies the hooks, and `dispatch.py` lists the
implementations of the rest: the definition, and faster ones that equal it.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from posenc.attention.call import Call, Implementation
from posenc.attention.dispatch import Explanation, chosen, run
from posenc.attention.inputs import validate
from posenc.attention.masked_inputs import zero_fully_masked
from posenc.compat.private_torch import not_compiled_before_2_13
from posenc.core.encoding import Encoding
from posenc.core.hooks import applied, queries_and_keys
from posenc.core.masks import Mask
from posenc.core.shapes import Heads, Keys, Seen, Sinks, Values
from posenc.support.foreign_arguments import ATTENTION, reject_foreign_names


@not_compiled_before_2_13
@reject_foreign_names(ATTENTION)
def attend(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any = None,
    k_at: Any = None,
    mask: Mask | Seen | None = None,
    scale: float | None = None,
    implementation: Implementation = "auto",
    *,
    dropout: float = 0.0,
    softcap: float | None = None,
    sinks: Sinks | None = None,
) -> Float[Tensor, "batch head token value"]:
    """Compute attention of the queries `q` to `k` and `v`, with the encoding's hooks applied.

    - `q`: queries, (batch, head, token, channel)
    - `k`: keys, (batch, key head, key, channel); query heads may share keys
    - `v`: values, (batch, key head, key, value)
    - `encoding`: an `Encoding`, for instance `RoPE(64)`
    - `at`: positions of the queries, (token,), (batch, token) or (batch, head, token), or the
      result of `encoding.prepare`, computed once for all layers; None: 0, 1, 2, …
    - `k_at`: positions of the keys, if they differ, as with a cache or another text; None: `at`
    - `mask`: a mask of `posenc.masks`, or a function (b, h, i, j) -> bool; None: every query sees
      all keys
    - `scale`: factor of q · k; None: the scale of the encoding, usually 1/√channels
    - `implementation`: "auto" chooses the fastest path for the encoding, mask, positions, gradients
      and device; `explain` names it. "reference", "sdpa", "toeplitz", "blocks" and "flex" force one
    - `dropout`: probability of setting a weight to 0; the others are divided by 1 − dropout. Pass
      it in training only
    - `softcap`: c; scores s = q · k · scale become c · tanh(s / c), before biases and mask, as in
      Gemma 2 and in transformers; None: no cap
    - `sinks`: one logit per head of q, which is part of the softmax but has no value, as in
      gpt-oss; None: no sinks

    Returns (batch, head, token, value). The result depends on the arguments alone, because no state
    is stored between calls.

    An encoding that acts on embeddings (`Sinusoidal`, `Learned`) must be applied before q, k and v
    are projected: call `encoding.on_embeddings(x, at)` and pass the same `at`, or use
    `SelfAttention`. For an encoding that reads the input of the layer, pass
    `at = encoding.on_hidden(x, encoding.prepare(pos))`, or use `SelfAttention`.

    Raises ValueError for shapes or positions that do not fit, and for an implementation that cannot
    compute the call; "auto" always finds one that can.

    >>> import torch
    >>> from posenc import RoPE, masks
    >>> q, k, v = torch.randn(3, 1, 2, 5, 8)
    >>> attend(q, k, v, RoPE(8), mask=masks.causal()).shape
    torch.Size([1, 2, 5, 8])
    """
    call = validate(
        q, k, v, encoding, at, k_at, mask, scale, dropout, softcap, sinks, implementation
    )
    call = apply_qkv_hooks(call)
    out = run(call)
    return applied("on_output", call.parts, out) if "on_output" in call.acts_on else out


@reject_foreign_names(ATTENTION)
def explain(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any = None,
    k_at: Any = None,
    mask: Mask | Seen | None = None,
    scale: float | None = None,
    *,
    dropout: float = 0.0,
    softcap: float | None = None,
    sinks: Sinks | None = None,
) -> Explanation:
    """Return the implementation that `attend` chooses for the same arguments, and the reason.

    - `q`: queries, (batch, head, token, channel)
    - `k`: keys, (batch, key head, key, channel)
    - `v`: values, (batch, key head, key, value)
    - `encoding`: an `Encoding`, for instance `RoPE(64)`
    - `at`: positions of the queries, or the result of `encoding.prepare`; None: 0, 1, 2, …
    - `k_at`: positions of the keys, or the result of `encoding.prepare`; None: `at`
    - `mask`: a mask of `posenc.masks`, or a function (b, h, i, j) -> bool; None: every query sees
      all keys
    - `scale`: factor of q · k; None: the scale of the encoding
    - `dropout`: probability of setting a weight to 0
    - `softcap`: c of c · tanh(s / c); None: no cap
    - `sinks`: one logit per head of q; None: no sinks

    Raises the same errors as `attend`.

    >>> import torch
    >>> from posenc import RoPE
    >>> q = torch.randn(1, 2, 5, 8)
    >>> print(explain(q, q, q, RoPE(8)))
    sdpa: RoPE adds nothing to scores or values, so torch's kernel can be used.
    """
    call = validate(q, k, v, encoding, at, k_at, mask, scale, dropout, softcap, sinks)
    return chosen(apply_qkv_hooks(call))


def apply_qkv_hooks(call: Call) -> Call:
    """Zero fully masked keys and values, then apply the hooks of queries, keys and values."""
    if call.hides:
        call = zero_fully_masked(call)
    acts_on = call.acts_on
    if "on_queries" in acts_on or "on_keys" in acts_on:
        q, k = queries_and_keys(call.parts, call.q, call.k)
        call = call._replace(q=q, k=k)
    if "on_values" in acts_on:
        call = call._replace(v=applied("on_values", call.parts, call.v, call.q.shape[1]))
    return call
