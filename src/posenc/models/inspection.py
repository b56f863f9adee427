"""Inspect a model: the encoding of each layer, failures in longer texts, and remedies."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from math import ceil, floor, log10
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from posenc.analysis.dials import Dial, by_method
from posenc.analysis.frequencies import LONGEST, Pair, pairs, reach, smallest_base
from posenc.analysis.rounding import ROUNDED, phase_error
from posenc.models import config
from posenc.models.config.fields import PATCH_WINDOW
from posenc.models.config.source import Source
from posenc.models.config.spec import (
    Added,
    Buckets,
    Convolution,
    Disentangled,
    Fourier,
    Layer,
    OfLayer,
    PatchBias,
    PatchNetwork,
    PatchOffsets,
    PatchOrder,
    PatchRotary,
    PatchTable,
    PatchWaves,
    PointWaves,
    Projected,
    Rotary,
    Slopes,
    Spec,
    Table,
    Waves,
)
from posenc.models.extend import METHODS, extended
from posenc.models.files import hub
from posenc.models.files.errors import ModelError
from posenc.models.length_risks import length_risks, text_tables
from posenc.support.notebook import card, table
from posenc.support.provenance import Provenance, since

# Reading a config alone must not import torch, which this module needs
if TYPE_CHECKING:
    from posenc.models.weight_measurements import WeightMeasurements

NOTHING = "no encoding (NoPE)"
COMMENTS = {
    "yarn": "  # no new angles; --prove measures whether the model reads this far",
    "dynamic": "  # short texts are unchanged; the key cache must store keys before rotation",
}
LARGEST_BASE = 1e10  # limit of advised bases, above those of published models
MOST_BASES = 16  # number of bases to try
# Limits of rotated channels and of tokens for trying bases, since each trial takes longer
WIDEST, FARTHEST = 256, 2**18
SCHEMA = 2
MOST_KINDS = 16  # different rotations, or kinds of layers, of one model


Verdict = Literal["fits", "breaks", "cannot say"]


Values = Mapping[str, Any]
Seen = Literal["all", "part", "new", "still"]
ROUNDING = 1e-9  # turns


@dataclass(frozen=True)
class Turning:
    """Measurements of one RoPE, such as its angles in training and its usable distance."""

    rotary: Rotary
    # Largest distance in training, limited by a window; if `declared` is set, before extension
    trained: int | None
    span: int | None  # largest distance at the target length, limited by a window
    pairs: list[Pair]
    unfinished: int  # pairs that complete no turn within the trained length
    changes: dict[str, int]  # change by extension → number of pairs
    # dtype → phase error in radians at the last position, with frequencies in this dtype
    errors: dict[str, float]
    reach: int  # distance at which the sum of cosines becomes negative
    smallest_base: float | None  # base that keeps the sum above 0 over `span`; None: too long
    # Dials by method, for texts longer than in training
    dials: dict[str, list[Dial]] = field(default_factory=dict)
    # Context after extension, limited by a window; the config does not state how much of it was
    # used in training. None: no extension
    declared: int | None = None

    @property
    def seen(self) -> list[Seen]:
        """Angles that each RoPE pair covered in training, as "all", "part", "new" or "still".

        "all": a whole turn; "part": less than a turn, but all angles of the target length; "new":
        less than a turn, and the target length adds untrained angles; "still": not rotated.
        """
        return [_seen(pair, self.span or 0) for pair in self.pairs]


@dataclass(frozen=True)
class LayerGroup:
    """Group of layers with the same encoding, window and temperature."""

    layers: list[int]
    kind: str
    does: str
    window: int | None
    turning: Turning | None


@dataclass(frozen=True)
class Inspection:
    """Report on a model: on its text model (`spec`), and on `parts` such as an image encoder."""

    file: str
    spec: Spec
    target: int | None
    groups: list[LayerGroup]
    embedding: str
    problems: list[str]  # failures at `target` tokens
    unknown: list[str]  # unknown facts that could hide a failure
    advice: list[str]
    parts: Mapping[str, Inspection]
    measurements: WeightMeasurements | None = None  # measurements of the weights, if requested
    provenance: Provenance | None = None  # None for a part
    name: str = ""  # name of its folder, or its id on the hub; empty for a part
    schema: int = SCHEMA

    @property
    def verdict(self) -> Verdict | None:
        """Result at the target length: "breaks", "cannot say" or "fits"; None without a target."""
        if self.target is None:
            return None
        return "breaks" if self.problems else "cannot say" if self.unknown else "fits"

    def __repr__(self) -> str:
        spec, result = self.spec, f", {self.target:,} tokens: {self.verdict}" if self.target else ""
        return (
            f"Inspection({self.name or spec.model or self.file}, {len(spec.layers)} layers{result})"
        )

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the encoding of each layer, and the verdict."""
        rows = [(f"{len(group.layers)}", group.does) for group in self.groups]
        lines = [self.embedding and f"embeddings: {self.embedding}"]
        lines += [f"{self.target:,} tokens: {self.verdict}"] if self.target else []
        lines += [*self.problems, *self.unknown, *self.advice]
        return card(
            self.name or self.spec.model or self.file,
            lines,
            more=table(["layers", "encoding"], rows),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as dicts, lists, strings and numbers, for `json.dumps`."""
        return {
            "schema": self.schema,
            "name": self.name,
            "provenance": self.provenance and asdict(self.provenance),
            "file": self.file,
            "model": self.spec.model,
            "kind": self.spec.kind,
            "layers": len(self.spec.layers),
            "heads": self.spec.heads,
            "groups": self.spec.groups,
            "context": self.spec.context,
            "trained": self.spec.trained,
            "embedding": self.spec.embedding and asdict(self.spec.embedding),
            "alike": [_finite(asdict(group)) for group in self.groups],
            "notes": list(self.spec.notes),
            "applied": list(self.spec.applied),
            "target": self.target,
            "verdict": self.verdict,
            "problems": self.problems,
            "unknown": self.unknown,
            "advice": self.advice,
            "parts": {name: part.to_json() for name, part in self.parts.items()},
            "weights": self.measurements and _finite(self.measurements.to_json()),
        }


def inspect(
    model: str | Path | Values | Source,
    target: int | None = None,
    weights: bool = False,
    name: str = "",
) -> Inspection:
    """Inspect the positional encoding of a model.

    - `model`: its folder or config.json, its id on the Hugging Face hub, or the values of a config
    - `target`: length in tokens for which the report gives a verdict; None: no verdict
    - `weights`: True also measures the tensors; then a config may be missing
    - `name`: name of the model, by default that of its folder

    Returns an `Inspection`, which a notebook displays. Raises ModelError for unreadable files, and
    ValueError for a target below 1.

    >>> inspect({"model_type": "llama", "max_position_embeddings": 8192}, target=131072).verdict
    'breaks'
    """
    if target is not None and target < 1:
        raise ValueError(f"`target` must be at least 1 token, got {target}.")
    start = time.time()
    if isinstance(model, Mapping):
        return replace(_of_values(model, target, weights, name), provenance=since(start))
    source = Source.of(hub.local(model, weights) if isinstance(model, str) else model)
    files, path = source.files, source.path
    name = name or (model if isinstance(model, str) and model != str(path) else name_of(path))
    measurements, bare = None, files.config is None and files.format == "safetensors"
    if bare and not weights:
        raise ModelError(
            path,
            "",
            "has no config.json in its folder. Pass --weights to inspect the tensors alone",
        )
    spec = Spec("", "nothing") if bare else source.spec
    if weights:
        from posenc.models.weight_measurements import measure_weights

        measurements = measure_weights(None if bare else spec, source.weights)
    file = files.config or (files.weights[0] if bare else path)
    report = inspect_spec(
        spec, file.name, str(path), target, files.notes, measurements, source.values
    )
    return replace(report, provenance=since(start), name=name)


def _of_values(values: Values, target: int | None, weights: bool, name: str) -> Inspection:
    if weights:
        raise ValueError(
            "`weights` must be False for a dict of config values, which has no tensors. Pass the"
            " folder of a model."
        )
    spec = config.specify(values)
    report = inspect_spec(spec, "config.json", "config.json", target, values=values)
    return replace(report, name=name)


def name_of(path: Path) -> str:
    """Return the name of a model: that of its folder or its file of weights.

    In the cache of the hub, models--ORG--NAME/snapshots/HASH, the name is ORG/NAME. Links are not
    followed, because there a config is a link to a file named by a hash.
    """
    here = Path(os.path.abspath(path))
    here = here.parent if here.name == "config.json" else here
    cache = here.parent.parent.name
    if here.parent.name == "snapshots" and cache.startswith("models--"):
        return cache.removeprefix("models--").replace("--", "/", 1)
    return here.name


def inspect_spec(
    spec: Spec,
    file: str,
    path: str,
    target: int | None,
    notes: tuple[str, ...] = (),
    measurements: WeightMeasurements | None = None,
    values: Values | None = None,
) -> Inspection:
    """Inspect the positional encodings that a `Spec` describes.

    - `file`, `path`: the config, as named in the report and in its commands
    - `notes`: further notes
    - `measurements`: those of the weights
    - `values`: parsed config.json, which commands would change; None if there is none
    """
    full_spec, spec = spec, spec.text_stack
    for count, what in (
        (len(spec.rotary), "rotations"),
        (len(set(spec.layers)), "kinds of layers"),
    ):
        if count > MOST_KINDS:
            many = f"has {count:,} different {what}, more than any model"
            raise ModelError(file, "", many, allowed=f"up to {MOST_KINDS}")
    if spec.applied:
        saved = (
            f"it was saved with {' and '.join(spec.applied)} of posenc applied in place of its own"
            " encoding, which is described here; load it with posenc.models.adapter.load"
        )
        notes = (saved, *notes)
    spec = replace(spec, notes=(*spec.notes, *notes, *_numbering(values or {})))
    problems, unknown = length_risks(full_spec, spec, target, measurements) if target else ([], [])
    refused = None if values is None or not target else partial(_refused, values, target)
    measured = cache(
        lambda *layer_arguments: _turning(spec, target or spec.context, *layer_arguments)
    )
    others = (
        {} if full_spec.text_stack is full_spec else _other_parts(full_spec, full_spec.text_stack)
    )
    return Inspection(
        file,
        spec,
        target,
        [_group(layers, spec, measured) for layers in _grouped(spec)],
        "" if spec.embedding is None else describe_encoding(spec.embedding),
        problems,
        unknown,
        _advice(spec, path, target, measurements, refused) if target and problems else [],
        {name: inspect_spec(part, file, path, None) for name, part in others.items()},
        measurements,
    )


def _numbering(values: Values) -> list[str]:
    """Return sentences on how image and audio tokens get position ids; [] for a text model."""
    if not {"vision_config", "thinker_config"} & values.keys():
        return []
    from posenc.models.numbering import numbering

    return numbering(values)


def advise(spec: Spec, path: str, targets: Sequence[int], values: Values | None) -> list[list[str]]:
    """Return one list of remedies for each length in `targets`; the weights are not used.

    A method that is rejected for the longest text is rejected for all, so each is tried once.
    """
    refused = None if values is None else cache(partial(_refused, values, max(targets, default=0)))
    return [_advice(spec, path, target, None, refused) for target in targets]


def _seen(pair: Pair, span: int) -> Seen:
    if pair.change == "still" or not pair.turns:
        return "still"
    if pair.turns >= 1:
        return "all"
    return "new" if min(1.0, span / pair.wavelength) > pair.turns + ROUNDING else "part"


def _other_parts(full_spec: Spec, main: Spec) -> dict[str, Spec]:
    """Map the path of each nested part, except the text model, to its specification."""
    others = {}
    for name, part in full_spec.parts.items():
        if part.parts:
            others |= {f"{name}.{inner}": p for inner, p in _other_parts(part, main).items()}
        if (part.layers or part.embedding) and part != main:
            others[name] = part
    return others


def _grouped(spec: Spec) -> list[list[int]]:
    """Group the indices of equal layers; return one list per group, in order of first layer."""
    by_layer: dict[Layer, list[int]] = {}
    for number, layer in enumerate(spec.layers):
        by_layer.setdefault(layer, []).append(number)
    return list(by_layer.values())


def _group(numbers: list[int], spec: Spec, measured: Callable[..., Turning]) -> LayerGroup:
    layer = spec.layers[numbers[0]]
    turning = None
    if isinstance(layer.encoding, Rotary):
        turning = measured(layer.encoding, layer.window)
    words = describe_layer(layer)
    if spec.embedding and words == NOTHING:
        words = "no encoding of their own (positions are in the embeddings)"
    return LayerGroup(numbers, layer.kind, words, layer.window, turning)


def _turning(spec: Spec, length: int | None, rotary: Rotary, window: int | None) -> Turning:
    trained = rotary.trained or spec.trained or spec.context
    if rotary.method == "default":
        # Other layers of the model may be extended, but the layers with this RoPE are not
        trained = spec.context
    flat = replace(rotary, backward=False)
    before, after = flat.unscaled(), flat.theta(length or trained or 1)
    trained, span = _within(trained, window), _within(length, window)
    declared = _within(spec.context, window)
    rows = pairs(before, after, trained or 0, rotary.factor)
    longer = {}
    if trained and span and span > trained:
        configured = None if rotary.method == "default" else after
        longer = by_method(before, trained, span, configured)
    return Turning(
        rotary,
        trained,
        span,
        rows,
        sum(0 < pair.turns < 1 for pair in rows),
        dict(Counter(row.change for row in rows)),
        {dtype: phase_error(after, length or 1, dtype) for dtype in ROUNDED},
        reach(after, LONGEST),
        smallest_base(rotary.turned, span) if span and span <= LONGEST else None,
        longer,
        declared if trained and declared and declared > trained else None,
    )


def _within(length: int | None, window: int | None) -> int | None:
    return min(length, window) if length and window else length


def describe_layer(layer: Layer) -> str:
    """Describe a layer in a few words: its encoding, window and temperature."""
    if not layer.attends:
        return "no attention"
    words = describe_encoding(layer.encoding) if layer.encoding else NOTHING
    if layer.window and layer.kind == PATCH_WINDOW:
        words += f", windows of {layer.window} × {layer.window} patches"
        words += f", shifted by {layer.shift}" if layer.shift else ""
    elif layer.window:
        words += f", window of {layer.window:,} tokens"
    if layer.temperature:
        t = layer.temperature
        words += f", queries scaled up every {t.every:,} tokens by {t.strength:g}"
    return words


def describe_encoding(encoding: OfLayer | Added) -> str:
    """Describe an encoding in a few words.

    >>> describe_encoding(Buckets(8, 32, 128, True))
    'T5 bias, 32 bidirectional buckets up to 128 tokens'
    """
    match encoding:
        case Rotary():
            part = "" if encoding.turned == encoding.dim else f" of {encoding.dim}"
            end = "last " if encoding.trailing else "first " if part else ""
            words = f"RoPE, {end}{encoding.turned}{part} channels, base {encoding.base:,.10g}"
            words += f", {scaling(encoding)}" if encoding.method != "default" else ""
            if encoding.sections:
                arrangement = "interleaved" if encoding.interleaved else "contiguous"
                words += f", {arrangement} sections {' + '.join(map(str, encoding.sections))}"
            return words + (", backward" if encoding.backward else "")
        case Fourier():
            dim, waves, heads = encoding.dim, encoding.waves, encoding.heads
            whose = f"own weights for each of {heads} key heads" if heads > 1 else "shared weights"
            return f"FoPE, {dim} channels, base {encoding.base:,.10g}, {waves} waves, {whose}"
        case Slopes():
            return f"ALiBi, {encoding.heads} slopes"
        case Buckets():
            way = "bidirectional" if encoding.bidirectional else "causal"
            return f"T5 bias, {encoding.buckets} {way} buckets up to {encoding.reach} tokens"
        case Disentangled():
            buckets, reach = encoding.buckets, encoding.reach
            rows = f"{buckets} buckets each way" if buckets else f"up to {reach} tokens"
            terms = "" if len(encoding.terms) == 2 else f", {encoding.terms[0]} only"
            return f"DeBERTa, {rows}{terms}"
        case Projected():
            return f"Transformer-XL, projected sinusoids of {encoding.width} channels"
        case PatchRotary():
            where = "an image scaled to −1 … 1" if encoding.scaled else " and ".join(encoding.axes)
            words = f"axial RoPE over {where}, {encoding.dim} channels, base {encoding.base:,.10g}"
            return words + ("" if encoding.scaled else f", {describe_order(encoding.order)}")
        case PatchTable():
            rows, columns = encoding.grid
            words = f"learned table, {rows} × {columns} patches of {encoding.width} channels"
            return words + (
                f", resized to each image ({encoding.resized})" * bool(encoding.resized)
            )
        case PatchOffsets():
            rows, columns = encoding.size
            return f"MViTv2, a vector for each offset within {rows} × {columns} patches"
        case PatchBias():
            rows, columns = encoding.size
            shared = ", shared by all layers" * encoding.shared
            number = f"a number for each of {encoding.heads} heads and each offset"
            return f"Swin, {number} within {rows} × {columns} patches{shared}"
        case PatchNetwork():
            (rows, columns), (high, wide) = encoding.size, encoding.trained
            trained = f", trained with {high} × {wide}" * (encoding.size != encoding.trained)
            heads = f"a network gives {encoding.heads} heads a number for each offset"
            return f"Swin v2, {heads} within {rows} × {columns} patches{trained}"
        case Table():
            first = f", from stored row {encoding.offset}" if encoding.offset else ""
            return f"learned table, {encoding.rows:,} rows of {encoding.width}{first}"
        case PatchWaves():
            unit = "an image spans 2π" if encoding.normalised else "patches are counted"
            words = f"sinusoids of {' and '.join(encoding.axes)}, {encoding.width} channels"
            place = ", added to queries and keys of each layer" * encoding.each_layer
            return f"{words}, base {encoding.base:,.10g}, {unit}{place}"
        case Convolution():
            times = f"{encoding.count} convolutions" if encoding.count > 1 else "convolution"
            return f"{times} over {encoding.kernel} frames in {encoding.groups} groups"
        case PointWaves():
            return f"Fourier features of random directions, {encoding.width} channels"
        case Waves():
            first, second = ("cosines", "sines") if encoding.cosines_first else ("sines", "cosines")
            order = f"{first} before {second}"
            order = order if encoding.halves else f"{first} and {second} alternating"
            return f"sinusoidal, {encoding.width} channels, base {encoding.base:,.10g}, {order}"


def describe_order(order: PatchOrder) -> str:
    """Describe the order in which an image's patches become tokens.

    >>> describe_order(PatchOrder("windows", 2, 8))
    'patches in windows of 8 × 8, in blocks of 2 × 2'
    """
    sides = {"windows": order.window, "blocks": order.merge}
    parts = [f"{name} of {n} × {n}" for name, n in sides.items() if n > 1 and order.order != "rows"]
    return f"patches in {', in '.join(parts)}" if parts else "patches in rows"


def scaling(rotary: Rotary) -> str:
    """Describe the scaling of RoPE's frequencies, such as "yarn ×4 from 32,768 tokens"."""
    start = f" from {rotary.trained:,} tokens" if rotary.trained else ""
    share = f", {rotary.share:g} of the pairs" if rotary.method == "proportional" else ""
    return f"{rotary.method} ×{rotary.factor:g}{start}{share}"


def _advice(
    spec: Spec,
    path: str,
    target: int,
    measurements: WeightMeasurements | None,
    refused: Callable[[str], str] | None,
) -> list[str]:
    """Return remedies for a text of `target` tokens, the simplest first.

    A line that starts with a command can be run in a shell. `refused` maps a method to the reason
    why `extend` would not write the config, or to ""; None if there is no config.
    """
    if isinstance(spec.embedding, Table) or (measurements and measurements.tables):
        return _table_advice(spec, target, measurements)
    if not spec.global_rotary or not spec.context or target <= spec.context:
        return []
    rotary = spec.global_rotary[0]
    if rotary.method not in ("default", *METHODS):
        return [f"{rotary.method} has no formula for other lengths: its factors come from a search"]
    if refused is None:
        return [*_llama_cpp_advice(rotary, spec, target), *_by_training(rotary, target)]
    methods = ("yarn", "dynamic") if rotary.method == "default" else (rotary.method,)
    commands = [
        f"{_extend(path)} --to {target} --method {method}{COMMENTS.get(method, '')}"
        for method in methods
        if not refused(method)
    ]
    if not commands:
        return [f"its config cannot be extended: {refused(methods[0])}"]
    return commands if rotary.method != "default" else [*commands, *_by_training(rotary, target)]


def _extend(path: str) -> str:
    """Return the start of the command that extends the config at `path`, a file or a folder."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    config = path if path.endswith(".json") else os.path.join(folder, "config.json")
    # A link, as in the hub's cache, leads to a shared file, which must not change
    if os.path.islink(config):
        return f"mkdir longer && cp -L {_quoted(config)} longer/config.json && posenc extend longer"
    return f"posenc extend {_quoted(path)}"


def _quoted(path: str) -> str:
    """Quote a path for a shell, so that it is not read as an option."""
    return quote(f"./{path}" if path.startswith("-") else path)


def _refused(values: Values, target: int, method: str) -> str:
    """Return the reason why `extend` would reject this config, or ""."""
    try:
        extended(dict(values), target, method)
    except ModelError as error:
        return str(error)
    return ""


def _llama_cpp_advice(rotary: Rotary, spec: Spec, target: int) -> list[str]:
    """Return advice for a GGUF file, with llama.cpp's options that extend the context."""
    trained = rotary.trained or spec.trained or spec.context
    if rotary.method not in ("default", "yarn") or not trained:
        return []
    flags = f"-c {target} --rope-scaling yarn --rope-scale {target / trained:.6g}"
    return [f"llama.cpp's options are {flags} --yarn-orig-ctx {trained}"]


def _table_advice(spec: Spec, target: int, measurements: WeightMeasurements | None) -> list[str]:
    """Return remedies for a position table that is too short or partly untrained."""
    tables = text_tables(measurements) if measurements else []
    learned = [table.rows for table in tables if table.learned]
    if isinstance(spec.embedding, Table):
        learned = [spec.embedding.rows]
    rows = min(learned or [table.rows for table in tables])
    more = f"{target - rows:,} more rows"
    if target <= rows:
        return ["train on texts of this length first, since some rows are untrained"]
    if not learned:
        return [f"compute {more} by its formula, and train on texts of this length"]
    return [
        f"train {more}, or start from interpolated rows (`--method table` of `posenc extend`), or"
        " use an encoding without a maximum length (RoPE, ALiBi)"
    ]


def _by_training(rotary: Rotary, target: int) -> list[str]:
    return [advice] if (advice := _larger_bases(rotary.turned, rotary.base, target)) else []


@cache
def _larger_bases(dim: int, present: float, target: int) -> str:
    """Return advice on larger RoPE bases for further training; "" if not needed or not reasonable.

    A base above a sufficient one may be insufficient, so each base in the advice has been tried.
    """
    if target > FARTHEST or dim > WIDEST or _reach(dim, present, target) >= target:
        return ""
    least = smallest_base(dim, target)
    if max(least, present) > LARGEST_BASE:
        return ""
    enough: list[float] = []
    short = 0.0
    for base in _candidate_bases(least, present):
        if _reach(dim, base, target) >= target:
            enough.append(base)
        else:
            short = base
        if len(enough) == 3:
            break
    if not enough:
        return ""
    first, *others = (f"{base:,.0f}" for base in sorted(enough))
    more = f"; {' and '.join(others)} are sufficient too" if others else ""
    more += "; a larger base may be insufficient"
    if short > min(enough):
        more += f", as {short:,.0f} fails from {_reach(dim, short, target):,} tokens on"
    if least > present:
        more += f"; in steps of 1 %, no base below {rounded(least)} is sufficient"
    return (
        f"or train further with a base of {first} (now {present:,.10g}), which scores a key equal"
        f" to the query above a random key for {target:,} tokens{more}"
    )


def _reach(dim: int, base: float, limit: int) -> int:
    return reach(Rotary(dim, dim, base).unscaled(), limit)


def _candidate_bases(least: float, present: float) -> Iterator[float]:
    """Yield round RoPE bases to try, none below the present or the smallest sufficient base."""
    base = _rounded_up(least, 3)
    if least > present:
        yield base
    base = _rounded_up(max(base, present) * 1.001, 2)
    for _ in range(MOST_BASES):
        yield base
        base = _rounded_up(base * 1.001, 2)
    if least > present:
        yield _rounded_up(least, 4)


def _rounded_up(number: float, digits: int) -> float:
    power = floor(log10(number)) + 1 - digits
    return float(ceil(number / 10**power) * 10**power)


def rounded(number: float) -> str:
    """Format a number with three significant digits, such as "8,770,000"."""
    return f"{float(f'{number:.3g}'):,.0f}"


def _finite(value: Any) -> Any:
    """Replace infinities, which JSON lacks, by None."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
