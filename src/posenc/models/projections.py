"""Find the rows of W_q and W_k whose output is rotated in rotary layers.

    q, k = projection.rotary_rows(weights)     each (head, channel, input); keys repeated by group

Names of tensors, and the order of heads in fused tensors, are those of `posenc.models.layouts`. A
GGUF file has other names, and metadata in place of a config.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from posenc.models.config.spec import Rotary, Spec
from posenc.models.layouts import (
    ATTENTION,
    BLOCKS,
    EACH,
    FUSED,
    GATED,
    HOLDS,
    IN_LAYER,
    NOT_TEXT,
    SHARED_KEY,
)
from posenc.models.weights import Tensors, Weights

GGUF = re.compile(r"blk\.(\d{1,6})\.attn_([qk])\.weight")
MOST_CHANNELS = 1024  # rotated channels of a head
INTERLEAVED = ("llama",)  # architectures whose q and k llama.cpp's converter permutes


@dataclass(frozen=True)
class Projection:
    """Tensors of a layer's query and key projections: one each, or one fused tensor."""

    layer: int
    rotary: Rotary
    heads: int
    groups: int
    names: tuple[str, ...]
    form: str = ""  # order of the heads in a fused tensor
    gated: bool = False  # True: the queries of each head are followed by a gate
    base_known: bool = True  # False: the layer may have another base than `rotary`

    def rotary_rows(self, weights: Tensors) -> tuple[Tensor, Tensor]:
        """Return the rows of W_q and W_k whose output is rotated, (head, channel, input)."""
        q, k = self._heads([weights[name].flatten(1).float() for name in self.names])
        # Grouped queries: the heads g·r … g·r + r − 1 of queries share key head g
        k = k.repeat_interleave(len(q) // len(k), 0)
        rows = slice(-self.rotary.turned, None) if self._last else slice(self.rotary.turned)
        return q[:, rows], k[:, rows]

    @property
    def _last(self) -> bool:
        return self.rotary.trailing or self._shared

    @property
    def _shared(self) -> bool:
        return SHARED_KEY in self.names[-1]

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of output rows that each weight tensor must have; 0 if any number is valid."""
        dim = self.rotary.dim
        if self.form:
            return ((3 * self.heads if self.form == EACH else self.heads + 2 * self.groups) * dim,)
        return (self.heads * dim * (1 + self.gated), 0 if self._shared else self.groups * dim)

    def _heads(self, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
        dim = self.rotary.dim
        # Rows are ordered by head, then q k v, then channel
        if self.form == EACH:
            q, k, _ = tensors[0].unflatten(0, (self.heads, 3, dim)).unbind(1)
            return q, k
        # Rows are the heads of q, then of k, then of v, each of `dim` channels
        if self.form == BLOCKS:
            heads = tensors[0].unflatten(0, (self.heads + 2 * self.groups, dim))
            return heads[: self.heads], heads[self.heads : self.heads + self.groups]
        q, k = tensors
        q = q.unflatten(0, (self.heads, 2, dim))[:, 0] if self.gated else _split(q, self.heads)
        return q, (k[None] if self._shared else _split(k, self.groups))


def _split(rows: Tensor, heads: int) -> Tensor:
    return rows.unflatten(0, (heads, -1))


def find_projections(spec: Spec | None, weights: Weights) -> list[Projection]:
    """Return the q and k projections of rotary layers, if names and shapes are recognised."""
    if "general.architecture" in weights.metadata:
        projections = _of_gguf(weights)
    else:
        projections = _of_config(spec.text_stack, weights) if spec else []
    return [projection for projection in projections if _shapes_match(projection, weights)]


def _shapes_match(projection: Projection, weights: Weights) -> bool:
    shapes = [weights.infos[name].shape for name in projection.names]
    return (
        projection.heads >= projection.groups > 0
        and projection.rotary.turned <= MOST_CHANNELS
        and projection.heads % projection.groups == 0
        and all(len(shape) > 1 and min(shape) > 0 for shape in shapes)
        and all(rows in (0, shape[0]) for rows, shape in zip(projection.rows, shapes, strict=True))
        and len({shape[1] for shape in shapes}) == 1
    )


def _of_config(spec: Spec, weights: Weights) -> list[Projection]:
    stacks: dict[str, dict[int, dict[str, tuple[str, str]]]] = {}
    for name in weights.infos:
        at = IN_LAYER.fullmatch(name)
        if at is None or NOT_TEXT.search(at[1]) or at[3].count(".") < 2:
            continue
        *where, module, leaf = at[3].split(".")
        holds = HOLDS.get(module)
        if leaf == "weight" and holds and ".".join(where) in ATTENTION:
            stacks.setdefault(at[1], {}).setdefault(int(at[2]), {})[holds] = (module, name)
    for layers in stacks.values():
        candidates = (_of_layer(spec, layer, layers[layer]) for layer in sorted(layers))
        if projections := [projection for projection in candidates if projection]:
            return projections
    return []


def _of_layer(spec: Spec, layer: int, tensors: Mapping[str, tuple[str, str]]) -> Projection | None:
    rotary = spec.layers[layer].encoding if layer < len(spec.layers) else None
    if not isinstance(rotary, Rotary):
        return None
    if "qkv" in tensors:
        module, name = tensors["qkv"]
        form = FUSED.get((module, spec.model))
        if form not in (EACH, BLOCKS):
            return None
        return Projection(layer, rotary, spec.heads, spec.groups, (name,), form)
    # The input of `q_b_proj` is a latent, not the embedding
    if "q" not in tensors or "k" not in tensors or tensors["q"][0] == "q_b_proj":
        return None
    gated = tensors["q"][0] == "q_proj" and spec.model in GATED
    names = (tensors["q"][1], tensors["k"][1])
    return Projection(layer, rotary, spec.heads, spec.groups, names, gated=gated)


def _of_gguf(weights: Weights) -> list[Projection]:
    metadata, kind = weights.metadata, str(weights.metadata["general.architecture"])
    by_layer: dict[int, dict[str, str]] = {}
    for name in weights.infos:
        if at := GGUF.fullmatch(name):
            by_layer.setdefault(int(at[1]), {})[at[2]] = name

    def number(key: str, otherwise: int = 0) -> int:
        value = metadata.get(f"{kind}.{key}", otherwise)
        return value if isinstance(value, int) and value > 0 else otherwise

    heads = number("attention.head_count")
    groups = number("attention.head_count_kv", heads)
    dim = number("attention.key_length", number("embedding_length") // heads if heads else 0)
    rotary_dim = number("rope.dimension_count", dim)
    base = metadata.get(f"{kind}.rope.freq_base", 10_000.0)
    valid_base = isinstance(base, float) and 0 < base < float("inf")
    if not heads or not 2 <= rotary_dim <= dim or rotary_dim % 2 or not valid_base:
        return []
    rotary = Rotary(dim, rotary_dim, base, layout="interleaved" if kind in INTERLEAVED else None)
    # Layers with a window may have their own base
    known = not number("attention.sliding_window")
    return [
        Projection(layer, rotary, heads, groups, (tensors["q"], tensors["k"]), base_known=known)
        for layer, tensors in sorted(by_layer.items())
        if len(tensors) == 2
    ]
