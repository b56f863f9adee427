"""Promises: requirements of attention, caches and packed texts that every encoding must meet.

A promise is a function of a `Case`, an encoding at certain sizes. It yields pairs of tensors that
must be equal, each with a description of the first. It yields nothing if the sizes are too small,
and raises `NotApplicable` if the requirement does not concern the encoding.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from posenc.attention.attend import attend
from posenc.attention.cache import Cache
from posenc.attention.call import Implementation
from posenc.attention.dispatch import PATHS as ALL_PATHS
from posenc.attention.layer import SelfAttention
from posenc.compat.private_torch import DispatchMode, tensors_in, tree_map
from posenc.core import masks, positions
from posenc.core.biases import ALL, as_bias
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.prepared import slice_tokens, where_tokens
from posenc.properties.card import Card
from posenc.properties.probe import in_float64

ONLY_COMPILED = frozenset({"flex"})
PATHS = ("auto", *[path for path in ALL_PATHS if path not in ONLY_COMPILED])
HEADS = "batch head token channel"
TEXT = "batch token channel"
OF_TOKENS = ("on_embeddings", "on_queries", "on_keys", "on_values", "on_output")
SHORT = 64  # tokens
LONGEST = 310  # tokens
FAR, VERY_FAR, MOST = 10**6, 3 * 10**9, 2**22  # positions; `Probe` tests positions below `MOST`
PADDED: tuple[positions.Side, ...] = ("left", "right")


class NotApplicable(Exception):
    """An exception for promises that do not concern an encoding; its message is the reason."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of the random input of a test: texts, tokens and heads."""

    batch: int
    tokens: int
    heads: int

    def __str__(self) -> str:
        texts = "1 text" if self.batch == 1 else f"{self.batch} texts"
        tokens = "1 token" if self.tokens == 1 else f"{self.tokens} tokens"
        return f"{texts} of {tokens}, {self.heads} head{'s' * (self.heads > 1)}"


class TensorPair(NamedTuple):
    """Two tensors that must be equal if the promise is kept."""

    what: str  # description of `actual`
    actual: Tensor
    expected: Tensor
    axes: str = HEADS
    tolerance: float | None = None  # None: the tolerance of the dtype
    unit: float = 0.0  # smallest unit of differences, which are relative to the largest `expected`


Pairs = Iterator[TensorPair]


class Promise(Protocol):
    """The type of a promise: a function that yields the tensors which must be equal."""

    __name__: str

    def __call__(self, case: "Case", /) -> Pairs: ...


@dataclass(frozen=True)
class Case:
    """A test case: an encoding and its sizes, to make layers with random projections."""

    card: Card
    constructor_dim: int  # `dim` of the constructor; for additive encodings it may be the width
    dim: int
    sizes: Sizes
    dtype: torch.dtype
    dtypes: tuple[torch.dtype, ...]
    limit: int  # positions 0 … limit − 1 are accepted
    axes: int
    causal: bool
    seed: int

    def encoding(self) -> Encoding:
        """Return a new encoding, with random values in place of parameters that are 0.

        A parameter that is all zero would hide errors.
        """
        encoding = self.card.make(self.constructor_dim, self.sizes.heads)
        with torch.no_grad():
            for parameter in encoding.parameters():
                if not parameter.is_meta and not parameter.any():
                    parameter.normal_(std=0.5)
        return in_float64(encoding) if self.dtype == torch.float64 else encoding

    def layer(self, groups: int | None = None) -> SelfAttention:
        """Return a layer in `dtype` with a new encoding."""
        heads, encoding = self.sizes.heads, self.encoding()
        return SelfAttention(heads * self.dim, heads, encoding, groups).to(self.dtype).eval()

    def x(self, tokens: int | None = None) -> Tensor:
        tokens = self.sizes.tokens if tokens is None else tokens
        return torch.randn(self.sizes.batch, tokens, self.sizes.heads * self.dim, dtype=self.dtype)

    def line(self, tokens: int | None = None, start: int = 0) -> Tensor:
        """Return the positions 0, 1, 2, …; with several axes, the points of a square or cube."""
        stop = start + (self.sizes.tokens if tokens is None else tokens)
        return positions.folded(max(144, stop), self.axes)[start:stop]

    def lines(self, several: int) -> Tensor:
        """Return different positions for several texts.

        Texts alternate between the positions 0, 1, 2, … and 1, 3, 5, …
        """
        return torch.stack([self.line() * (row % 2 + 1) + row % 2 for row in range(several)])

    @property
    def mask(self) -> Mask | None:
        return masks.causal() if self.causal else None

    @property
    def masks(self) -> dict[str, Mask | None]:
        """The attention masks to test, by name.

        A single token or a long text is tested only with a window, to save time.
        """
        near: dict[str, Mask | None] = {"in a causal window": masks.causal() & masks.window(3)}
        if self.sizes.tokens == 1 or self.sizes.tokens > SHORT:
            return near
        all_pairs = {} if self.causal else {"without a mask": None}
        return all_pairs | {"under a causal mask": masks.causal()} | near


def paths(case: Case) -> Pairs:
    """Every implementation of attention equals the definition, forward and backward."""
    layer, x, pos = case.layer(), case.x().requires_grad_(), case.line()
    for where, mask in case.masks.items():
        yield from _as_defined(layer, x, where, partial(attended, layer, x, pos, mask=mask))
    if not case.causal:
        other, keys = case.x(case.sizes.tokens + 1), case.line(case.sizes.tokens + 1)
        apart = partial(attended, layer, x, pos + 1, other=other, k_pos=keys)
        yield from _as_defined(layer, x, "to the keys of another text", apart)


def cache(case: Case) -> Pairs:
    """A text read token by token with a `Cache` gives the same result as a single call."""
    if case.sizes.tokens < 2:
        return
    layer, x, pos = case.layer(), case.x(), case.line()
    if layer.encoding.by_length:
        raise NotApplicable("the encoding depends on the length of the text, so a cache rejects it")
    whole = layer(x, pos, masks.causal(), "reference")
    first = max(1, case.sizes.tokens - 4)
    for path, parts in by_path(partial(_decoded, layer, x, pos, first)):
        yield TensorPair(f"token by token with a cache, path {path!r}", parts, whole, TEXT)


def packed_texts(case: Case) -> Pairs:
    """Documents packed in one sequence give the same result as a separate call for each."""
    tokens = case.sizes.tokens
    if tokens < 2:
        return
    lengths = [n for n in (tokens // 2, tokens - tokens // 2 - tokens // 8, tokens // 8) if n]
    layer, x = case.layer(), case.x()
    if layer.encoding.by_length:
        raise NotApplicable("the encoding depends on the length of the whole packed sequence")
    pos = torch.cat([case.line(n) for n in lengths])
    mask = masks.causal() & masks.documents(positions.documents(lengths))
    alone = [
        attended(layer, text, case.line(text.shape[1]), masks.causal(), "reference")
        for text in x.split(lengths, 1)
    ]
    for path, row in by_path(partial(attended, layer, x, pos, mask=mask)):
        what = f"documents of {lengths} tokens in one sequence, path {path!r}"
        yield TensorPair(what, row, torch.cat(alone, 2))


def padding(case: Case) -> Pairs:
    """Padding to the left or the right of a text does not change its result."""
    batch, tokens = case.sizes.batch, case.sizes.tokens
    if tokens < 2:
        return
    lengths = [tokens] * (batch - 1) + [tokens - max(1, tokens // 3)]
    for side in PADDED:
        layer, x = case.layer(), case.x()
        index = positions.padded(lengths, side, tokens)
        pos = case.line()[index]
        text = slice(-lengths[-1], None) if side == "left" else slice(lengths[-1])
        filling = slice(-lengths[-1]) if side == "left" else slice(lengths[-1], None)
        x[-1, filling] *= 50
        mask = masks.causal(index) & masks.padding(lengths, side, tokens)
        alone = attended(layer, x[-1:, text], case.line(lengths[-1]), masks.causal(), "reference")
        for path, out in by_path(partial(attended, layer, x, pos, mask=mask)):
            what = f"a text of {tokens} tokens with padding on the {side}, path {path!r}"
            yield TensorPair(what, out[-1:, :, text], alone)


def batches(case: Case) -> Pairs:
    """A text gives the same result alone and in a batch, with shared or separate positions."""
    layer, x, texts = case.layer(), case.x(), range(case.sizes.batch)
    both = {"the same positions": case.line().expand(len(x), *case.line().shape)}
    for which, pos in (both | {"separate positions": case.lines(len(x))}).items():
        alone = [attended(layer, x[[n]], pos[n], case.mask, "reference") for n in texts]
        for path, out in by_path(partial(attended, layer, x, pos, mask=case.mask)):
            what = f"in a batch where texts have {which}, path {path!r}"
            yield TensorPair(what, out, torch.cat(alone))


def positions_by_head(case: Case) -> Pairs:
    """Per-head positions give the same result as running each head alone."""
    layer, x, heads = case.layer(), case.x(), range(case.sizes.heads)
    if "on_embeddings" in layer.encoding.acts_on:
        raise NotApplicable("the encoding acts on embeddings, which are not split into heads")
    pos = case.lines(case.sizes.heads)
    alike = [attended(layer, x, pos[h], case.mask, "reference")[:, [h]] for h in heads]
    for path, out in by_path(partial(attended, layer, x, pos[None], mask=case.mask)):
        yield TensorPair(f"heads with separate positions, path {path!r}", out, torch.cat(alike, 1))


def grouped_heads(case: Case) -> Pairs:
    """Shared keys and values give the same result as a copy of both for each query head."""
    if case.sizes.heads < 2:
        return
    for groups in [n for n in range(1, case.sizes.heads) if case.sizes.heads % n == 0]:
        layer, copies = case.layer(groups), case.sizes.heads // groups
        q, k, v, at = projected(layer, case.x(), case.line())
        compute = partial(attend, encoding=layer.encoding, at=at, mask=case.mask)
        each_k, each_v = (heads.repeat_interleave(copies, 1) for heads in (k, v))
        expected = compute(q, each_k, each_v, implementation="reference")
        for path, out in by_path(partial(compute, q, k, v)):
            what = f"{case.sizes.heads} query heads with {groups} key heads, path {path!r}"
            yield TensorPair(what, out, expected)


def dtypes(case: Case) -> Pairs:
    """Outputs have the dtype of the inputs, and are close to a computation in float64."""
    for dtype in case.dtypes:
        if dtype == case.dtype:
            continue
        layer = replace(case, dtype=dtype).layer()
        exact = deepcopy(layer).to(case.dtype)
        tolerance, x, pos = 16 * torch.finfo(dtype).eps, case.x().to(dtype), case.line()
        at, exact_at = layer.encoding.prepare(pos), exact.encoding.prepare(pos)
        added = layer.encoding.on_embeddings(x, at)
        expected = exact.encoding.on_embeddings(x.to(case.dtype), exact_at).to(dtype)
        yield TensorPair(f"embeddings in {dtype}", added, expected, TEXT, tolerance)
        q, k, v, at = layer.project(added, at)
        exact_at = exact.encoding.on_hidden(added.to(case.dtype), exact_at)
        exact_q, exact_k, exact_v = (heads.to(case.dtype) for heads in (q, k, v))
        compute = partial(attend, encoding=layer.encoding, at=at, mask=case.mask)
        right = partial(attend, encoding=exact.encoding, at=exact_at, mask=case.mask)
        expected = right(exact_q, exact_k, exact_v, implementation="reference").to(dtype)
        for path, out in by_path(partial(compute, q, k, v)):
            yield TensorPair(f"in {dtype}, path {path!r}", out, expected, tolerance=tolerance)


def token_by_token(case: Case) -> Pairs:
    """The result of a hook for one token does not depend on the other tokens or on their order.

    `on_hidden` may depend on earlier tokens, so only later tokens are left out for it.
    """
    tokens = case.sizes.tokens
    if tokens < 2:
        return
    pos, x, last = case.line(), case.x(), torch.arange(tokens // 2, tokens)
    encoding = case.layer().encoding
    if not {*encoding.acts_on} & {*OF_TOKENS, "on_hidden"}:
        raise NotApplicable("the encoding acts on scores only")
    orders = {"in reverse": torch.arange(tokens).flip(0), "without those before": last}
    if "on_hidden" in encoding.acts_on:
        at = encoding.on_hidden(x, encoding.prepare(pos))
        first = encoding.on_hidden(x[:, : tokens // 2], encoding.prepare(pos[: tokens // 2]))
        place = where_tokens(case.axes)
        start = tensors_in(slice_tokens(at, slice(tokens // 2), place))
        for whole, alone in zip(start, tensors_in(first), strict=True):
            yield TensorPair("`on_hidden` of tokens without those that follow", alone, whole, "")
        ats = {"without those before": slice_tokens(at, slice(tokens // 2, None), place)}
    else:
        at = encoding.prepare(pos)
        ats = {name: encoding.prepare(pos[order]) for name, order in orders.items()}
    heads = torch.randn(case.sizes.batch, case.sizes.heads, tokens, case.dim, dtype=case.dtype)
    for hook in OF_TOKENS:
        if hook not in encoding.acts_on:
            continue
        apply, given = getattr(encoding, hook), x if hook == "on_embeddings" else heads
        whole = apply(given, at)
        for name, some in ats.items():
            alone = apply(given[..., orders[name], :], some)
            axes = TEXT if hook == "on_embeddings" else HEADS
            yield TensorPair(f"`{hook}` of tokens {name}", alone, whole[..., orders[name], :], axes)


def queries_without_keys(case: Case) -> Pairs:
    """The output of a query that sees no key is 0, and all gradients are finite."""
    layer, x, tokens = case.layer(), case.x().requires_grad_(), case.sizes.tokens
    blind = masks.Mask(lambda b, h, i, j: (i != tokens // 2) & (j <= i))
    learned = [x, *learning(layer).values()]
    for path, out in by_path(partial(attended, layer, x, case.line(), mask=blind)):
        what, alone = f"a query that sees no key, path {path!r}", out[..., tokens // 2, :]
        yield TensorPair(what, alone, torch.zeros_like(alone), "batch head channel", unit=1.0)
        for gradient in _gradients(out.sum(), learned):
            finite = gradient.isfinite().to(case.dtype)
            yield TensorPair(f"{what}: finite gradients", finite, torch.ones_like(finite), "")


def parameters_learn(case: Case) -> Pairs:
    """Every parameter receives a gradient."""
    layer = case.layer()
    named = learning(layer)
    if not named:
        raise NotApplicable("the encoding has no trainable parameters")
    out = attended(layer, case.x(), case.line(), masks.causal(), "reference")
    for name, gradient in zip(
        named, _gradients(out.square().sum(), [*named.values()]), strict=True
    ):
        some = gradient.count_nonzero().clamp_max(1)
        yield TensorPair(f"whether `{name}` gets a gradient", some, torch.ones_like(some), "")


def no_hidden_state(case: Case) -> Pairs:
    """The result of a call depends on its inputs alone, and inputs are not changed."""
    layer, x, pos = case.layer(), case.x(), case.line()
    x_before, pos_before = x.clone(), pos.clone()
    first = attended(layer, x, pos, case.mask)
    yield TensorPair("the input of the layer after the call", x, x_before, TEXT, 0.0)
    yield TensorPair("the positions after the call", pos, pos_before, "token axis", 0.0)
    attended(layer, 2 * case.x(), case.line(start=1), case.mask)
    again = attended(layer, x, pos, case.mask)
    yield TensorPair("the same call after another one", again, first, tolerance=0.0)
    q, k, v, at = projected(layer, x, pos)
    weights = dict(layer.encoding.named_parameters())
    given = {"q": q, "k": k, "v": v, "the positions": pos} | weights
    given |= {f"part {n} of `at`": part for n, part in enumerate(tensors_in(at))}
    before = {name: value.detach().clone() for name, value in given.items()}
    attend(q, k, v, layer.encoding, at, mask=case.mask)
    for name, value in given.items():
        yield TensorPair(f"{name} after attention", value.detach(), before[name], "", 0.0)


def gradients(case: Case) -> Pairs:
    """Gradients of x, q, k, v and parameters equal finite differences."""
    tokens = min(4, case.sizes.tokens)
    layer, x, pos = case.layer(), case.x(tokens), case.line(tokens)
    q, k, v, _ = projected(layer, x, pos)
    moved = {
        "x": x,
        **{name: torch.zeros_like(y) for name, y in zip("qkv", (q, k, v), strict=True)},
    }
    moved |= learning(layer)
    weights = torch.randn(*q.shape[:3], v.shape[-1], dtype=case.dtype)

    def loss() -> Tensor:
        *heads, at = projected(layer, moved["x"], pos)
        q, k, v = (y + moved[name] for name, y in zip("qkv", heads, strict=True))
        out = attend(q, k, v, layer.encoding, at, mask=case.mask, implementation="reference")
        return (out * weights).sum()

    for x in moved.values():
        x.requires_grad_()
    found = dict(zip(moved, _gradients(loss(), [*moved.values()]), strict=True))
    step, tolerance = (1e-3, 1e-2) if case.dtype == torch.float64 else (1e-2, 0.1)
    # A slope much smaller than all others may consist of rounding errors
    along = {name: torch.randn_like(x) / x.numel() ** 0.5 for name, x in moved.items()}
    slopes = {name: (found[name] * along[name]).sum() for name in moved}
    unit = max(float(slope.abs()) for slope in slopes.values()) / 20

    def measured(name: str, step: float) -> Tensor:
        x, ends = moved[name], []
        with torch.no_grad():
            before = x.clone()
            for sign in (1, -1):
                x.copy_(before + sign * step * along[name])
                ends.append(loss())
            x.copy_(before)
        return (ends[0] - ends[1]) / (2 * step)

    for name, slope in slopes.items():
        found_slope = measured(name, step)
        # A step across a kink, as of a ReLU, measures the mean of two slopes
        if (found_slope - slope).abs() > tolerance * max(float(found_slope.abs()), unit):
            found_slope = measured(name, step / 10)
        yield TensorPair(f"the slope along `{name}`", slope, found_slope, "", tolerance, unit)


def precision(case: Case) -> Pairs:
    """Results at near and far positions equal a computation in float64 and int64."""
    if case.dtype != torch.float64:
        raise NotApplicable("precision is tested in float64")
    layer, tokens = case.layer(), min(8, case.sizes.tokens)
    x, near = case.x(tokens), case.line(tokens)
    for start in (0, FAR, VERY_FAR):
        if start + tokens > case.limit and case.limit < MOST:
            start = case.limit - tokens
        pos = near + start
        try:
            rounded = _hooked(layer, x, pos.clone())
        except (IndexError, ValueError):
            if start:
                continue
            raise
        pos = pos.clone()
        with _Wide(pos):
            exact = _hooked(layer, x, pos)
        for hook, right in exact.items():
            if right.isfinite().all():
                what = f"`{hook}` at positions from {start:,}"
                yield TensorPair(what, rounded[hook].to(right.dtype), right, HEADS, 1e-4)


def changed_weights(case: Case) -> Pairs:
    """After its weights change, a layer gives the same result as a new layer with the weights."""
    used, x, pos = case.layer(), case.x(), case.line()
    if not [*used.encoding.parameters()]:
        raise NotApplicable("the encoding has no parameters")
    fresh = deepcopy(used)
    attended(used, x, pos, case.mask)
    with torch.no_grad():
        attended(used, x, pos, case.mask)
        both = zip(used.encoding.parameters(), fresh.encoding.parameters(), strict=True)
        for mine, other in both:
            mine.mul_(1.25).add_(0.1)
            other.copy_(mine)
        for path, out in by_path(partial(attended, used, x, pos, case.mask)):
            expected = attended(fresh, x, pos, case.mask, "reference")
            yield TensorPair(f"after the weights have changed, path {path!r}", out, expected)


def long_texts(case: Case) -> Pairs:
    """The start of a text gives the same result alone, in longer texts and at far positions."""
    if case.sizes.tokens < 2:
        return
    texts, tokens = 3, min(LONGEST, case.limit // 4)
    start = max(0, min(FAR, case.limit - 2 * tokens - 1))
    layer = case.layer()
    if layer.encoding.by_length:
        raise NotApplicable("the encoding depends on the length of the text")
    x = torch.randn(texts, tokens, case.sizes.heads * case.dim, dtype=case.dtype)
    near = case.line(tokens)
    with torch.no_grad():
        for origin in dict.fromkeys((start, 0)):
            pos = torch.stack([near * (row + 1) // 2 + origin for row in (1, 2, 3)])
            whole = attended(layer, x, pos, masks.causal(), "reference")
            few = min(40, tokens // 2)
            alone = attended(layer, x[1:2, :few], pos[1, :few], masks.causal(), "reference")
            far = f"{texts} texts of {tokens} tokens at positions from {origin:,}"
            if origin and not alone.isfinite().all():
                # Values that grow with the position overflow here, so there is nothing to compare
                continue
            finite = whole.isfinite()
            yield TensorPair(f"finite numbers in {far}", finite, torch.ones_like(finite))
            yield TensorPair(f"the first {few} tokens of {far}", whole[1:2, :, :few], alone)


def training_mode(case: Case) -> Pairs:
    """A layer in training mode equals one in `eval()`, unless it draws random numbers."""
    layer, x, pos = case.layer(), case.x(), case.line()
    expected = attended(layer, x, pos, case.mask, "reference")
    layer.train()
    first, again = (attended(layer, x, pos, case.mask, "reference") for _ in range(2))
    if not first.equal(again):
        raise NotApplicable("the encoding draws random numbers in training")
    yield TensorPair("in training", first, expected)


def compiled(case: Case) -> Pairs:
    """`torch.compile` creates one graph for all lengths."""
    layer = case.layer()
    graph = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    for tokens in (case.sizes.tokens, case.sizes.tokens + 1):
        x, pos = case.x(tokens), case.line(tokens)
        expected = layer(x, pos, case.mask)
        yield TensorPair(f"compiled, {tokens} tokens", graph(x, pos, case.mask), expected, TEXT)


def exported(case: Case) -> Pairs:
    """`torch.export` creates one program for all lengths."""
    module, tokens = _Masked(case.layer(), case.mask), case.sizes.tokens
    dynamic = torch.export.Dim("tokens", min=2, max=max(tokens + 2, min(case.limit, 128)))
    program = torch.export.export(
        module, (case.x(), case.line()), dynamic_shapes=({1: dynamic}, {0: dynamic}), strict=False
    ).module()
    x, pos = case.x(tokens + 1), case.line(tokens + 1)
    yield TensorPair(f"exported, {tokens + 1} tokens", program(x, pos), module(x, pos), TEXT)


PROMISES: tuple[Promise, ...] = (
    paths, cache, packed_texts, padding, batches, positions_by_head, grouped_heads, dtypes,
    token_by_token, queries_without_keys, parameters_learn, no_hidden_state,
    gradients, precision, changed_weights, long_texts, training_mode,
)  # fmt: skip
TRACED: tuple[Promise, ...] = (compiled, exported)
NOT_IN_A_STUDY = (positions_by_head, grouped_heads, dtypes, precision)
IN_A_STUDY = tuple([promise for promise in PROMISES if promise not in NOT_IN_A_STUDY])


BY_ITSELF = "Compute the result for a token only from the token and its position, not its index"
SHAPES = (
    "Index positions by their last axis, `q_at[..., :, None] - k_at[..., None, :]`. Hooks receive"
    " them as (batch or 1, head or 1, token), and `on_embeddings` as (batch or 1, token)."
)
REMEDIES = {
    "runs": "Let each hook return the shape and the dtype that `help(posenc.Encoding)` states.",
    "paths": "Let all forms of the bias (`block`, `pair`, `distance`) be the same function of the"
    " positions that the hook receives.",
    "cache": f"{BY_ITSELF}; if a result must depend on the length, set `by_length = True`.",
    "packed_texts": f"{BY_ITSELF}, because the sequence contains other documents.",
    "padding": f"{BY_ITSELF}, because the sequence contains padding.",
    "batches": "Compute each text only from itself and its own positions.",
    "positions_by_head": "Compute each head from its own positions, (batch, head, token).",
    "grouped_heads": "Repeat keys that heads share with"
    " `k.repeat_interleave(q.shape[1] // k.shape[1], 1)`.",
    "dtypes": "Compute in float32 or float64, and end with `.to(q.dtype)`.",
    "token_by_token": f"{BY_ITSELF}; mix tokens in the model, outside of attention.",
    "queries_without_keys": "Let `on_output` return 0 for an input of 0, and do not divide by sums"
    " that can be 0.",
    "parameters_learn": "Use the parameter itself, without `.detach()`, `.data`, `.item()` or"
    " `torch.no_grad()`.",
    "no_hidden_state": "Do not write to the arguments of a hook (`x + 1`, not `x.add_(1)`), and"
    " store nothing in `self` between calls.",
    "gradients": "Correct the `backward` of your autograd function, or remove `.detach()`.",
    "precision": "Compute with positions in float64 or int64 and round the result once, as in"
    " `(at.double()[..., None] * theta).cos().to(q.dtype)`.",
    "changed_weights": "Compute everything that depends on weights in every call, and do not store"
    " it in `self`.",
    "long_texts": "Make results independent of the number of tokens and texts, and finite at every"
    " distance.",
    "training_mode": "Use `self.training` only for random numbers, such as dropout.",
    "compiled": "Do not read values of tensors in Python (`float(x)`, `if x.sum() > 0`).",
    "exported": "Do not read values of tensors in Python, and do not fix a length.",
}


def shapes_differ(case: Case) -> bool:
    """Test whether adding a batch or head axis to the positions changes the output or fails.

    The positions themselves are the same.
    """
    layer, x, pos = case.layer(), case.x(), case.line()
    texts, heads, shape = case.sizes.batch, case.sizes.heads, pos.shape
    try:
        expected, again = (attended(layer, x, pos, case.mask, "reference") for _ in range(2))
    except Exception:
        # Code of the user may raise anything.
        return False
    if not again.equal(expected):
        return False
    several = [pos.expand(texts, *shape)]
    if "on_embeddings" not in layer.encoding.acts_on:
        several.append(pos.expand(texts, heads, *shape))
    try:
        outs = [attended(layer, x, one, case.mask, "reference") for one in several]
    except Exception:
        # Code of the user may raise anything.
        return True
    return not all([out.allclose(expected) for out in outs])


class _Masked(nn.Module):
    def __init__(self, layer: SelfAttention, mask: Mask | None):
        super().__init__()
        self.layer, self.mask = layer, mask

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.layer(x, pos, self.mask)


def projected(layer: SelfAttention, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor, Any]:
    """Return q, k, v of tokens at `pos`, and the prepared positions that the hooks receive."""
    at = layer.encoding.prepare(pos)
    return layer.project(layer.encoding.on_embeddings(x, at), at)


def attended(
    layer: SelfAttention,
    x: Tensor,
    pos: Tensor,
    mask: Mask | None = None,
    implementation: Implementation = "auto",
    other: Tensor | None = None,
    k_pos: Tensor | None = None,
) -> Tensor:
    """Return attention from x to itself, or to the tokens `other` at positions `k_pos`."""
    q, k, v, at = projected(layer, x, pos)
    k_at = None
    if other is not None and k_pos is not None:
        _, k, v, k_at = projected(layer, other, k_pos)
    return attend(q, k, v, layer.encoding, at, k_at, mask, implementation=implementation)


def by_path(compute: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the result of each attention implementation that supports this call."""
    for path in PATHS:
        try:
            out = compute(implementation=path)
        except ValueError as error:
            if f'implementation="{path}"' in str(error):
                continue
            raise
        yield path, out


def learning(layer: SelfAttention) -> dict[str, Tensor]:
    """Return the trainable parameters of the encoding by name."""
    return {name: p for name, p in layer.encoding.named_parameters() if p.requires_grad}


def _as_defined(layer: SelfAttention, x: Tensor, where: str, compute: Callable[..., Any]) -> Pairs:
    """Compare the outputs and gradients of every implementation with those of the reference."""
    learned = {"x": x} | learning(layer)
    expected = compute(implementation="reference")
    weights = torch.randn_like(expected)
    gradients = _gradients((expected * weights).sum(), [*learned.values()])
    # A gradient much smaller than all other numbers may consist of rounding errors
    unit = max(float(x.detach().abs().max()) for x in (expected, *gradients)) / 10
    for path, out in by_path(compute):
        yield TensorPair(f"{where}, path {path!r}", out, expected)
        its = _gradients((out * weights).sum(), [*learned.values()])
        for name, actual, right in zip(learned, its, gradients, strict=True):
            what = f"the gradient of `{name}` {where}, path {path!r}"
            yield TensorPair(what, actual, right, "", unit=unit)
    with torch.no_grad():
        without = [*by_path(compute)]
    for path, out in without:
        yield TensorPair(f"{where}, without gradients, path {path!r}", out, expected)


def _hooked(layer: SelfAttention, x: Tensor, pos: Tensor) -> dict[str, Tensor]:
    """Return the result of each hook that the encoding overrides, by name, for the input x."""
    encoding = layer.encoding
    acts_on, at = encoding.acts_on, encoding.prepare(pos)
    made = {}
    with torch.no_grad():
        if "on_embeddings" in acts_on:
            made["on_embeddings"] = encoding.on_embeddings(x, at)
        q, k, v, at = layer.project(x, at)
        scale = encoding.scale(q.shape[-1])
        for hook, heads in (("on_queries", q), ("on_keys", k), ("on_values", v), ("on_output", q)):
            if hook in acts_on:
                made[hook] = getattr(encoding, hook)(heads, at)
        if "on_scores" in acts_on:
            q, k = made.get("on_queries", q), made.get("on_keys", k)
            bias = as_bias(encoding.on_scores(q, k, at, at, scale), q, k)
            seen = torch.ones(q.shape[-2], k.shape[-2]).tril().bool()
            if bias is not None:
                block = bias.block(ALL, ALL, seen.view(1, 1, *seen.shape))
                made["on_scores"] = block.masked_fill(~seen, 0)
    return made


class _Wide(DispatchMode):
    """A dispatch mode that computes in float64 and int64 everything that depends on `pos`.

    Constants that do not depend on positions, such as frequencies in float32, are not converted.
    """

    def __init__(self, pos: Tensor):
        super().__init__()
        self.from_positions = {id(pos): pos}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = tensors_in((args, kwargs))
        follows = any([id(x) in self.from_positions for x in inputs])
        if follows and not func._schema.is_mutable:
            args, kwargs = tree_map(_wide, (args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if follows:
            # Keep each tensor alive, so that no other tensor gets the same id
            self.from_positions |= {id(x): x for x in tensors_in(out)}
        return out


def _wide(x: Any) -> Any:
    if isinstance(x, torch.dtype):
        return WIDE.get(x, x)
    return x.to(WIDE[x.dtype]) if isinstance(x, Tensor) and x.dtype in WIDE else x


WIDE = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
WIDE |= dict.fromkeys((torch.int8, torch.uint8, torch.int16, torch.int32), torch.int64)


def _gradients(of: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of a scalar; 0 for inputs on which it does not depend."""
    if not of.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    gradients = torch.autograd.grad(of, inputs, allow_unused=True)
    pairs = zip(inputs, gradients, strict=True)
    return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in pairs]


def _decoded(
    layer: SelfAttention, x: Tensor, pos: Tensor, first: int, implementation: Implementation
) -> Tensor:
    """Run the layer with a cache: on `first` tokens of x, then two, then one at a time."""
    cache, starts = Cache(), [0, first, *range(first + 2, x.shape[1])]
    ends = [*starts[1:], x.shape[1]]
    parts = [
        layer(x[:, some], pos[some], masks.causal(), implementation, cache)
        for some in map(slice, starts, ends)
    ]
    return torch.cat(parts, 1)
