"""Find the query and key projections of a model, and the rows of their rotated channels.

    q, k = projection.rotary_rows(weights)     each (head, channel, input); keys repeated by group

Names of tensors, and the order of heads in fused tensors, are those of `posenc.models.layouts`. A
GGUF file has other names, and metadata in place of a config.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from posenc.models.config.gguf import specify_gguf
from posenc.models.config.spec import Rotary, Spec
from posenc.models.files.errors import ModelError
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

    def rotary_rows(self, weights: Tensors) -> tuple[Tensor, Tensor]:
        """Return the weight rows of q and k for rotated channels, (head, channel, input)."""
        q, k = self._heads([weights[name].flatten(1).float() for name in self.names])
        # Grouped queries: the heads g·r … g·r + r − 1 of queries share key head g
        k = k.repeat_interleave(len(q) // len(k), 0)
        last = self.rotary.trailing or self._shared
        rows = slice(-self.rotary.turned, None) if last else slice(self.rotary.turned)
        return q[:, rows], k[:, rows]

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
        # A gate follows the queries of each head
        q = q.unflatten(0, (self.heads, 1 + self.gated, -1))[:, 0]
        return q, k.unflatten(0, (1 if self._shared else self.groups, -1))


def find_projections(spec: Spec | None, weights: Weights) -> list[Projection]:
    """Return the q and k projections of rotary layers with known names and shapes."""
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
    by_layer: dict[int, dict[str, str]] = {}
    for name in weights.infos:
        if at := GGUF.fullmatch(name):
            by_layer.setdefault(int(at[1]), {})[at[2]] = name
    if not by_layer:
        return []
    try:
        spec = specify_gguf(weights.metadata, weights, next(iter(weights.infos.values())).file.name)
    except ModelError:
        return []
    rotary = {n: x.encoding for n, x in enumerate(spec.layers) if isinstance(x.encoding, Rotary)}
    return [
        Projection(layer, rotary[layer], spec.heads, spec.groups, (tensors["q"], tensors["k"]))
        for layer, tensors in sorted(by_layer.items())
        if len(tensors) == 2 and layer in rotary
    ]
