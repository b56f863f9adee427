"""Sum: several encodings in one attention, each acting where it acts.

    Sum(a, b):  x → b(a(x)),  q → b(a(q)),  k → b(a(k)),  v → b(a(v)),  out → a(b(out)),
                biases, and what is added by weight, added

One that acts on scores sees queries and keys as the others have left them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from posenc.core.arguments import brief
from posenc.core.biases import added, as_bias
from posenc.core.encoding import HOOKS, Encoding
from posenc.core.prepared import Parts, PartsAtPoints
from posenc.core.shapes import (
    Bias,
    Embeddings,
    Heads,
    Keys,
    PerHead,
    Points,
    Positions,
    Values,
    Wider,
)


class Sum(Encoding):
    """Several encodings as one: `Sum(RoPE(64), ALiBi(8))`."""

    prepared = Parts

    def __init__(self, *parts: Encoding):
        super().__init__()
        for part in parts:
            if not isinstance(part, Encoding):
                raise TypeError(
                    f"`Sum` takes encodings, one after another, got {brief(part)}:"
                    " `Sum(RoPE(64), ALiBi(8))`, and of a list `Sum(*encodings)`."
                )
        if len({part.axes for part in parts}) > 1:
            axes = ", ".join(f"{type(part).__name__} {part.axes}" for part in parts)
            raise ValueError(f"`Sum` hands all the same positions; their axes differ: {axes}.")
        self.parts = nn.ModuleList(parts)
        self.width, self.dim, self.heads = (
            _size_of(parts, name) for name in ("width", "dim", "heads")
        )
        self.axes = parts[0].axes if parts else 1
        self.causal = any(part.causal for part in parts)

    __repr__ = nn.Module.__repr__  # a line for each part

    def prepare(self, pos: Positions | Points) -> Parts:
        return self.of_parts(part.prepare(pos) for part in self)

    def of_parts(self, each: Iterable[Any]) -> Parts:
        return (Parts if self.axes == 1 else PartsAtPoints)(tuple(each))

    def on_embeddings(self, x: Embeddings, at: Parts) -> Embeddings:
        for part, part_at in zip(self, at.parts, strict=True):
            x = part.on_embeddings(x, part_at)
        return x

    def on_hidden(self, x: Embeddings, at: Parts) -> Parts:
        parts_at = zip(self, at.parts, strict=True)
        return self.of_parts(part.on_hidden(x, part_at) for part, part_at in parts_at)

    def on_queries(self, q: Heads, at: Parts) -> Wider:
        for part, part_at in zip(self, at.parts, strict=True):
            q = part.on_queries(q, part_at)
        return q

    def on_keys(self, k: Heads, at: Parts) -> PerHead:
        for part, part_at in zip(self, at.parts, strict=True):
            k = part.on_keys(k, part_at)
        return k

    def on_scores(self, q: Heads, k: Keys, q_at: Parts, k_at: Parts, scale: float) -> Bias | None:
        ats = zip(self, q_at.parts, k_at.parts, strict=True)
        biases = [p.on_scores(q, k, p_at, p_k_at, scale) for p, p_at, p_k_at in ats]
        wrapped = [as_bias(bias, q, k) for bias in biases]
        return added([bias for bias in wrapped if bias is not None])

    def on_values(self, v: Values, at: Parts) -> Values:
        for part, part_at in zip(self, at.parts, strict=True):
            v = part.on_values(v, part_at)
        return v

    def on_output(self, out: Heads, at: Parts) -> Heads:
        """Undo in reverse: what acted on values last is the first to be turned back."""
        for part, part_at in zip(reversed([*self]), reversed(at.parts), strict=True):
            out = part.on_output(out, part_at)
        return out

    def by_weight(self, weights: Tensor, q_at: Parts, k_at: Parts, rows: slice) -> Tensor | None:
        ats = zip(self, q_at.parts, k_at.parts, strict=True)
        extras = [p.by_weight(weights, p_at, p_k_at, rows) for p, p_at, p_k_at in ats]
        extras = [extra for extra in extras if extra is not None]
        return sum(extras[1:], extras[0]) if extras else None

    def scale(self, dim: int) -> float:
        """The usual scale, times the factor of each part."""
        scale = usual = super().scale(dim)
        for part in self:
            scale *= part.scale(dim) / usual
        return scale

    @property
    def acts_on(self) -> tuple[str, ...]:
        return tuple(hook for hook in HOOKS if any(hook in part.acts_on for part in self))

    def __iter__(self) -> Iterator[Encoding]:
        return iter(self.parts)  # type: ignore[arg-type]


def _size_of(parts: tuple[Encoding, ...], name: str) -> int:
    """The channels or heads that parts were made for, which must agree; 0: no part says."""
    sizes = {getattr(part, name): type(part).__name__ for part in parts if getattr(part, name)}
    if len(sizes) > 1:
        listed = ", ".join(f"{part} {size}" for size, part in sizes.items())
        raise ValueError(
            f"`Sum` acts on one attention; the `{name}` of its parts differ: {listed}."
        )
    return next(iter(sizes), 0)


def leaves(encoding: Encoding) -> tuple[Encoding, ...]:
    """The encodings that a `Sum` is made of, sums within it too, in their order; else itself.

    >>> [type(leaf).__name__ for leaf in leaves(Sum(Encoding(), Sum(Encoding(), Sum())))]
    ['Encoding', 'Encoding']
    """
    if not isinstance(encoding, Sum):
        return (encoding,)
    return tuple(leaf for part in encoding for leaf in leaves(part))
