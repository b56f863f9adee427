"""Choose the method of context extension that gives a model the lowest loss on longer texts.

    proof = prove(Path("model"), to=8192)
    proof.chosen            the name of the method, or "" if none works

loss      a text of `to` tokens is read in one pass, and bits per token are measured beyond the
          trained length
sliding   baseline: the unmodified model with a sliding window of the trained length
recall    a key of five tokens after a marker, at three depths: the share of tokens repeated
copy      `to`/2 random tokens, twice: the share of the second half predicted correctly

The methods are those of `extend`, a YaRN with a search over its ends and gain, and a search over
the factor of each pair, or of bands of neighbouring pairs, from the best of these. Every other
excerpt of the text is used to choose a method, and the others to measure its loss. ReRoPE,
Self-Extend and dual chunk attention are measured for comparison, and never chosen: they change the
attention, which a config cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.encodings.rotary.remapped import Remapped
from posenc.encodings.rotary.remaps import Remap, dual_chunk, rerope, self_extend
from posenc.encodings.rotary.rope import RoPE
from posenc.encodings.rotary.theta import yarn_gain
from posenc.models.check.loss import Opened, opened, read_as
from posenc.models.config.parse import specify
from posenc.models.config.source import Source
from posenc.models.config.spec import Layer, Spec
from posenc.models.extend import (
    NEW,
    OLD,
    extended,
    lengthened,
    slowed,
    stretchable,
    trained_length,
)
from posenc.models.files.errors import ModelError
from posenc.models.inspection import name_of
from posenc.models.serving import cache_bytes, gguf_keys, nested_config
from posenc.support.arguments import precision as checked_precision
from posenc.support.provenance import Provenance, since

AS_IT_IS = "as it is"  # unchanged frequencies; the config only states a larger length
TRIED = ("linear", "ntk", "yarn", "llama3")
EXCERPTS, MOST_EXCERPTS = 4, 32  # excerpts: half to choose a method, half to measure it
# Tokens of all excerpts together: with fewer, close methods are ranked by chance
READ = 2**14
ENDS = {"beta_slow": (0.5, 2.0, 4.0), "beta_fast": (4.0, 8.0, 16.0)}  # besides YaRN's 1 and 32
# Number of bands of neighbouring pairs in the search, and powers of to / trained for their factors
BANDS, POWERS = 8, (1 / 2, 1 / 4)
PAIRS = "pairs, searched"
CHUNK = 512  # tokens whose logits are in memory at once
KEY, MARKER, DEPTHS = 5, 3, (0.1, 0.5, 0.9)  # lengths in tokens; places as shares of the text
ENOUGH = 0.01  # bits per token by which a method must beat the sliding window

Progress = Callable[[str, int, int], None]
Change = Callable[[Layer, Encoding], Encoding]  # layer, its encoding -> the encoding to apply


@dataclass(frozen=True)
class Way:
    """One method of context extension, with its losses and its extended config."""

    name: str
    chosen_by: float  # bits per token beyond the trained length, on the excerpts for choosing
    near: float  # bits per token within the trained length
    far: float  # bits per token beyond the trained length
    by_position: list[tuple[int, float]]  # end of a band of positions, bits per token in it
    recall: float
    copy: float
    config: dict[str, Any]


@dataclass(frozen=True)
class Proof:
    """Result of `prove`: the methods, best first, and the baseline with a sliding window."""

    trained: int
    to: int
    sliding: float  # bits per token of the baseline
    ways: list[Way]
    cache: int  # bytes of cached keys and values for one text of `to` tokens
    notes: list[str]
    gguf_keys: dict[str, Any]  # settings of the best method, if the model is a GGUF file
    remapped: list[Way] = field(default_factory=list)  # methods that no config can state
    name: str = ""  # name of the model's folder or file
    provenance: Provenance | None = None
    precision: str = "float32"

    @property
    def chosen(self) -> str:
        """Name of the best method beyond the trained length; "" if none beats the sliding window.

        `AS_IT_IS` means that the frequencies need no change, only the length in the config.
        """
        best = self.ways[0]
        return best.name if best.far < self.sliding - ENOUGH else ""

    def to_json(self) -> dict[str, Any]:
        plain = {"chosen": self.chosen} | {
            key: [vars(way) for way in getattr(self, key)] for key in ("ways", "remapped")
        }
        return vars(self) | plain | {"provenance": self.provenance and asdict(self.provenance)}


def prove(
    model: Path | Source,
    to: int,
    letters: str | None = None,
    base: float | None = None,
    trained: int | None = None,
    progress: Progress = lambda doing, count, of: None,
    precision: str = "float32",
) -> Proof:
    """Measure the loss with each method of context extension on texts of `to` tokens.

    - `letters`: text to read; None: the packaged novel
    - `base`: larger base to try; None: ten times the present one
    - `trained`: trained length, if the config does not state it
    - `progress`: called with the name of a method, its number, and the number of methods
    - `precision`: dtype of weights and activations

    Raises ModelError for a model that cannot be loaded, extended or measured.
    """
    start, dtype = time.time(), getattr(torch, checked_precision(precision))
    if letters is None:
        from posenc.analysis.text import novel_letters

        letters = novel_letters()
    source = Source.of(model)
    config = source.config("so there is nothing to extend")
    configs, notes = ways(config, to, base, trained)
    with opened(source, dtype) as loaded:
        length = trained or trained_length(loaded.spec) or 0
        if not 0 < length < to:
            raise ModelError("config.json", "max_position_embeddings", "must be below `to`", to)
        count = min(MOST_EXCERPTS, max(EXCERPTS, READ // to))
        ids = loaded.excerpts(letters, to, count)
        if len(ids) < 2:
            raise ModelError(
                "the text", "", f"must have at least {2 * to:,} tokens. Pass more text"
            )
        total, found = len(configs) + 2, []
        for number, (name, tried) in enumerate(configs.items()):
            progress(name, number, total)
            found.append(_measured(loaded, name, tried, ids, length))
        progress("yarn, searched", total - 2, total)
        if "yarn" in configs:
            found.append(_searched(loaded, configs["yarn"], ids, length))
        progress(PAIRS, total - 1, total)
        best = min(found, key=lambda way: way.chosen_by)
        if source.files.format == "gguf":
            searched: Way | str = "not tried, since GGUF has no key with a factor for each pair"
        else:
            searched = _pair_by_pair(loaded, configs[AS_IT_IS], best, ids, length)
        if isinstance(searched, Way):
            found.append(searched)
        else:
            notes.append(f"{PAIRS}: {searched}")
        remapped = [*_remapped(loaded, configs[AS_IT_IS], ids, length, notes)]
        sliding = _sliding(loaded, ids[1::2], length)
    found.sort(key=lambda way: way.chosen_by)
    spec = specify(found[0].config)
    keys = _keys_of(source, spec, to)
    made = name_of(source.path), since(start)
    cache = cache_bytes(spec, to)
    return Proof(length, to, sliding, found, cache, notes, keys, remapped, *made, precision)


def ways(
    config: Mapping[str, Any], to: int, base: float | None = None, trained: int | None = None
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Extend a config by each method, and return a dict from method to config.

    Also returns notes about methods that cannot be applied to the model.

    Raises ModelError for a model without rotary layers that see the whole text.
    """
    _, own = stretchable(specify(config).text_stack, "config.json")
    found: dict[str, dict[str, Any]] = {AS_IT_IS: lengthened(dict(config), to)}
    notes: list[str] = []
    for method in TRIED:
        try:
            found[method], _ = extended(dict(config), to, method, trained=trained)
        except ModelError as error:
            notes.append(f"{method}: {error}")
    larger = base or own.base * 10
    try:
        name = f"base {larger:,.10g}"
        found[name], _ = extended(dict(config), to, "base", trained=trained, base=larger)
    except ModelError as error:
        notes.append(f"a larger base: {error}")
    return found, notes


def _keys_of(source: Source, spec: Spec, to: int) -> dict[str, Any]:
    if source.files.format != "gguf":
        return {}
    return gguf_keys(source.weights.metadata["general.architecture"], spec, to)


def remaps(to: int, trained: int) -> dict[str, Remap]:
    """Return methods that map query–key distances in `to` tokens to distances seen in training.

    ReRoPE and Self-Extend keep the offsets below half of the trained length, and Self-Extend has
    the smallest group that suffices. Dual chunk attention has the sizes of its authors' code.
    """
    near = trained // 2
    # ⌊i/G⌋ − ⌊j/G⌋ + w − ⌊w/G⌋ is at most (i − j − w)/G + w + 2
    group = -(-(to - near) // max(1, trained - near - 2))
    return {
        "ReRoPE": rerope(near),
        "Self-Extend": self_extend(group, near),
        "dual chunk": dual_chunk(trained * 3 // 4, trained // 8),
    }


def _remapped(
    model: Opened, config: dict[str, Any], ids: Tensor, trained: int, notes: list[str]
) -> Iterator[Way]:
    """Measure methods, such as ReRoPE, that remap query–key distances but keep frequencies."""
    for name, remap in remaps(ids.shape[-1], trained).items():

        def change(layer: Layer, own: Encoding, remap: Remap = remap) -> Encoding:
            if layer.window is not None or not isinstance(own, RoPE):
                return own
            if own.turned < own.dim or own.axes > 1 or own.gain != 1:
                raise ValueError(
                    "the layers of the model must rotate whole heads by one axis, without an"
                    " attention factor."
                )
            made = Remapped(own.theta, remap, own.layout)
            made.softmax_scale = own.scale(own.dim)
            return made

        try:
            yield _measured(model, name, config, ids, trained, change)
        except ModelError as error:
            notes.append(f"{name}: {error}")


def _measured(
    model: Opened,
    name: str,
    config: dict[str, Any],
    ids: Tensor,
    trained: int,
    change: Change | None = None,
) -> Way:
    """Measure a method's losses, passkey recall and copying; `change` replaces the encodings."""
    spec, to = specify(config).text_stack, ids.shape[-1]
    with read_as(model, spec, to, change):
        choose, measure = (_bits(model.model, rows) for rows in (ids[::2], ids[1::2]))
        copy = _copied(model, to)
        recall = fmean(_share_predicted(model.model, row, KEY) for row in _keys(model, ids))
    bands = [*range(trained, to, trained), to]
    starts = [0, *bands[:-1]]
    by_position = [
        (end, measure[:, start : end - 1].mean().item())
        for start, end in zip(starts, bands, strict=True)
    ]
    return Way(
        name,
        choose[:, trained - 1 :].mean().item(),
        measure[:, : trained - 1].mean().item(),
        measure[:, trained - 1 :].mean().item(),
        by_position,
        recall,
        copy,
        config,
    )


def _searched(model: Opened, yarn: dict[str, Any], ids: Tensor, trained: int) -> Way:
    """Search YaRN's ramp ends and attention factor, one at a time, for the lowest loss."""
    best, least = yarn, _far_bits(model, yarn, ids[::2], trained)
    factor = specify(yarn).text_stack.global_rotary[0].factor
    gains = (1.0, yarn_gain(factor) ** 0.5)
    for key, values in (*ENDS.items(), ("attention_factor", gains)):
        for value in values:
            tried = _with(best, key, value)
            bits = _far_bits(model, tried, ids[::2], trained)
            if bits < least:
                best, least = tried, bits
    return _measured(model, "yarn, searched", best, ids, trained)


def _pair_by_pair(
    model: Opened, plain: dict[str, Any], best: Way, ids: Tensor, trained: int
) -> Way | str:
    """Search for a divisor of θ for each pair that lowers the loss of the best method.

    Returns the reason as a string if the result is not better by `ENOUGH`: servers support
    formulas, so a small gain is not worth a search.
    """
    turn, to = specify(best.config).text_stack.global_rotary[0], ids.shape[-1]
    slower = [abs(was / now) for was, now in zip(turn.unscaled(), turn.theta(to), strict=True)]

    def bits(factors: list[float]) -> float:
        config = slowed(plain, to, trained, factors, turn.gain)
        return _far_bits(model, config, ids[::2], trained)

    try:
        least = bits(slower)
    except ModelError as error:
        return str(error)
    width = -(-len(slower) // BANDS)
    for power in POWERS:
        for start in range(0, len(slower), width):
            for by in ((to / trained) ** power, (to / trained) ** -power):
                band = [max(1.0, factor * by) for factor in slower[start : start + width]]
                tried = slower[:start] + band + slower[start + width :]
                if tried != slower and (found := bits(tried)) < least:
                    slower, least = tried, found
    if least > best.chosen_by - ENOUGH:
        return f"no better than {best.name} by {ENOUGH} bits a token"
    config = slowed(plain, to, trained, slower, turn.gain)
    return _measured(model, PAIRS, config, ids, trained)


def _far_bits(model: Opened, config: dict[str, Any], ids: Tensor, trained: int) -> float:
    with read_as(model, specify(config).text_stack, ids.shape[-1]):
        return _bits(model.model, ids)[:, trained - 1 :].mean().item()


def _with(config: dict[str, Any], key: str, value: float) -> dict[str, Any]:
    """Return a copy of a config with another value of one YaRN setting."""
    changed = deepcopy(config)
    inner = nested_config(changed, specify(config).text_keys)
    settings = inner.get(NEW) or inner[OLD]
    nested = [part for part in settings.values() if isinstance(part, dict)]
    for part in nested or [settings]:
        if "yarn" in (part.get("rope_type"), part.get("type")):
            part[key] = value
    return changed


@torch.no_grad()
def _bits(model: Any, ids: Tensor) -> Tensor:
    """Return the loss of each token except the first, in bits, (excerpt, token)."""
    rows = []
    for row in ids:
        states = model.base_model(input_ids=row[None], use_cache=False)
        parts = zip(_logits(model, states, slice(-1)), row[1:].split(CHUNK), strict=True)
        losses = [F.cross_entropy(logits, right, reduction="none") for logits, right in parts]
        rows.append(torch.cat(losses))
    return torch.stack(rows) / log(2)


def _logits(model: Any, states: Any, some: slice) -> Iterator[Tensor]:
    """Yield the logits of some tokens in chunks, (token, vocabulary), from a model's final states.

    The model computes them, because some models scale or cap the product with the output head.
    """
    base = model.base_model
    before = vars(base).get("forward")
    for hidden in states.last_hidden_state[:, some].split(CHUNK, 1):
        ended = type(states)(last_hidden_state=hidden)
        base.forward = lambda *_, ended=ended, **__: ended
        try:
            ids = torch.zeros(hidden.shape[:2], dtype=torch.long, device=hidden.device)
            yield model(input_ids=ids, use_cache=False).logits[0].float()
        finally:
            del base.forward
            if before is not None:
                base.forward = before


def _sliding(model: Opened, ids: Tensor, trained: int) -> float:
    """Return the loss beyond the trained length if the model reads with a sliding window.

    Windows overlap by half, and only the second half of each is counted.
    """
    half = max(1, trained // 2)
    counted = []
    with read_as(model, model.spec, trained):
        for start in range(trained - half, ids.shape[-1] - half, half):
            bits = _bits(model.model, ids[:, start : start + 2 * half])
            counted.append(bits[:, half - 1 :])
    return torch.cat([part.flatten() for part in counted]).mean().item()


@torch.no_grad()
def _share_predicted(model: Any, ids: Tensor, count: int) -> float:
    """Return the share of the last `count` tokens that the model's highest logit predicts."""
    states = model.base_model(input_ids=ids[None], use_cache=False)
    logits = _logits(model, states, slice(-1 - count, -1))
    predicted = torch.cat([part.argmax(-1) for part in logits])
    return (predicted == ids[-count:]).float().mean().item()


def _copied(model: Opened, to: int) -> float:
    """Repeat random tokens, and return the share predicted correctly in the repetition."""
    half = to // 2
    tokens = _random_tokens(model, half)
    return _share_predicted(model.model, torch.cat((tokens, tokens)), half - 1)


def _keys(model: Opened, ids: Tensor) -> Iterator[Tensor]:
    """Yield texts with a marker and a passkey inserted, one text for each depth in DEPTHS.

    Marker and passkey also end the text, where the model should repeat the passkey.
    """
    tokens = _random_tokens(model, KEY + MARKER)
    for depth in DEPTHS:
        room = ids.shape[-1] - 2 * len(tokens)
        at = round(depth * room)
        yield torch.cat((ids[0, :at], tokens, ids[0, at:room], tokens))


def _random_tokens(model: Opened, count: int) -> Tensor:
    """Return `count` random token ids from a fixed seed."""
    rows = model.model.get_input_embeddings().weight.shape[0]
    random = torch.Generator().manual_seed(0)
    return torch.randint(min(2, rows - 1), rows, (count,), generator=random).to(model.model.device)
