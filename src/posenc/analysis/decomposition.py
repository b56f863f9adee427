"""Split attention scores into parts that depend on content, on position, and on both.

    additive         (c + p) · (c′ + p′) = c·c′ + c·p′ + p·c′ + p·p′      c, p: word and position
                                          times W_q; c′, p′: times W_k
    rotary           q · k = Σ over bands of pairs, from fast to slow
    Transformer-XL   (q + u) · k + (q + v) · r = q·k + u·k + q·r + v·r
    DeBERTa          content-content, content-position, position-content
    Shaw             content-content, content-position
    biases           content-content, and the bias

All parts are multiplied by the scale, in logits, and their sum is the score. `shares` measure the
influence of each part. Softmax ignores a constant over all keys of a query, so with x̃ = x − its
mean over the visible keys

    share(part) = Σ part̃ · scorẽ / Σ scorẽ²          over all heads, queries and keys; sums to 1

A part with a negative share opposes the others. Sums of encodings can be split too.

Ke et al. 2021, "Rethinking Positional Encoding in Language Pre-training", arXiv:2006.15595, for the
four terms; Dai et al. 2019, arXiv:1901.02860, §3.3; He et al. 2021, arXiv:2006.03654, eq. 2;
Barbero et al. 2024, arXiv:2410.06205, for bands.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import pi
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from posenc.analysis.capture import Attended, capture
from posenc.attention.layer import SelfAttention
from posenc.core import hooks
from posenc.core.biases import ALL, pairs, per_query_head
from posenc.core.encoding import Encoding, placed
from posenc.core.frequencies import split
from posenc.core.masks import Mask
from posenc.core.positions import folded
from posenc.core.shapes import Embeddings, Heads, Points, Positions
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.transformer_xl import TransformerXL

CONTENT = "content-content"
FOUR_TERMS = CONTENT, "content-position", "position-content", "position-position"
MISFIT = 0.05  # largest error, as a share of the largest score; rounding to bfloat16 causes 0.01


@dataclass(frozen=True)
class Decomposition:
    """The attention scores of one text, and the named parts that add up to the scores."""

    encoding: str
    scores: list[list[list[float]]]  # (head, query, key), in logits: the sum of the parts
    parts: dict[str, list[list[list[float]]]]
    shares: dict[str, float]
    by_head: dict[str, list[float]]  # the share of each part within each head
    sizes: dict[str, float]  # standard deviation over the keys of a query, in logits


@torch.no_grad()
def decompose(
    encoding: Encoding,
    q: Heads,
    k: Tensor,
    q_pos: Positions | Points | None = None,
    k_pos: Positions | Points | None = None,
    scale: float | None = None,
    *,
    q_place: Heads | None = None,
    k_place: Tensor | None = None,
    bands: int = 4,
    bias: Float[Tensor, "1 #head query key"] | None = None,
    seen: Bool[Tensor, "*#head query key"] | None = None,
    x: Float[Tensor, "batch token width"] | None = None,
) -> Decomposition:
    """Split the scores of queries and keys into named parts, such as content and position.

    - `encoding`: encoding of q and k
    - `q`, `k`: queries and keys before the encoding, (1, head, token, channel)
    - `q_pos`, `k_pos`: positions; None: 0, 1, 2, …, and those of the queries
    - `scale`: factor of q · k; None: the scale of the encoding
    - `q_place`, `k_place`: terms of q and k that come from positions added to embeddings
    - `bands`: number of bands of rotary pairs
    - `bias`: another bias of the model
    - `seen`: mask, for `shares` and `sizes`; parts include all pairs
    - `x`: input of the layer, if the encoding overrides `on_hidden`
    """
    if len(q) != 1 or len(k) != 1:
        raise ValueError(f"`q` and `k` must have a batch of 1 text, got {len(q)} and {len(k)}.")
    if (q_place is None) != (k_place is None):
        raise ValueError("`q_place` must be passed together with `k_place`. Pass both or neither.")
    q_pos = folded(q.shape[-2], encoding.axes).to(q.device) if q_pos is None else q_pos
    at, k_at = encoding.prepare(q_pos), encoding.prepare(q_pos if k_pos is None else k_pos)
    if x is not None:
        at, k_at = hooks.hidden(encoding, x, at), hooks.hidden(encoding, x, k_at)
    scale = encoding.scale(q.shape[-1]) if scale is None else scale
    parts: dict[str, Tensor] = {}
    if q_place is not None and k_place is not None:
        products = _four_products(encoding, (q, q_place, at), (k, k_place, k_at))
    else:
        products = _products(encoding, q, k, at, k_at, bands)
    for name, value in products:
        _accumulate(parts, name, value * scale)
    leaves = placed(encoding, at, k_at)
    q, k = hooks.queries_and_keys(leaves, q, k)
    for leaf in leaves:
        for name, value in _biases(leaf, q, per_query_head(k, q), scale, seen):
            _accumulate(parts, name, value)
    if bias is not None:
        _accumulate(parts, "bias", bias)
    return _with_shares(type(encoding).__name__, parts, seen)


@torch.no_grad()
def of_layer(
    layer: SelfAttention,
    x: Embeddings,
    pos: Positions | Points | None = None,
    mask: Mask | None = None,
    bands: int = 4,
) -> Decomposition:
    """Split an attention layer's scores on `x`, (1, token, channel), into named parts."""
    encoding = layer.encoding
    pos = folded(x.shape[-2], encoding.axes).to(x.device) if pos is None else pos
    at = encoding.prepare(pos)
    embedded = hooks.applied("on_embeddings", placed(encoding, at, at), x)
    q, k, *_ = layer.project(embedded, at)
    seen = q_place = k_place = None
    if mask is not None:
        seen = mask(*pairs((1, layer.heads, x.shape[-2], x.shape[-2]), device=x.device))[0]
    if "on_embeddings" in encoding.acts_on:
        row = embedded - x
        q_place = _heads(row @ layer.q.weight.mT, layer.heads)
        k_place = _heads(row @ layer.k.weight.mT, layer.groups)
    return decompose(
        encoding, q, k, pos, q_place=q_place, k_place=k_place, bands=bands, seen=seen, x=embedded
    )


def of_attended(
    attended: Attended,
    encoding: Encoding | None = None,
    pos: Positions | Points | None = None,
    bands: int = 4,
) -> Decomposition:
    """Split the scores of a captured attention call into named parts, for one text.

    `encoding` is the rotary encoding of the model, which `posenc.models.config` reads from a
    config; None: rotated products are not split. Raises ValueError if the encoding does not
    reproduce the captured scores.
    """
    if encoding is None:
        return decompose(
            NoPE(),
            attended.q,
            attended.k,
            pos,
            scale=attended.scale,
            bias=attended.bias,
            seen=_seen_of(attended),
        )
    taken_apart = decompose(
        encoding,
        attended.q_plain,
        attended.k_plain,
        pos,
        scale=attended.scale,
        bands=bands,
        bias=attended.bias,
        seen=_seen_of(attended),
    )
    total = sum(torch.tensor(part, dtype=torch.float64) for part in taken_apart.parts.values())
    true = attended.scores()[0].double().cpu()
    off = float((total - true).abs().max())
    if off > MISFIT * float(true.abs().max()):
        raise ValueError(
            f"`encoding` must reproduce the scores of {attended.module}, got an error of {off:.2g}"
            f" for {encoding}. Create it with the model's base, layout and number of rotated"
            " channels, and pass the model's positions as `pos`."
        )
    return taken_apart


@torch.no_grad()
def of_bert(model: Any, inputs: Mapping[str, Tensor]) -> Decomposition:
    """Split the scores of BERT's first layer into content and position terms.

    The input is LayerNorm(word + position + type), which is linear in each term for a given
    standard deviation σ: γ (p − mean p) / σ is the term of the position p. The remainder, which
    includes β and the type, counts as content. Deeper layers mix words and positions and cannot be
    split. Raises TypeError for models with another structure.
    """
    try:
        norm, table = model.embeddings.LayerNorm, model.embeddings.position_embeddings
        first = model.encoder.layer[0].attention.self
    except AttributeError:
        raise TypeError(
            f"`model` must be a BertModel, RobertaModel or similar model without a task head, got"
            f" {type(model).__name__}. Pass the inner model, such as `model.bert`."
        ) from None
    sums: list[Tensor] = []
    places: list[Tensor] = []
    with ExitStack() as undo:
        for module, hook in (
            (norm, lambda module, args, out: sums.append(args[0])),
            (table, lambda module, args, out: places.append(out)),
        ):
            undo.callback(module.register_forward_hook(hook).remove)
        attended = capture(model, inputs)[0]
    row = normed(norm, sums[0], places[0])
    heads = first.num_attention_heads
    q, k = (_heads(row @ to.weight.mT, heads) for to in (first.query, first.key))
    taken_apart = decompose(
        NoPE(),
        attended.q,
        attended.k,
        scale=attended.scale,
        q_place=q,
        k_place=k,
        seen=_seen_of(attended),
    )
    return replace(taken_apart, encoding=type(model).__name__)


def normed(norm: nn.LayerNorm, x: Tensor, part: Tensor) -> Tensor:
    """Return the term of LayerNorm(x) that comes from `part`, one of the summands of x.

    The term is weight · (part − mean of part) / standard deviation of x.
    """
    spread = (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    return norm.weight * (part - part.mean(-1, keepdim=True)) / spread


def _seen_of(attended: Attended) -> Tensor | None:
    return None if attended.seen is None else attended.seen[0]


def _four_products(encoding: Encoding, query: Any, key: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the four dot products of content and position terms of a query and a key.

    A hook is affine, f(x) = A x + b. So A p = f(p) − f(0) is the term of a position p, and the
    remainder, f(x) − A p, is the term of the word with the constant b.
    """
    sides = []
    for (x, place, at), hook in ((query, encoding.on_queries), (key, encoding.on_keys)):
        moved = hook(place, at) - hook(torch.zeros_like(place), at)
        sides.append((hook(x, at) - moved, moved))
    for n, name in enumerate(FOUR_TERMS):
        yield name, _product(sides[0][n // 2], sides[1][n % 2])


def _products(
    encoding: Encoding, q: Tensor, k: Tensor, at: Any, k_at: Any, bands: int
) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the value of each term of the score q · k.

    RoPE has a term for each frequency band; other encodings have a single term.
    """
    leaves = placed(encoding, at, k_at)
    parts = [leaf.encoding for leaf in leaves]
    rotary = [part for part in parts if _is_rotary(part)]
    turned, keys = hooks.queries_and_keys(leaves, q, k)
    if len(rotary) == 1:
        for name, channels in _bands(rotary[0], bands):
            yield name, _product(turned[..., channels], keys[..., channels])
    else:
        of_its_own = any(isinstance(part, TransformerXL) for part in parts)
        yield "q·k" if of_its_own else CONTENT, _product(turned, keys)


def _is_rotary(part: Any) -> bool:
    return "on_queries" in part.acts_on and hasattr(part, "layout") and hasattr(part, "freqs")


def _bands(rotary: Any, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the channels of each band of rotary pairs, from fast to slow."""
    theta = rotary.freqs.detach().cpu().double()
    if theta.ndim == 3:  # (axis, head, pair)
        theta = theta.square().mean(1).sqrt()
    speed = theta.abs() if theta.ndim == 1 else theta.norm(dim=0)
    start = getattr(rotary, "start", None) or 0
    first, second = split(torch.arange(start, start + 2 * len(speed)), rotary.layout)
    turning = speed > 0
    # Pairs of equal speed belong to one band; `group` has the index of the speed of each pair
    distinct, group = speed[turning].log().neg().round(decimals=3).unique(return_inverse=True)
    for band in torch.arange(len(distinct)).tensor_split(min(count, len(distinct))):
        among = turning.nonzero().flatten()[torch.isin(group, band)]
        waves = 2 * pi / speed[among]
        ends = dict.fromkeys(f"{w:,.0f}" if w >= 100 else f"{w:.3g}" for w in waves.aminmax())
        yield f"λ {'–'.join(ends)}", torch.cat((first[among], second[among]))
    turned = torch.cat((first[turning], second[turning]))
    still = [c for c in range(rotary.dim) if c not in set(turned.tolist())]
    if still:
        yield "not rotated", torch.tensor(still)


def _biases(
    leaf: hooks.Placed, q: Tensor, k: Tensor, scale: float, seen: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    bias = hooks.bias_of([leaf], q, k, scale)
    if bias is None:
        return
    for name, term in (bias.terms() or {f"bias of {type(leaf.encoding).__name__}": bias}).items():
        yield name, term.block(ALL, ALL, seen)


def _product(q: Tensor, k: Tensor) -> Tensor:
    return q.double() @ per_query_head(k, q).double().mT


def _heads(x: Tensor, heads: int) -> Tensor:
    """Split heads: (batch, token, head · channel) -> (batch, head, token, channel)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _accumulate(parts: dict[str, Tensor], name: str, value: Tensor) -> None:
    parts[name] = parts[name] + value.double() if name in parts else value.double()


def _with_shares(encoding: str, summands: dict[str, Tensor], seen: Tensor | None) -> Decomposition:
    shape = torch.broadcast_shapes(*(value.shape[1:] for value in summands.values()))
    parts = {name: value[0].expand(shape) for name, value in summands.items()}
    mask = torch.ones(shape, dtype=torch.bool) if seen is None else seen.cpu().expand(shape)
    counts = mask.sum(-1, keepdim=True).clamp_min(1)

    def centred(part: Tensor) -> Tensor:
        part = part.cpu().masked_fill(~mask, 0)
        return (part - part.sum(-1, keepdim=True) / counts).masked_fill(~mask, 0)

    scores = sum(parts.values(), torch.zeros(shape, dtype=torch.float64))
    total = centred(scores)
    apart = {name: centred(part) for name, part in parts.items()}
    squares = total.square().sum((-2, -1)).clamp_min(1e-300)  # (head,)
    products = {name: (part * total).sum((-2, -1)) for name, part in apart.items()}
    pairs_seen = int(mask.sum())
    return Decomposition(
        encoding,
        scores.tolist(),
        {name: part.tolist() for name, part in parts.items()},
        {name: float(product.sum() / squares.sum()) for name, product in products.items()},
        {name: (product / squares).tolist() for name, product in products.items()},
        {name: float((part.square().sum() / pairs_seen).sqrt()) for name, part in apart.items()},
    )
