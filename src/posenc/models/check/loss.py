"""Measure a model's loss, in bits per token, with its config and with changed configs.

The model is loaded once, with its head. `models.adapter` applies each changed config to the loaded
model. All configs are measured on the same excerpts of a text, so that losses can be compared
excerpt by excerpt, with a confidence interval. Most changes make the loss much higher. Their
measurement ends early, as soon as the difference is significant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import log, log2
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from posenc.analysis.student import t_quantile
from posenc.core.encoding import Encoding
from posenc.encodings.rotary.rope import RoPE
from posenc.models.adapter import applied
from posenc.models.check.variants import Variant
from posenc.models.config.parse import specify
from posenc.models.config.source import Source
from posenc.models.config.spec import Layer, Rotary, Spec
from posenc.models.files.errors import ModelError
from posenc.models.hf.loading import load, load_gguf
from posenc.models.layouts import permutation

TOKENS = 256  # tokens of an excerpt
EXCERPTS = 16  # number of excerpts
BATCH = 4
FIRST = 4  # excerpts after which the trial of a variant may be stopped
LEVEL = 0.95  # joint confidence level of the intervals of all changed configs
MARGIN = 0.02  # bits per token; a smaller difference does not count
LETTERS = 24  # characters of a text to tokenise for each token that is used

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Trial:
    """Loss of a model with one changed config, and the difference from the unchanged config."""

    kind: str
    name: str
    bits: float  # bits per token, over the excerpts of this trial
    excerpts: int  # number of excerpts
    difference: float = 0.0  # bits per token; above 0: worse than the config as written
    low: float = 0.0  # ends of the confidence interval
    high: float = 0.0
    losses: tuple[float, ...] = ()  # bits per token of each excerpt
    tokens: int = 0  # tokens of an excerpt
    by_frequency: float = float("inf")  # entropy of the token frequencies, bits per token

    @property
    def worse(self) -> bool:
        """True if the loss is significantly above that of the unchanged config, by over MARGIN."""
        return self.low > 0 and self.difference > MARGIN

    @property
    def better(self) -> bool:
        """True if the loss is significantly below that of the unchanged config, by over MARGIN."""
        return self.high < 0 and self.difference < -MARGIN

    @property
    def unsure(self) -> bool:
        """True if the loss is over MARGIN below the unchanged config's, but not significantly."""
        return self.difference < -MARGIN and not self.better

    def than(self, other: Trial, tests: int = 1) -> Trial:
        """Return this trial with its difference from `other`, on the excerpts that both measured.

        `tests` is the number of comparisons that share one joint confidence level.
        """
        pairs = zip(self.losses, other.losses, strict=False)
        mean, low, high = _interval([own - theirs for own, theirs in pairs], tests)
        return replace(self, difference=mean, low=low, high=high)


@dataclass(frozen=True)
class Opened:
    """Loaded causal language model, with its tokenizer and its specification."""

    model: Any
    tokenizer: Any
    spec: Spec

    def excerpts(self, letters: str, tokens: int, count: int) -> Tensor:
        """Return the token ids of evenly spaced excerpts of a text, (excerpt, token).

        Each excerpt starts with the model's first token, if it has one.
        """
        text = letters[: LETTERS * tokens * count]
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"][0]
        rows = self.model.get_input_embeddings().weight.shape[0]
        first = getattr(self.model.config, "bos_token_id", None)
        first = first if isinstance(first, int) and 0 <= first < rows else None
        size = tokens - (first is not None)
        if len(ids) < 2 * size or not 0 <= int(ids.min()) <= int(ids.max()) < rows:
            raise ModelError(
                "the text",
                "",
                f"must have at least {2 * size:,} tokens, got {len(ids):,}. Pass more text"
                if len(ids) < 2 * size
                else "has tokens outside the model's vocabulary. Use this model's tokenizer.json"
            )  # fmt: skip
        starts = torch.linspace(0, len(ids) - size, min(count, len(ids) // size)).long()
        cut = ids[starts[:, None] + torch.arange(size)]
        if first is not None:
            cut = torch.cat((torch.full_like(cut[:, :1], first), cut), -1)
        return cut.to(self.model.device)


@contextmanager
def opened(model: Path | Source, dtype: torch.dtype = torch.float32) -> Iterator[Opened]:
    """Load a model from a folder or a GGUF file, on a GPU if there is one, with weights in `dtype`.

    Raises ModelError for a model that cannot be read with certainty.
    """
    from transformers.utils import logging

    source = Source.of(model)
    logging.disable_progress_bar()
    if source.files.format != "gguf":
        module, tokenizer, _ = load(source.files.root, head=True, source=source)
        yield Opened(_placed(module, dtype), tokenizer, source.own_spec.text_stack)
        return
    module, tokenizer = load_gguf(source)
    yield Opened(_placed(module, dtype), tokenizer, _with_transformers_layout(source))


def _placed(model: Any, dtype: torch.dtype) -> Any:
    return model.to("cuda" if torch.cuda.is_available() else "cpu", dtype)


def _with_transformers_layout(source: Source) -> Spec:
    """Return the `Spec` of a GGUF file, but with the RoPE pair layout that transformers uses."""
    spec = source.own_spec.text_stack
    usual = specify(source.config("")).rotary

    def with_layout(layer: Layer) -> Layer:
        turn = layer.encoding
        if not isinstance(turn, Rotary) or not usual:
            return layer
        return replace(layer, encoding=replace(turn, layout=usual[0].layout))

    return replace(spec, layers=tuple(map(with_layout, spec.layers)))


def trials(
    opened: Opened,
    variants: list[Variant],
    ids: Tensor,
    progress: Progress = lambda doing, count, of: None,
    than: Variant | None = None,
) -> list[Trial]:
    """Measure the loss of a model with its config, and with each changed config.

    The first two trials are the unchanged config, applied by posenc and by transformers' own code.
    With `than`, that changed config takes the place of both, and the other losses are compared with
    its loss. Raises ModelError for a model whose encoding cannot be replaced.
    """
    as_written = Variant("as written", "as written", opened.spec)
    runs = Variant("as written", "as transformers runs it", opened.spec)
    first, others = (than, variants) if than else (as_written, [runs, *variants])
    total, count = len(others) + 1, len(ids)
    frequency = bits_by_frequency(ids[:, 1:].flatten().tolist())

    def trial(variant: Variant, losses: list[float]) -> Trial:
        return Trial(
            variant.kind, variant.name, fmean(losses), len(losses), losses=tuple(losses),
            tokens=ids.shape[-1], by_frequency=frequency,
        )  # fmt: skip

    progress(first.name, 0, total)
    found = [own := trial(first, [*_losses(opened, first, ids)])]
    for number, variant in enumerate(others):
        progress(variant.name, number + 1, total)
        losses: list[float] = []
        for loss in _losses(opened, None if variant is runs else variant, ids):
            losses.append(loss)
            low = trial(variant, losses).than(own, total).low
            if len(losses) >= min(FIRST, count) and low > MARGIN:
                break
        found.append(trial(variant, losses).than(own, total))
    progress("done", total, total)
    return found


def _losses(opened: Opened, variant: Variant | None, ids: Tensor) -> Iterator[float]:
    """Yield the loss of each excerpt in bits per token; `variant` None is the unchanged config."""
    for rows in ids.split(BATCH):
        if variant is None:
            yield from bits(opened.model, rows).mean(-1).tolist()
            continue
        change = partial(one_side, variant.rows) if variant.rows else None
        with read_as(opened, variant.spec, ids.shape[-1], change):
            yield from bits(opened.model, rows).mean(-1).tolist()


@contextmanager
def read_as(
    opened: Opened,
    spec: Spec,
    length: int,
    change: Callable[[Layer, Encoding], Encoding] | None = None,
) -> Iterator[None]:
    """Apply the encodings and windows of a specification to a model within a `with` block.

    `change` returns the encoding of a layer that is applied instead of its own.
    """
    settings = opened.model.config
    kept = getattr(settings, "sliding_window", None)
    windows = [layer.window for layer in spec.layers if layer.kind == "sliding_attention"]
    try:
        if kept and windows:
            settings.sliding_window = windows[0] or 2**30
        with ExitStack() as stack:
            try:
                encodings = spec.encodings(length, "half")
                attending = [layer for layer in spec.layers if layer.attends]
                if change:
                    encodings = [*map(change, attending, encodings)]
                stack.enter_context(applied(opened.model, encodings))
            except (TypeError, ValueError) as error:
                raise ModelError("config.json", "model_type", str(error)) from None
            yield
    finally:
        if kept and windows:
            settings.sliding_window = kept


class OneSide(Encoding):
    """RoPE for weights that store queries and keys in two different pair layouts."""

    def __init__(self, rope: RoPE, rows: str):
        super().__init__()
        self.rope, self.rows = rope, rows
        self.dim, self.axes = rope.dim, rope.axes
        self.softmax_scale = rope.softmax_scale
        self.order = permutation(rope.dim, rope.turned, rope.layout, rope.trailing)

    def prepare(self, pos: Tensor) -> Any:
        return self.rope.prepare(pos)

    def on_queries(self, q: Tensor, at: Any) -> Tensor:
        return self.rope.on_queries(q[..., self.order] if self.rows == "q" else q, at)

    def on_keys(self, k: Tensor, at: Any) -> Tensor:
        return self.rope.on_keys(k[..., self.order] if self.rows == "k" else k, at)

    def scale(self, dim: int) -> float:
        return self.rope.scale(dim)


def one_side(rows: str, _: Layer, encoding: Encoding) -> Encoding:
    """Return a RoPE for weights in which either q or k (see `rows`) has the other pair layout."""
    return OneSide(encoding, rows) if isinstance(encoding, RoPE) else encoding


@torch.no_grad()
def bits(model: Any, ids: Tensor) -> Tensor:
    """Return the loss of each token except the first, in bits, (excerpt, token)."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    losses = [
        torch.nn.functional.cross_entropy(row.float(), right[1:], reduction="none")
        for row, right in zip(logits, ids, strict=True)
    ]
    return torch.stack(losses) / log(2)


def _interval(differences: list[float], tests: int) -> tuple[float, float, float]:
    """Return the mean of differences and the ends of its confidence interval.

    The confidence level holds jointly for `tests` intervals (Bonferroni).
    """
    mean, count, half = fmean(differences), len(differences), float("inf")
    if count > 1:
        t = t_quantile(1 - (1 - LEVEL) / (2 * tests), count - 1)
        half = t * stdev(differences) / count**0.5
    return mean, mean - half, mean + half


def bits_by_frequency(ids: list[int]) -> float:
    """Return the entropy of the token frequencies of a text, in bits per token."""
    shares = [count / len(ids) for count in Counter(ids).values()]
    return -sum(share * log2(share) for share in shares)
