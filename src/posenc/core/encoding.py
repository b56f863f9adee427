"""The base class of every positional encoding, and the sum of several.

weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
out = on_output( weights · on_values(v) + by_weight(weights) )
where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))
"""

import sys
from collections.abc import Iterable, Iterator
from inspect import signature
from textwrap import dedent
from typing import Any

import torch
from torch import Tensor, nn

from posenc.core import hooks
from posenc.core.biases import ALL
from posenc.core.frequencies import not_positions
from posenc.core.positions import exact_copy, per_head, sequence
from posenc.core.prepared import Parts, PartsAtPoints
from posenc.core.shapes import (
    Bias,
    Embeddings,
    Heads,
    KeyPositions,
    Keys,
    PerHead,
    Points,
    Positions,
    Values,
    Wider,
)
from posenc.support.arguments import brief
from posenc.support.notebook import card

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
    """Return the error message for an encoding whose weights are on the meta device."""
    return (
        f"the weights of this {type(encoding).__name__} are on the meta device and have no values."
        " Load them before the encoding is used, for instance with"
        " `load_state_dict(…, assign=True)`."
    )


class Encoding(nn.Module):
    """The base class of positional encodings. Subclass it and override the hooks that you need.

        weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
        out = on_output( weights · on_values(v) + by_weight(weights) )
        where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))

    Every hook is optional, and the hooks that a class overrides decide what it acts on:

    prepare(pos)            positions -> `at`, computed once per forward pass
    on_embeddings(x, at)    x (batch, token, width) -> the same shape
    on_hidden(x, at)        x, the input of a layer -> `at` for this layer (gates, learned steps)
    on_queries(q, at)       q (batch, head, token, dim) -> the same, or with more channels
    on_keys(k, at)          k (batch, key head, token, dim) -> with as many channels as q
    on_scores(q, k, q_at, k_at, scale)
                            the bias: a tensor that broadcasts to (batch, head, query, key), a
                            function of one pair (b, h, i, j) -> value, or a bias object
    on_values(v, at)        v (batch, key head, token, value) -> the same shape
    by_weight(weights, q_at, k_at, rows)
                            the weights of some queries -> what is added to their output
    on_output(out, at)      out (batch, head, token, value) -> the same shape

    Unless the class overrides `prepare`, `at` holds the positions, always of the shape (batch or 1,
    head or 1, token), whatever shape the caller passed; `k_at` has the heads of the keys. A hook
    must treat every token separately and must not store anything between calls, because caches,
    packed texts and several threads share one instance. `posenc.testing.conform` tests this.

    >>> import torch
    >>> from posenc import Encoding, attend
    >>> class Near(Encoding):  # a key loses 1 for each token that it is away
    ...     def on_scores(self, q, k, q_at, k_at, scale):
    ...         return -(q_at[..., :, None] - k_at[..., None, :]).abs()
    >>> q = torch.randn(1, 2, 5, 8)
    >>> attend(q, q, q, Near()).shape
    torch.Size([1, 2, 5, 8])

    The attributes below are sizes and facts that attention checks. Set those that apply.
    """

    width: int = 0  # channels of the embeddings; 0: any
    dim: int = 0  # channels of a head
    heads: int = 0  # query heads
    axes: int = 1  # coordinates of a position
    causal: bool = False  # True if it is made for causal attention, and is measured under its mask
    by_length: bool = False  # True if a token's code depends on the length; `Cache` refuses it
    softmax_scale: float | None = None  # scale of q · k; None: 1/√channels
    prepared: type = Tensor  # class of `at`, the argument of the hooks

    def prepare(self, pos: Positions | Points) -> Any:
        """Convert positions into the argument `at` of all hooks. By default, only reshape them.

        - `pos`: (token,), (batch, token) or (batch, head, token); points have a trailing axis

        The default shape is (batch or 1, head or 1, token), and (batch or 1, token) if the class
        overrides `on_embeddings`, because x has no axis of heads. An override that reads learned
        weights must be called again after each step of training.
        """
        pos = per_head(exact_copy(pos), self.axes)
        return pos.squeeze(1) if "on_embeddings" in self.acts_on else pos

    def on_embeddings(self, x: Embeddings, at: Any) -> Embeddings:
        """Encode embeddings before attention, for instance by adding a vector for each position.

        - `x`: embeddings, (batch, token, width)
        - `at`: what `prepare` returned
        """
        return x

    def on_hidden(self, x: Embeddings, at: Any) -> Any:
        """Compute the argument `at` of this layer's other hooks from the layer's input x.

        - `x`: input of the layer, (batch, token, width)
        - `at`: what `prepare` returned

        All hooks treat every token separately. Only `on_hidden` may depend on earlier tokens,
        through sums that `at.append(more)` continues. A hook that mixes tokens, such as a
        convolution, gives wrong results with a cache and on packed texts; `posenc.testing.conform`
        detects this.
        """
        return at

    def on_queries(self, q: Heads, at: Any) -> Heads:
        """Rotate, scale or widen queries before their dot product with `on_keys(k)`.

        - `q`: queries, (batch, head, token, dim)
        - `at`: result of `prepare` or `on_hidden` for the queries
        """
        return q

    def on_keys(self, k: Heads, at: Any) -> Heads:
        """Rotate, scale or widen keys; the result has as many channels as that of `on_queries`.

        - `k`: keys, (batch, key head, token, dim)
        - `at`: result of `prepare` or `on_hidden` for the keys
        """
        return k

    def on_scores(self, q: Heads, k: Keys, q_at: Any, k_at: Any, scale: float) -> Bias | None:
        """Return the bias of the scores: a tensor, a function of a pair (b, h, i, j), or an object.

        - `q`: queries after `on_queries`, (batch, head, token, dim)
        - `k`: keys after `on_keys`, (batch, key head, token, dim), which a cache can store
        - `q_at`, `k_at`: results of `prepare` or `on_hidden` for the queries and for the keys
        - `scale`: factor by which q · k is multiplied later; terms of q or k usually need it too

        Returns None for no bias.
        """
        return None

    def on_values(self, v: Values, at: Any) -> Values:
        """Rotate or scale values before the attention weights average them.

        - `v`: values, (batch, key head, token, value)
        - `at`: result of `prepare` or `on_hidden` for the keys
        """
        return v

    def by_weight(self, weights: Tensor, q_at: Any, k_at: Any, rows: slice) -> Tensor | None:
        """Return a tensor to add to the output, computed from the attention weights, or None.

        - `weights`: attention weights of these queries, (batch, head, query, key)
        - `q_at`, `k_at`: results of `prepare` or `on_hidden` for all queries and for the keys
        - `rows`: slice of the queries; attention in blocks computes a few at a time
        """
        return None

    def on_output(self, out: Heads, at: Any) -> Heads:
        """Rotate or scale the output of attention, for instance to invert `on_values`.

        - `out`: output, (batch, head, token, value)
        - `at`: result of `prepare` or `on_hidden` for the queries

        The output of a query that sees no key is 0, and stays 0 under a linear map.
        """
        return out

    def scale(self, dim: int) -> float:
        """Return the default factor of q · k, 1/√channels unless `softmax_scale` is set.

        - `dim`: channels of a head

        >>> Encoding().scale(64)
        0.125
        """
        return dim**-0.5 if self.softmax_scale is None else self.softmax_scale

    def __add__(self, other: "Encoding") -> "Sum":
        """Combine two encodings in one attention: `RoPE(64) + ALiBi(8)` is `Sum` of both."""
        return Sum(self, other) if isinstance(other, Encoding) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        """Format the sizes and settings of the encoding for `repr`.

        Settings are arguments that the constructor stores under their own names.

        >>> from posenc import ALiBi, Sinusoidal
        >>> Sinusoidal(512)
        Sinusoidal(512 channels, base=10000, layout='interleaved', cosines_first=False)
        >>> ALiBi(heads=8)
        ALiBi(8 heads, strength=1)
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
        """Return a card for notebooks: sizes, first sentence and formula of the docstring."""
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
        """The names of the hooks that the class overrides."""
        own = type(self)
        acts_on = []
        for hook, neutral in NEUTRAL:
            if getattr(own, hook) is not neutral:
                acts_on.append(hook)
        return tuple(acts_on)

    def forward(self, *inputs: Tensor, pos: Tensor | None = None) -> Any:
        """Apply the encoding outside of attention: encode x, or q and k, or return the bias.

        - `inputs`: x for an encoding of embeddings; q and k for an encoding of queries and keys;
          the positions of queries and keys for a bias. Positions may follow x, or q and k
        - `pos`: positions, as a keyword; None: the positions among `inputs`, or 0, 1, 2, …

        Sinusoidal(512)(x, pos) -> x,  RoPE(64)(q, k, pos) -> q, k,  ALiBi(8)(q_pos, k_pos) -> bias

        Raises TypeError if the encoding acts in several places or reads the input of a layer.
        """
        acts_on, name = self.acts_on, type(self).__name__
        for value in inputs:
            if not isinstance(value, Tensor):
                raise TypeError(f"the arguments of {name} must be tensors, got {brief(value)}.")
        inputs = inputs if pos is None else (*inputs, pos)
        places = {HOOK_PLACES[hook] for hook in acts_on}
        if len(places) > 1 or "on_hidden" in acts_on:
            raise TypeError(
                f"{name} cannot be called directly, because this encoding acts on"
                f" {', '.join(sorted(places))}. Use `SelfAttention`."
            )
        if acts_on and not {*acts_on} & {"on_embeddings", "on_queries", "on_keys", "on_scores"}:
            raise TypeError(
                f"{name} cannot be called directly, because this encoding acts on values or output"
                " only. Use `attend`."
            )
        if "on_scores" in acts_on:
            if len(inputs) not in (1, 2):
                expected = "(q_pos) or (q_pos, k_pos)"
                raise TypeError(
                    f"the arguments of {name} must be {expected}, got {len(inputs)} tensors."
                )
            return self._bias(*inputs)
        needs = 1 if "on_embeddings" in acts_on else 2
        if len(inputs) not in (needs, needs + 1):
            expected = "(x) or (x, pos)" if needs == 1 else "(q, k) or (q, k, pos)"
            raise TypeError(
                f"the arguments of {name} must be {expected}, got {len(inputs)} tensors."
            )
        for value in inputs[:needs]:
            if not value.is_floating_point() or value.ndim < 2:
                order, inputs_are = (
                    ("(x, pos)", "x is") if needs == 1 else ("(q, k, pos)", "q and k are")
                )
                raise ValueError(
                    f"the arguments of {name} must be {order}, where {inputs_are}"
                    " floating point of shape (…, token, channel), got"
                    f" {value.dtype} of shape {tuple(value.shape)}."
                )
        first = inputs[0]
        pos = inputs[needs] if len(inputs) > needs else sequence(first.shape[-2], 0, first.device)
        parts = placed(self, *[self.prepare(pos)] * 2)
        if needs == 1:
            return hooks.applied("on_embeddings", parts, first)
        return hooks.applied("on_queries", parts, first), hooks.applied("on_keys", parts, inputs[1])

    def _bias(self, q_pos: Positions, k_pos: KeyPositions | None = None) -> Tensor:
        """Return the bias (batch or 1, head, query, key) of an encoding that needs only positions.

        Raises TypeError if the bias also depends on queries or keys.
        """
        k_pos = q_pos if k_pos is None else k_pos
        q_at, k_at = self.prepare(q_pos), self.prepare(k_pos)
        if not q_pos.is_meta and any(weight.is_meta for weight in self.parameters()):
            raise ValueError(on_meta(self))
        queries, keys = (pos.shape[: pos.ndim - (self.axes > 1)] for pos in (q_pos, k_pos))
        if max(len(queries), len(keys)) > 3:
            raise ValueError(not_positions(q_pos.shape))
        batch = max(1 if len(shape) == 1 else shape[0] for shape in (queries, keys))
        shape = (batch, self.heads or 1, queries[-1], keys[-1])
        # q and k have no effect; float32 keeps the bias independent of torch's default dtype
        q, k = (
            torch.zeros(*shape[:2], n, self.dim or 1, dtype=torch.float32, device=q_pos.device)
            for n in shape[2:]
        )
        bias = hooks.bias_of(placed(self, q_at, k_at), q, k, scale=1.0)
        if bias is None or bias.distance is None:
            name = type(self).__name__
            raise TypeError(
                f"{name} cannot be called directly, because its bias depends on queries or keys."
                " Use `attend`."
            )
        return bias.block(ALL, ALL, None)


NEUTRAL = tuple([(hook, getattr(Encoding, hook)) for hook in HOOKS])


class Sum(Encoding):
    """Several encodings in one attention: `Sum(RoPE(64), ALiBi(8))`, or `RoPE(64) + ALiBi(8)`.

        Sum(a, b):  x → b(a(x)),  q → b(a(q)),  k → b(a(k)),  v → b(a(v)),  out → a(b(out)),
                    the results of `on_scores` and `by_weight` are added

    - `parts`: encodings, one argument each. A part that acts on scores receives queries and keys
      after all parts have encoded them

    Raises TypeError for a part that is not an encoding, and ValueError for parts of different sizes
    or axes.

    >>> from posenc import ALiBi, RoPE
    >>> Sum(RoPE(64), ALiBi(8)).acts_on
    ('on_queries', 'on_keys', 'on_scores')
    """

    prepared = Parts

    def __init__(self, *parts: Encoding):
        super().__init__()
        for part in parts:
            if not isinstance(part, Encoding):
                raise TypeError(
                    f"`parts` of `Sum` must be encodings, one argument each, got {brief(part)}."
                    " Write `Sum(RoPE(64), ALiBi(8))`, or `Sum(*encodings)` for a list."
                )
        if len({part.axes for part in parts}) > 1:
            axes = ", ".join(f"{type(part).__name__} {part.axes}" for part in parts)
            raise ValueError(
                "`parts` of `Sum` must have the same number of axes, because they receive the same"
                f" positions, got {axes}."
            )
        self.parts = nn.ModuleList(parts)
        self.width, self.dim, self.heads = (
            _size_of(parts, name) for name in ("width", "dim", "heads")
        )
        self.axes = parts[0].axes if parts else 1
        self.causal = any(part.causal for part in parts)
        self.by_length = any(part.by_length for part in parts)

    __repr__ = nn.Module.__repr__  # a line for each part

    def prepare(self, pos: Positions | Points) -> Parts:
        return self.of_parts(part.prepare(pos) for part in self)

    def of_parts(self, each: Iterable[Any]) -> Parts:
        """Return one object with the prepared positions of all encodings of this `Sum`.

        - `each`: one `at` per part, in their order
        """
        return (Parts if self.axes == 1 else PartsAtPoints)(tuple(each))

    def on_embeddings(self, x: Embeddings, at: Parts) -> Embeddings:
        return hooks.applied("on_embeddings", placed(self, at, at), x)

    def on_hidden(self, x: Embeddings, at: Parts) -> Parts:
        parts_at = zip(self, at.parts, strict=True)
        return self.of_parts(hooks.hidden(part, x, part_at) for part, part_at in parts_at)

    def on_queries(self, q: Heads, at: Parts) -> Wider:
        return hooks.applied("on_queries", placed(self, at, at), q)

    def on_keys(self, k: Heads, at: Parts) -> PerHead:
        return hooks.applied("on_keys", placed(self, at, at), k)

    def on_scores(self, q: Heads, k: Keys, q_at: Parts, k_at: Parts, scale: float) -> Bias | None:
        return hooks.bias_of(placed(self, q_at, k_at), q, k, scale)

    def on_values(self, v: Values, at: Parts) -> Values:
        return hooks.applied("on_values", placed(self, at, at), v)

    def by_weight(self, weights: Tensor, q_at: Parts, k_at: Parts, rows: slice) -> Tensor | None:
        return hooks.by_weight(placed(self, q_at, k_at), weights, rows)

    def on_output(self, out: Heads, at: Parts) -> Heads:
        return hooks.applied("on_output", placed(self, at, at), out)

    def scale(self, dim: int) -> float:
        """Return the softmax scale of the sum: 1/√dim times the factor of each encoding."""
        scale = usual = super().scale(dim)
        for part in self:
            scale *= part.scale(dim) / usual
        return scale

    def __add__(self, other: Encoding) -> "Sum":
        return Sum(*self, other) if isinstance(other, Encoding) else NotImplemented

    @property
    def acts_on(self) -> tuple[str, ...]:
        return tuple(hook for hook in HOOKS if any(hook in part.acts_on for part in self))

    def __iter__(self) -> Iterator[Encoding]:
        return iter(self.parts)  # type: ignore[arg-type]


def _size_of(parts: tuple[Encoding, ...], name: str) -> int:
    """Return the value of a size, such as `heads`, that all encodings share; 0 if none sets it."""
    sizes = {getattr(part, name): type(part).__name__ for part in parts if getattr(part, name)}
    if len(sizes) > 1:
        listed = ", ".join(f"{part} {size}" for size, part in sizes.items())
        raise ValueError(
            f"`parts` of `Sum` must have the same `{name}`, got {listed}. Create all parts with"
            f" the same `{name}`."
        )
    return next(iter(sizes), 0)


def leaves(encoding: Encoding) -> tuple[Encoding, ...]:
    """Flatten a possibly nested `Sum` into its encodings; any other encoding yields only itself.

    >>> [type(leaf).__name__ for leaf in leaves(Sum(Encoding(), Sum(Encoding(), Sum())))]
    ['Encoding', 'Encoding']
    """
    if not isinstance(encoding, Sum):
        return (encoding,)
    return tuple(leaf for part in encoding for leaf in leaves(part))


def placed(encoding: Encoding, at: Any, k_at: Any) -> list[hooks.Placed]:
    """Return the encodings in a `Sum`, each with its prepared positions of queries and keys."""
    if not isinstance(encoding, Sum):
        return [hooks.Placed(encoding, encoding.acts_on, at, k_at)]
    each = zip(encoding, at.parts, k_at.parts, strict=True)
    return [part for one in each for part in placed(*one)]
