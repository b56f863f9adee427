"""Measure by how many bits a token a model predicts stretches of a text, under several readings.

The model is loaded once, with its head, and each reading is plugged into it (`models.adapter`). The
same stretches are read under each, so that what differs is the reading: of each pair of losses
counts the difference, with an interval over stretches. Most readings are far worse, and are given
up as soon as that is sure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
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
from posenc.models.check.readings import Reading
from posenc.models.config.parse import specify
from posenc.models.config.source import Source
from posenc.models.config.spec import Layer, Rotary, Spec
from posenc.models.files.errors import ModelError
from posenc.models.hf.loading import load, load_gguf
from posenc.models.layouts import permutation

TOKENS = 256  # tokens of a stretch
STRETCHES = 16
BATCH = 4
FIRST = 4  # stretches after which a reading may be given up
LEVEL = 0.95  # joint level of the intervals of all readings
MARGIN = 0.02  # bits a token: what is closer is not told from what was trained
LETTERS = 24  # at most as many letters of a text are made into tokens for each one that is read

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Trial:
    """One reading: its loss, and by how much it is worse than the config as it is read."""

    kind: str
    name: str
    bits: float  # a token, over the stretches that it read
    stretches: int
    difference: float = 0.0  # bits a token; above 0: worse than as read
    low: float = 0.0  # ends of the interval
    high: float = 0.0
    losses: tuple[float, ...] = ()  # bits a token of each stretch
    tokens: int = 0  # of a stretch
    by_frequency: float = float("inf")  # bits a token, told only how often each one occurs

    @property
    def worse(self) -> bool:
        """True where it predicts worse, surely and by more than a near reading may."""
        return self.low > 0 and self.difference > MARGIN

    @property
    def better(self) -> bool:
        """True where it predicts better, surely and by more than a near reading may."""
        return self.high < 0 and self.difference < -MARGIN

    @property
    def unsure(self) -> bool:
        """True where it seems better, and more stretches would have to say."""
        return self.difference < -MARGIN and not self.better

    def than(self, other: Trial, tests: int = 1) -> Trial:
        """Return the trial as it compares with another one, over the stretches that both read.

        `tests` is the number of comparisons whose intervals hold together.
        """
        pairs = zip(self.losses, other.losses, strict=False)
        mean, low, high = _interval([own - theirs for own, theirs in pairs], tests)
        return replace(self, difference=mean, low=low, high=high)


@dataclass(frozen=True)
class Opened:
    """A model that predicts the next token, its tokenizer, and its spec in transformers' layout."""

    model: Any
    tokenizer: Any
    spec: Spec

    def stretches(self, letters: str, tokens: int, count: int) -> Tensor:
        """Token ids (stretch, token), evenly spread over a text, each after the first token."""
        taken = letters[: LETTERS * tokens * count]
        ids = self.tokenizer(taken, add_special_tokens=False)["input_ids"][0]
        rows = self.model.get_input_embeddings().weight.shape[0]
        first = getattr(self.model.config, "bos_token_id", None)
        first = first if isinstance(first, int) and 0 <= first < rows else None
        size = tokens - (first is not None)
        if len(ids) < 2 * size or not 0 <= int(ids.min()) <= int(ids.max()) < rows:
            raise ModelError(
                "the text", "", f"is too short: it gives {len(ids):,} tokens, and {2 * size:,} are"
                " needed" if len(ids) < 2 * size else "has tokens that the model does not know"
            )  # fmt: skip
        starts = torch.linspace(0, len(ids) - size, min(count, len(ids) // size)).long()
        cut = ids[starts[:, None] + torch.arange(size)]
        if first is not None:
            cut = torch.cat((torch.full_like(cut[:, :1], first), cut), -1)
        return cut.to(self.model.device)


@contextmanager
def opened(model: Path | Source, dtype: torch.dtype = torch.float32) -> Iterator[Opened]:
    """Open the model in a folder, or in a GGUF file, for the time of a `with`; on a GPU, if any.

    Its weights are in `dtype`.

    Raises ModelError for one that cannot be read with certainty.
    """
    from transformers.utils import logging

    source = Source.of(model)
    logging.disable_progress_bar()
    if source.files.format != "gguf":
        module, tokenizer, _ = load(source.files.root, head=True, source=source)
        yield Opened(_placed(module, dtype), tokenizer, source.own_spec.text_stack)
        return
    module, tokenizer = load_gguf(source)
    yield Opened(_placed(module, dtype), tokenizer, _in_their_order(source))


def _placed(model: Any, dtype: torch.dtype) -> Any:
    return model.to("cuda" if torch.cuda.is_available() else "cpu", dtype)


def _in_their_order(source: Source) -> Spec:
    """The spec of a GGUF file in the layout of its rows as transformers puts them."""
    spec = source.own_spec.text_stack
    usual = specify(source.config("")).rotary

    def laid(layer: Layer) -> Layer:
        turn = layer.encoding
        if not isinstance(turn, Rotary) or not usual:
            return layer
        return replace(layer, encoding=replace(turn, layout=usual[0].layout))

    return replace(spec, layers=tuple(map(laid, spec.layers)))


def trials(
    opened: Opened,
    readings: list[Reading],
    ids: Tensor,
    progress: Progress = lambda doing, count, of: None,
    than: Reading | None = None,
) -> list[Trial]:
    """Try the config as read, the model as transformers runs it, and each reading.

    With `than`, try that reading and the others alone, and compare them with it. Raises ModelError
    where no encoding can be plugged into such a model.
    """
    as_read = Reading("as read", "as read", opened.spec)
    runs = Reading("as read", "as transformers runs it", opened.spec)
    first, others = (than, readings) if than else (as_read, [runs, *readings])
    total, count = len(others) + 1, len(ids)
    progress(first.name, 0, total)
    own = [*_losses(opened, first, ids)]
    frequency = bits_by_frequency(ids[:, 1:].flatten().tolist())
    read = lambda trial: replace(trial, tokens=ids.shape[-1], by_frequency=frequency)  # noqa: E731
    found = [read(Trial(first.kind, first.name, fmean(own), count, losses=tuple(own)))]
    for number, reading in enumerate(others):
        progress(reading.name, number + 1, total)
        losses: list[float] = []
        for loss in _losses(opened, None if reading is runs else reading, ids):
            losses.append(loss)
            trial = _judged(reading, losses, own, total)
            if len(losses) >= min(FIRST, count) and trial.low > MARGIN:
                break
        found.append(read(_judged(reading, losses, own, total)))
    progress("done", total, total)
    return found


def _losses(opened: Opened, reading: Reading | None, ids: Tensor) -> Iterator[float]:
    """Yield bits a token of each stretch, under a reading; None: as transformers runs the model."""
    for rows in ids.split(BATCH):
        if reading is None:
            yield from bits(opened.model, rows).mean(-1).tolist()
            continue
        with read_as(opened, reading.spec, ids.shape[-1], reading.rows):
            yield from bits(opened.model, rows).mean(-1).tolist()


@contextmanager
def read_as(opened: Opened, spec: Spec, length: int, rows: str = "") -> Iterator[None]:
    """Plug a spec into the model, its windows too, for the time of a `with`.

    With `rows` "q" or "k", the rows of queries or of keys are read in the other layout.
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
                if rows:
                    encodings = [_one_side(encoding, rows) for encoding in encodings]
                stack.enter_context(applied(opened.model, encodings))
            except (TypeError, ValueError) as error:
                raise ModelError("config.json", "model_type", str(error)) from None
            yield
    finally:
        if kept and windows:
            settings.sliding_window = kept


class OneSide(Encoding):
    """RoPE for a model whose rows of queries alone, or of keys alone, are in the other layout."""

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


def _one_side(encoding: Encoding, rows: str) -> Encoding:
    return OneSide(encoding, rows) if isinstance(encoding, RoPE) else encoding


@torch.no_grad()
def bits(model: Any, ids: Tensor) -> Tensor:
    """Bits (stretch, token) that each token but the first takes, told those before it."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    losses = [
        torch.nn.functional.cross_entropy(row.float(), right[1:], reduction="none")
        for row, right in zip(logits, ids, strict=True)
    ]
    return torch.stack(losses) / log(2)


def _judged(reading: Reading, losses: list[float], own: list[float], tests: int) -> Trial:
    """Compare with the losses as read, over the same stretches."""
    mean, low, high = _interval([x - y for x, y in zip(losses, own, strict=False)], tests)
    bits, count = fmean(losses), len(losses)
    return Trial(reading.kind, reading.name, bits, count, mean, low, high, tuple(losses))


def _interval(differences: list[float], tests: int) -> tuple[float, float, float]:
    """Mean and interval of differences, at a level that holds for so many of them together."""
    mean, count, half = fmean(differences), len(differences), float("inf")
    if count > 1:
        t = t_quantile(1 - (1 - LEVEL) / (2 * tests), count - 1)
        half = t * stdev(differences) / count**0.5
    return mean, mean - half, mean + half


def bits_by_frequency(ids: list[int]) -> float:
    """Bits a token of a text, as if its tokens were drawn one by one."""
    shares = [count / len(ids) for count in Counter(ids).values()]
    return -sum(share * log2(share) for share in shares)
