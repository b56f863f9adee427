"""Attention, written once, to show where each hook lands. This is the map of the library.

    weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
    out = on_output( weights · on_values(v) + by_weight(weights) )
    where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))

`inputs.py` checks what comes in, `core/hooks.py` applies the hooks, `dispatch.py` lists the ways to
compute the rest: the definition, and faster ones that equal it.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from posenc.attention.call import Call, Implementation
from posenc.attention.dispatch import Explanation, chosen, run
from posenc.attention.inputs import checked
from posenc.attention.unseen import visible
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
    """Attend from `q` to `k` and `v`, with the encoding's hooks applied.

    - `q`: queries, (batch, head, token, channel)
    - `k`: keys, (batch, key head, key, channel); heads may share keys
    - `v`: values, (batch, key head, key, value)
    - `encoding`: an `Encoding`, `RoPE(64)` for instance
    - `at`: positions of the queries, (token,), (batch, token) or (batch, head, token), or what
      `encoding.prepare` made of them, once for all layers; None: 0, 1, 2, …
    - `k_at`: the same of the keys, if they stand elsewhere: in a cache or another text; None: `at`
    - `mask`: a mask of `posenc.masks`, or a function (b, h, i, j) -> bool; None: every query sees
      all
    - `scale`: factor of q · k; None: the encoding's own, usually 1/√channels
    - `implementation`: "auto" takes the fastest path that encoding, mask, positions, gradients and
      device allow; `explain` names it. "reference", "sdpa", "toeplitz", "blocks" and "flex" force
      one
    - `dropout`: probability with which a weight is 0; the others grow by 1 / (1 − dropout). Pass it
      in training only
    - `softcap`: c, which makes c · tanh(s / c) of s = q · k · scale, before biases and mask, as in
      Gemma 2; None: no cap. transformers' eager attention and its FlexAttention cap first too
    - `sinks`: one logit for each head of q, which takes its share of the softmax and adds nothing
      to the output, as in gpt-oss; None: no sinks

    Returns (batch, head, token, value). The result depends on the arguments alone: nothing is kept
    from one call to the next.

    An encoding that acts on embeddings (`Sinusoidal`, `Learned`) does so before q, k and v are
    projected: call `encoding.on_embeddings(x, at)` and pass that `at`, or use `SelfAttention`;
    otherwise it is refused. One that reads the input of the layer (`on_hidden`) gets it by
    `at = encoding.on_hidden(x, encoding.prepare(pos))`, or by `SelfAttention`.

    Raises ValueError for shapes or positions that do not fit, and for an implementation that cannot
    compute the call; "auto" picks one that can.

    >>> import torch
    >>> from posenc import RoPE, masks
    >>> q, k, v = torch.randn(3, 1, 2, 5, 8)
    >>> attend(q, k, v, RoPE(8), mask=masks.causal()).shape
    torch.Size([1, 2, 5, 8])
    """
    call = checked(
        q, k, v, encoding, at, k_at, mask, scale, dropout=dropout, softcap=softcap, sinks=sinks,
        implementation=implementation,
    )  # fmt: skip
    call = encoded(call)
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
    """Return the path that `attend` takes with the same arguments, and the reason.

    - `q`: queries, (batch, head, token, channel)
    - `k`: keys, (batch, key head, key, channel)
    - `v`: values, (batch, key head, key, value)
    - `encoding`: an `Encoding`, `RoPE(64)` for instance
    - `at`: positions of the queries, or what `encoding.prepare` made of them; None: 0, 1, 2, …
    - `k_at`: the same of the keys; None: `at`
    - `mask`: a mask of `posenc.masks`, or a function (b, h, i, j) -> bool; None: every query sees
      all
    - `scale`: factor of q · k; None: the encoding's own
    - `dropout`: probability with which a weight is 0
    - `softcap`: c of c · tanh(s / c); None: no cap
    - `sinks`: one logit for each head of q; None: no sinks

    Raises what `attend` raises for arguments that do not fit.

    >>> import torch
    >>> from posenc import RoPE
    >>> q = torch.randn(1, 2, 5, 8)
    >>> print(explain(q, q, q, RoPE(8)))
    sdpa: RoPE adds nothing to scores or values, as torch wants it.
    """
    call = checked(
        q, k, v, encoding, at, k_at, mask, scale, dropout=dropout, softcap=softcap, sinks=sinks
    )
    return chosen(encoded(call))


def encoded(call: Call) -> Call:
    """Apply the hooks of queries, keys and values, to nothing that the mask hides from all."""
    if call.hides:
        call = visible(call)
    acts_on = call.acts_on
    if "on_queries" in acts_on or "on_keys" in acts_on:
        q, k = queries_and_keys(call.parts, call.q, call.k)
        call = call._replace(q=q, k=k)
    if "on_values" in acts_on:
        call = call._replace(v=applied("on_values", call.parts, call.v, call.q.shape[1]))
    return call
