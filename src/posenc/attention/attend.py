"""Attention, written once, to show where each hook lands. This is the map of the library.

    weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
    out = on_output( weights · on_values(v) + by_weight(weights) )
    where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))

`inputs.py` checks what comes in, `hooks.py` applies the hooks, `dispatch.py` lists the ways to
compute the rest: the definition, and faster ones that equal it.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from posenc.attention import hooks
from posenc.attention.call import Call, Implementation
from posenc.attention.dispatch import Explanation, chosen, run
from posenc.attention.inputs import checked
from posenc.attention.unseen import visible
from posenc.core.elsewhere import WEIGHED, answering
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.private import left_out
from posenc.core.shapes import Heads, Keys, Seen, Sinks, Values


@left_out
@answering(WEIGHED)
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
    """Attention of `q` to `k` and `v`, positions and all; k and v may have fewer heads than q.

    `at` is what `encoding.prepare` made of the positions, once for all layers, or the positions
    themselves, (token,), (batch, token), or (batch, head, token) where heads stand elsewhere;
    None: 0, 1, 2, …
    `k_at` is given where the keys stand elsewhere: in a cache, or in another text.
    `mask` comes from `posenc.masks`. `scale` None: the encoding's own, usually 1/√channels.

    What acts on embeddings (`Sinusoidal`, `Learned`) does so before q, k and v are projected: call
    `encoding.on_embeddings(x, at)` and give that `at`, or use `SelfAttention`. Without, it is
    refused, for it would do nothing. What reads the input of the layer (`on_hidden`) is given it
    with `at = encoding.on_hidden(x, encoding.prepare(pos))`, or by `SelfAttention`.

    `softcap` c makes c · tanh(s / c) of s = q · k · scale, before biases and mask, as Gemma 2 does;
    transformers' eager attention and its FlexAttention cap first and add then, too.
    `sinks`, one logit for each head of q, take their share of the softmax and give nothing for it,
    as in gpt-oss. `dropout` is the probability with which a weight is 0, the others growing by
    1 / (1 − dropout); it is for training, which attention cannot know of: the caller says so.

    "auto" takes the fastest path that encoding, mask, positions, gradients and device allow;
    `explain` says which, and why. What is returned depends on the arguments alone: nothing is kept
    from one call to the next.

    Raises ValueError for shapes or positions that do not fit, and where an implementation is asked
    for what it cannot do; "auto" picks one that can.
    """
    call = Call(
        encoding, q, k, v, at, k_at, scale, mask=mask, dropout=dropout, softcap=softcap,
        sinks=sinks, implementation=implementation,
    )  # fmt: skip
    call = _encoded(checked(call))
    return hooks.finished(call, run(call))


@answering(WEIGHED)
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
    """The path that `attend`, with the same arguments, takes by itself, and why.

    >>> import torch
    >>> from posenc import RoPE
    >>> q = torch.randn(1, 2, 5, 8)
    >>> print(explain(q, q, q, RoPE(8)))
    sdpa: RoPE adds nothing to scores or values, as torch wants it.
    """
    call = Call(
        encoding, q, k, v, at, k_at, scale, mask=mask, dropout=dropout, softcap=softcap,
        sinks=sinks,
    )  # fmt: skip
    return chosen(_encoded(checked(call)))


def _encoded(call: Call) -> Call:
    """Apply the hooks of queries, keys and values, to nothing that the mask hides from all."""
    return hooks.encoded(visible(call))
