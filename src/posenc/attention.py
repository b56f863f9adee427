"""Attention, written once, to show where each hook lands. This is the map of the library.

    out = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) ) · v + on_values(weights)
    where q, k, v are projections of on_embeddings(x)

`paths.py` holds the ways to compute it: the definition, and faster ones that equal it.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from posenc.call import Call, per_query_head
from posenc.encoding import Encoding
from posenc.masks import Mask
from posenc.paths import Explanation, Implementation, chosen, hidden, logits, run, viewable
from posenc.positions import sequence
from posenc.shapes import Heads, KeyPositions, Keys, Points, Positions, Scores, Seen, Values
from posenc.sum import Sum, leaves


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
) -> Float[Tensor, "batch head token value"]:
    """Attention of `q` to `k` and `v`, positions and all; k and v may have fewer heads than q.

    `at` is what `encoding.prepare` made of the positions, once for all layers; None: 0, 1, 2, …
    `k_at` is given where the keys stand elsewhere: in a cache, or in another text.
    `mask` comes from `posenc.masks`. `scale` None: the encoding's own, usually 1/√channels.

    What acts on embeddings (`Sinusoidal`, `Learned`) does so before q, k and v are projected: call
    `encoding.on_embeddings(x, at)`, or use `SelfAttention`.

    "auto" takes the fastest path that encoding, mask, positions, gradients and device allow;
    `explain` says which, and why.

    Raises ValueError for shapes or positions that do not fit, and where an implementation is asked
    for what it cannot do; "auto" picks one that can.
    """
    call = _call(q, k, v, encoding, at, k_at, mask, scale, implementation)
    return run(call, implementation)


def explain(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any = None,
    k_at: Any = None,
    mask: Mask | Seen | None = None,
    scale: float | None = None,
) -> Explanation:
    """The path that `attend`, with the same arguments, takes by itself, and why.

    >>> import torch
    >>> from posenc import RoPE
    >>> q = torch.randn(1, 2, 5, 8)
    >>> print(explain(q, q, q, RoPE(8)))
    sdpa: RoPE adds nothing to scores or values, as torch wants it.
    """
    return chosen(_call(q, k, v, encoding, at, k_at, mask, scale, "auto"))


def _call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding,
    at: Any,
    k_at: Any,
    mask: Mask | Seen | None,
    scale: float | None,
    implementation: Implementation,
) -> Call:
    """What the hooks make of it."""
    _fits(encoding, q, k, v, mask)
    if at is None:
        if k.shape[-2] != q.shape[-2]:
            raise ValueError(
                f"{q.shape[-2]} queries and {k.shape[-2]} keys: where do they stand? Pass `at` and"
                " `k_at`, made by `encoding.prepare`."
            )
        at = encoding.prepare(sequence(q.shape[-2], 0, q.device))
    k_at = at if k_at is None else k_at
    _stand(encoding, at, q, "`at`")
    _stand(encoding, k_at, k, "`k_at`")
    scale = encoding.scale(q.shape[-1]) if scale is None else scale
    k, v = hidden(q, k, v, mask)
    if implementation in ("auto", "view"):
        short = encoding.by_vector(q, at, k_at)
        if short is not None:
            call = Call(encoding, short[0], k, v, at, k_at, scale, short[1], mask)
            if not isinstance(viewable(call), str):
                return call
    q, k = encoding.on_queries(q, at), encoding.on_keys(k, k_at)
    v = v if k.shape[1] == v.shape[1] else per_query_head(v, q)  # keys may differ by query head now
    bias = encoding.on_scores(q, per_query_head(k, q), at, k_at, scale)
    return Call(encoding, q, k, v, at, k_at, scale, bias, mask)


def scores(
    encoding: Encoding,
    q: Heads,
    k: Keys,
    q_pos: Positions | Points,
    k_pos: KeyPositions | Points,
    scale: float | None = None,
) -> Scores:
    """Logits from bare positions: what properties measure."""
    at, k_at = encoding.prepare(q_pos), encoding.prepare(k_pos)
    _stand(encoding, at, q, "`q_pos`")
    _stand(encoding, k_at, k, "`k_pos`")
    scale = encoding.scale(q.shape[-1]) if scale is None else scale
    q, k = encoding.on_queries(q, at), per_query_head(encoding.on_keys(k, k_at), q)
    bias = encoding.on_scores(q, k, at, k_at, scale)
    return logits(Call(encoding, q, k, k, at, k_at, scale, bias), slice(None))


def _fits(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Seen | None) -> None:
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"attention takes (batch, head, token, channel), got {_shapes(q, k, v)}.")
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            "q and k must agree in batch and channels, k and v in batch, heads and tokens:"
            f" got {_shapes(q, k, v)}."
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the heads of q must be a multiple of those of k: {_shapes(q, k, v)}.")
    for leaf in leaves(encoding):
        name = type(leaf).__name__
        if leaf.heads and leaf.heads != q.shape[1]:
            raise ValueError(f"this {name} was made for {leaf.heads} heads: {_shapes(q, k, v)}.")
        if leaf.dim and leaf.dim != q.shape[-1]:
            raise ValueError(
                f"this {name} is for heads of {leaf.dim} channels, `q` has {q.shape[-1]}: make it"
                " with `dim` as many as a head has."
            )
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must be of one dtype: {q.dtype}, {k.dtype}, {v.dtype}.")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device: {q.device}, {k.device}, {v.device}.")
    if isinstance(mask, Tensor):
        raise TypeError(
            "`mask` is a function of indices, as `posenc.masks` makes them, got a tensor: pass"
            " `lambda b, h, i, j: tensor[b, h, i, j]`."
        )
    if isinstance(mask, Mask):
        mask.check(q.shape[0], q.shape[-2], k.shape[-2])


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"


def _stand(encoding: Encoding, at: Any, x: Heads, name: str) -> None:
    """Bare positions are looked up by token: too many would silently be the wrong ones."""
    if isinstance(encoding, Sum):
        for part, part_at in zip(encoding, at, strict=True):
            _stand(part, part_at, x, name)
    elif type(encoding).prepare is Encoding.prepare and isinstance(at, Tensor):
        if at.device != x.device:
            raise ValueError(
                f"`x` is on {x.device}, the positions are on {at.device}: move them to one device."
            )
        given = at.shape[: at.ndim - (encoding.axes > 1)]
        if given[-1] != x.shape[-2]:
            what = f"{name} has {given[-1]} positions for {x.shape[-2]} tokens"
            raise ValueError(f"{what}: where the keys stand elsewhere, pass both `at` and `k_at`.")
        if given[:-1] not in ((), (1,), x.shape[:1]):
            raise ValueError(f"{name} is for a batch of {given[0]}, q, k and v for {x.shape[0]}.")
