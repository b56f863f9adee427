"""The base of every positional encoding: places to act on attention, all optional.

    weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
    out = on_output( weights · on_values(v) + by_weight(weights) )
    where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))

An encoding overrides the hooks it needs; the others are neutral. What it can compute from
positions alone (cosines, buckets) it returns from `prepare`; the caller holds that for one forward
and hands it to every layer. Nothing else is kept from one call to the next. What the input of a
layer says besides (gates, learned steps) it adds in `on_hidden`, once in each layer.
"""

import sys
from inspect import signature
from textwrap import dedent
from typing import Any

import torch
from torch import Tensor, nn

from posenc.core.arguments import brief
from posenc.core.biases import ALL, as_bias
from posenc.core.frequencies import not_positions
from posenc.core.notebook import card
from posenc.core.positions import exact_copy, sequence
from posenc.core.shapes import (
    Bias,
    Embeddings,
    Heads,
    KeyPositions,
    Keys,
    Points,
    Positions,
    Values,
)

HOOK_PLACES = {
    "on_embeddings": "embeddings",
    "on_hidden": "the input of a layer",
    "on_queries": "queries and keys",
    "on_keys": "queries and keys",
    "on_scores": "scores",
    "on_values": "values and output",
    "by_weight": "scores",
    "on_output": "values and output",
}
HOOKS = tuple(HOOK_PLACES)
SIZES = "width", "dim", "heads", "axes"


def on_meta(encoding: nn.Module) -> str:
    """The message about learned weights that were never given a value."""
    return (
        f"the weights of this {type(encoding).__name__} are on the meta device and have no values:"
        " load them, with `load_state_dict(…, assign=True)` for instance, before it is used."
    )


class Encoding(nn.Module):
    width: int = 0  # channels of an embedding it was made for; 0: any
    dim: int = 0  # channels of a head
    heads: int = 0  # query heads
    axes: int = 1  # numbers that make a position
    causal: bool = False  # True of one made for causal attention, under whose mask it is measured
    softmax_scale: float | None = None  # a model's own; None: 1/√channels
    prepared: type = Tensor  # what the hooks take as `at`, where that is more than positions

    def prepare(self, pos: Positions | Points) -> Any:
        """Compute what the hooks need to know of these positions; they are handed it as `at`.

        What is learned is read now: call it again after a step of training.
        """
        return exact_copy(pos)

    def on_embeddings(self, x: Embeddings, at: Any) -> Embeddings:
        return x

    def on_hidden(self, x: Embeddings, at: Any) -> Any:
        """Return what hooks take as `at` in this layer, which reads x, (batch, token, channel).

        All hooks go token by token: what they make of one depends on no other but, in `on_hidden`,
        on those before it, by sums that `at.then(more)` carries on. One that mixes tokens (a
        convolution) is wrong with a cache and on packed texts; `properties.conform` tells.
        """
        return at

    def on_queries(self, q: Heads, at: Any) -> Heads:
        """Turn, scale or widen q; a score is the dot product with what `on_keys` returns."""
        return q

    def on_keys(self, k: Heads, at: Any) -> Heads:
        return k

    def on_scores(self, q: Heads, k: Keys, q_at: Any, k_at: Any, scale: float) -> Bias | None:
        """Return the bias; q and k come as they enter the dot product, so keys can be cached.

        `scale` is what q · k will be multiplied by; terms of q or k usually want the same.
        """
        return None

    def on_values(self, v: Values, at: Any) -> Values:
        """Turn or scale the values; `at` is where the keys stand."""
        return v

    def by_weight(self, weights: Tensor, q_at: Any, k_at: Any, rows: slice) -> Tensor | None:
        """Return what to add to the output, given the weights (batch, head, query, key) of `rows`.

        `rows` says which of the queries: attention in blocks asks for a few at a time.
        """
        return None

    def on_output(self, out: Heads, at: Any) -> Heads:
        """Turn or scale the output; `at` is where the queries stand.

        A query that sees no key has an output of 0, which a linear map leaves at 0.
        """
        return out

    def scale(self, dim: int) -> float:
        """The factor of q · k, for heads of `dim` channels, unless the caller of attention sets it.

        >>> Encoding().scale(64)
        0.125
        """
        return dim**-0.5 if self.softmax_scale is None else self.softmax_scale

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        """Write sizes, and the constructor's arguments that are kept under their names.

        >>> from posenc import ALiBi, Sinusoidal
        >>> Sinusoidal(512), ALiBi(heads=8)
        (Sinusoidal(512 channels, base=10000, layout='interleaved'), ALiBi(8 heads, strength=1))
        """
        axes = self.axes if self.axes > 1 else 0
        sizes = (self.width or self.dim, "channels"), (self.heads, "heads"), (axes, "axes")
        stated = [f"{size} {what}" for size, what in sizes if size]
        for name in signature(type(self).__init__).parameters:
            value = vars(self).get(name)
            if name not in SIZES and isinstance(value, str | int | float):
                shown = f"{value:.10g}" if isinstance(value, float) else repr(value)
                stated.append(f"{name}={shown}")
        return ", ".join(stated)

    def _repr_html_(self) -> str:
        """A card for a notebook: sizes, the first sentence and the formula of its file."""
        written = type(self).__doc__ or "" if type(self).__module__ == "__main__" else ""
        written = written or sys.modules[type(self).__module__].__doc__ or ""
        blocks = dedent(written).split("\n\n")
        formula = next((dedent(block) for block in blocks if block.startswith("    ")), "")
        learned = sum(weight.numel() for weight in self.parameters())
        places = dict.fromkeys(HOOK_PLACES[hook] for hook in self.acts_on)
        acts = f"acts on {', '.join(places) or 'nothing'}; {learned:,} learned numbers"
        return card(repr(self), [" ".join(blocks[0].split()), acts], formula)

    @property
    def acts_on(self) -> tuple[str, ...]:
        """The hooks this encoding overrides: read from the code, so it cannot lie."""
        own = type(self)
        return tuple([hook for hook, neutral in NEUTRAL if getattr(own, hook) is not neutral])

    def forward(self, *inputs: Tensor, pos: Tensor | None = None) -> Any:
        """Apply the encoding by itself. Positions may be left out: then they are 0, 1, 2, …

        Sinusoidal(512)(x, pos) -> x,  RoPE(64)(q, k, pos) -> q, k,  ALiBi(8)(q_pos, k_pos) -> bias
        """
        acts_on, name = self.acts_on, type(self).__name__
        for value in inputs:
            if not isinstance(value, Tensor):
                raise TypeError(f"{name} is called with tensors, got {brief(value)}.")
        inputs = inputs if pos is None else (*inputs, pos)
        places = {HOOK_PLACES[hook] for hook in acts_on}
        if len(places) > 1 or "on_hidden" in acts_on:
            raise TypeError(f"{name} acts on {', '.join(sorted(places))}: use `SelfAttention`.")
        if acts_on and not {*acts_on} & {"on_embeddings", "on_queries", "on_keys", "on_scores"}:
            raise TypeError(f"{name} acts on values or output alone: use `attend`.")
        if "on_scores" in acts_on:
            if len(inputs) not in (1, 2):
                expected = "(q_pos) or (q_pos, k_pos)"
                raise TypeError(f"{name} is called with {expected}, got {len(inputs)} tensors.")
            return self._bias(*inputs)
        needs = 1 if "on_embeddings" in acts_on else 2
        if len(inputs) not in (needs, needs + 1):
            expected = "(x) or (x, pos)" if needs == 1 else "(q, k) or (q, k, pos)"
            raise TypeError(f"{name} is called with {expected}, got {len(inputs)} tensors.")
        for value in inputs[:needs]:
            if not value.is_floating_point() or value.ndim < 2:
                order = "(x, pos)" if needs == 1 else "(q, k, pos)"
                raise ValueError(
                    f"{name} is called with {order}, in this order, floats (…, token, channel) and"
                    f" then positions: got {value.dtype} of shape {tuple(value.shape)}."
                )
        first = inputs[0]
        pos = inputs[needs] if len(inputs) > needs else sequence(first.shape[-2], 0, first.device)
        at = self.prepare(pos)
        if needs == 1:
            return self.on_embeddings(first, at)
        return self.on_queries(first, at), self.on_keys(inputs[1], at)

    def _bias(self, q_pos: Positions, k_pos: KeyPositions | None = None) -> Tensor:
        """The bias (batch or 1, head, query, key) of an encoding that reads positions alone."""
        k_pos = q_pos if k_pos is None else k_pos
        q_at, k_at = self.prepare(q_pos), self.prepare(k_pos)
        if not q_pos.is_meta and any(weight.is_meta for weight in self.parameters()):
            raise ValueError(on_meta(self))
        queries, keys = (pos.shape[: pos.ndim - (self.axes > 1)] for pos in (q_pos, k_pos))
        if max(len(queries), len(keys)) > 3:
            raise ValueError(not_positions(q_pos.shape))
        batch = max(1 if len(shape) == 1 else shape[0] for shape in (queries, keys))
        shape = (batch, self.heads or 1, queries[-1], keys[-1])
        q, k = (  # float32, whatever the default dtype: what is asked for is the bias alone
            torch.zeros(*shape[:2], n, self.dim or 1, dtype=torch.float32, device=q_pos.device)
            for n in shape[2:]
        )
        bias = as_bias(self.on_scores(q, k, q_at, k_at, scale=1.0), q, k)
        if bias is None or bias.distance is None:
            name = type(self).__name__
            raise TypeError(f"the bias of {name} depends on queries or keys: use `attend`.")
        return bias.block(ALL, ALL, None)


NEUTRAL = tuple([(hook, getattr(Encoding, hook)) for hook in HOOKS])


def overrides(encoding: Encoding, hook: str) -> bool:
    """Test whether a hook is among those that an encoding, which is no sum, `acts_on`."""
    own = type(encoding)
    if own.acts_on is Encoding.acts_on:
        return getattr(own, hook) is not getattr(Encoding, hook)
    return hook in encoding.acts_on
