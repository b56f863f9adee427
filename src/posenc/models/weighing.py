"""What the weights of a model say of positions: its tables, biases, and rotary projections.

    weigh(spec, open_weights(files.find(path)))

A tensor is known by its name, and where a config is there by the shape that it asks for. Without a
config, as beside ONNX, a T5 bias is taken to reach 128 tokens, and both ways unless it is of a
decoder; what turns queries and keys is not known then, save in GGUF, whose metadata says it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from math import pi
from typing import Any, get_args

import torch
from torch import Tensor

from posenc.analysis import bands, curves
from posenc.analysis.bands import Evidence
from posenc.analysis.curves import Steps, Vectors
from posenc.analysis.formula import Formula, formula
from posenc.analysis.tables import Rows, rows
from posenc.core.frequencies import Layout
from posenc.models import projections
from posenc.models.config.spec import Buckets, Rotary, Spec
from posenc.models.layouts import KEY
from posenc.models.projections import Projection
from posenc.models.weights import Info, Tensors, Weights

TABLE = re.compile(
    r"(?i)(.*\.)?(?:(?:abs_|learned_)?pos(?:ition(?:s|al)?)?_?(?:emb(?:ed(?:ding)?|d)?|enc(?:od(?:ing|er))?)s?"
    r"|embed_positions|pos_table|wpe|wpos|pe)"
    r"(?:\.(?:emb(?:ed(?:ding)?)?|pe|pos_table))?(?:\.weights?)?"
)
RELATIVE = re.compile(r"(?i)(?:^|[._])rel(?:ative|[._]|_?pos)")
T5 = re.compile(r"(.*\.)?relative_attention_bias\.weight")
SHAW = re.compile(r"(.*\.)?(emb_rel|relative_positions?)_(k|v|keys|values)(\.weight)?")
FLOATS = ("F16", "BF16", "F32", "F64")
MOST = 2**25  # elements of a table that is measured
MOST_ROWS, MOST_WIDTH = 2**21, 2**16  # and those of any model
MOST_HEADS = 2**10  # of a bias
MOST_TENSORS = 256  # that are measured
MOST_PROJECTION = 2**29  # elements of queries or keys
MOST_WORK = 2**40  # products, to find the layout
REACH = 128  # of T5 as it was released
POINTS = 256  # of a curve in JSON
SOME = 3  # names of tensors, where none is recognised


@dataclass(frozen=True)
class Positions:
    """Rows that are added to the embeddings: of a formula, or learned."""

    tensor: str
    rows: int
    width: int
    formula: Formula | None
    learned: Rows | None


@dataclass(frozen=True)
class Bias:
    """A number for each head and bucket of distances."""

    tensor: str
    buckets: int
    reach: int
    bidirectional: bool
    assumed: bool  # no config said so
    steps: Steps


@dataclass(frozen=True)
class Relative:
    """A vector for each distance."""

    tensor: str
    vectors: Vectors


@dataclass(frozen=True)
class Bands:
    """How strong the queries and keys of alike layers are in each pair, fastest first."""

    tensors: list[str]
    layers: list[int]
    layout: Layout
    wavelengths: list[float] | None  # in tokens, unstretched; None: their base is not known
    queries: list[float]  # mean over heads and layers
    keys: list[float]


@dataclass(frozen=True)
class Weighing:
    """All that was found, each with the name of its tensor."""

    tables: list[Positions]
    biases: list[Bias]
    relative: list[Relative]
    bands: list[Bands]
    evidence: Evidence | None  # of the layout
    layout: Layout | None  # as the config or the file has it
    broken: list[str]  # tensors with numbers that are not finite, which were not measured
    skipped: dict[str, str]  # tensors that were not measured, and why not
    tensors: int  # there are, of positions or not
    some: list[str]  # names of the first few

    @property
    def recognised(self) -> bool:
        """Is anything in the weights known to be about positions?"""
        found = (self.tables, self.biases, self.relative, self.bands, self.broken, self.skipped)
        return any(found) or self.evidence is not None

    def to_json(self) -> dict[str, Any]:
        """Plain data; of curves at most 256 points, evenly picked, and how many there were."""
        found = _thin(asdict(self)) | {"recognised": self.recognised}
        if self.evidence:
            found["evidence"]["verdict"] = self.evidence.verdict
        return found


def weigh(spec: Spec | None, weights: Weights) -> Weighing:
    """Everything about positions in these weights; a tensor is in memory while it is measured."""
    held = _Held(weights)
    tables = held.measured(lambda one: _is_table(one, spec), _table_size)
    biases = held.measured(_is_bias, _bias_size)
    relative = held.measured(_is_relative, _table_size)
    turned = _Turned(projections.find(spec, weights), held)
    evidence = bands.evidence(turned.layers()) if turned.found else None
    layout: Layout | None = next((one.rotary.layout for one in turned.found), None)
    mark = weights.metadata.get(KEY)
    layout = mark if mark in get_args(Layout) else layout
    shown = layout or (evidence.verdict if evidence else None)
    return Weighing(
        [_table(one, held) for one in tables if held.finite(one.name)],
        [_bias(one, spec, held) for one in biases if held.finite(one.name)],
        [_relative(one, held) for one in relative if held.finite(one.name)],
        list(turned.bands(shown)) if shown else [],
        evidence,
        layout,
        held.broken,
        held.skipped,
        len(weights),
        list(islice(weights, SOME)),
    )


def layout_evidence(spec: Spec, weights: Weights, layers: int = 8) -> Evidence | None:
    """What queries and keys say of their layout, by some layers from the first to the last."""
    found = projections.find(spec, weights)
    some = found[:: max(len(found) // layers, 1)]
    return bands.evidence(_Turned(some, _Held(weights)).layers()) if some else None


class _Held(Tensors):
    """The weights in float32. The last two read are kept; those not finite are noted."""

    def __init__(self, weights: Weights):
        self.weights = weights
        self.kept: dict[str, Tensor] = {}
        self.broken: list[str] = []
        self.skipped: dict[str, str] = {}

    def measured(self, known: Callable[[Info], bool], size: Callable[[Info], str]) -> list[Info]:
        """Tensors of a kind, less those of a dtype or size that is not measured."""
        found = []
        for info in filter(known, self.weights.infos.values()):
            why = "" if info.dtype in FLOATS else f"is stored as {info.dtype}"
            why = why or size(info) or ("is one of too many" if len(found) >= MOST_TENSORS else "")
            if why:
                self.skipped[info.name] = f"{why}, so it is not measured"
            else:
                found.append(info)
        return found

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.kept:
            self.kept = dict([*self.kept.items()][-1:])
            self.kept[name] = self.weights[name].to(torch.float32, copy=True)  # frees its bytes
        return self.kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def finite(self, name: str) -> bool:
        fine = bool(self[name].isfinite().all())
        if not fine and name not in self.broken:
            self.broken.append(name)
        return fine


def _is_table(info: Info, spec: Spec | None) -> bool:
    shape = info.shape
    if len(shape) == 3 and 1 in shape[:2]:  # a batch of one, before the rows or after them
        shape = (shape[0] * shape[1], shape[2])
    if len(shape) != 2 or min(shape) < 2 or RELATIVE.search(info.name):
        return False
    return bool(TABLE.fullmatch(info.name)) or (
        "pos" in info.name.lower() and shape in [part.stored for part in _parts(spec)]
    )


def _table_size(info: Info) -> str:
    """What is too large about it."""
    rows, width = info.elements // info.shape[-1], info.shape[-1]
    if rows > MOST_ROWS or width > MOST_WIDTH:
        return f"has {rows:,} rows of {width:,} channels, more than any model"
    return f"holds {info.elements:,} numbers, over {MOST:,}" if info.elements > MOST else ""


def _parts(spec: Spec | None) -> Iterator[Spec]:
    """The specification and those in it."""
    if spec:
        yield spec
        for part in spec.parts.values():
            yield from _parts(part)


def _table(info: Info, weights: Tensors) -> Positions:
    values = weights[info.name].flatten(0, -2)
    made = formula(values)
    count, width = values.shape
    return Positions(info.name, count, width, made, None if made else rows(values))


def _is_bias(info: Info) -> bool:
    if not T5.fullmatch(info.name) or len(info.shape) != 2:
        return False
    return 4 <= info.shape[0] < REACH and info.shape[1] > 0


def _bias_size(info: Info) -> str:
    heads = info.shape[1]
    return f"has {heads:,} heads, more than any model" if heads > MOST_HEADS else ""


def _bias(info: Info, spec: Spec | None, weights: Tensors) -> Bias:
    decoder = "decoder" in info.name
    layers = [layer.encoding for part in _parts(spec) for layer in part.layers]
    fit = [one for one in layers if isinstance(one, Buckets) and one.buckets == info.shape[0]]
    said = next((one for one in fit if one.bidirectional != decoder), next(iter(fit), None))
    reach = said.reach if said else REACH
    bidirectional = said.bidirectional if said else not decoder
    steps = curves.t5(weights[info.name], reach, bidirectional)
    return Bias(info.name, info.shape[0], reach, bidirectional, said is None, steps)


def _is_relative(info: Info) -> bool:
    if not SHAW.fullmatch(info.name) or len(info.shape) < 2 or not info.elements:
        return False
    rows = info.elements // info.shape[-1]
    return rows == info.shape[-2] and rows % 2 == 1 and rows > 1


def _relative(info: Info, weights: Tensors) -> Relative:
    return Relative(info.name, curves.shaw(weights[info.name].flatten(0, -2)))


class _Turned:
    """Rotary projections, each read once: for the evidence, and for how strong each pair is."""

    def __init__(self, found: list[Projection], held: _Held):
        self.found, self.held, self.work = found, held, 0
        self.strength: dict[int, dict[Layout, tuple[Tensor, Tensor]]] = {}

    def layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Queries and keys of each layer, as long as comparing them takes no hours."""
        infos = self.held.weights.infos
        for one in self.found:
            large = [name for name in one.names if infos[name].elements > MOST_PROJECTION]
            for name in large:
                many = f"holds {infos[name].elements:,} numbers, over {MOST_PROJECTION:,}"
                self.held.skipped[name] = f"{many}, so it is not measured"
            if large or not all([self.held.finite(name) for name in one.names]):
                continue
            q, k = one.read(self.held)
            self.strength[one.layer] = {
                to: (bands.strength(q, to).mean(0), bands.strength(k, to).mean(0))
                for to in get_args(Layout)
            }
            self.work += one.heads * (2 * one.rotary.turned) ** 3
            if self.work <= MOST_WORK:
                yield q, k

    def bands(self, layout: Layout) -> Iterator[Bands]:
        alike: dict[Rotary, list[Projection]] = {}
        for one in self.found:
            if one.layer in self.strength:
                alike.setdefault(one.rotary, []).append(one)
        for rotary, those in alike.items():
            made = [self.strength[one.layer][layout] for one in those]
            queries, keys = (torch.stack(side).mean(0).tolist() for side in zip(*made, strict=True))
            waves = (2 * pi / rotary.unscaled()).tolist() if those[0].paced else None
            names = [name for one in those for name in one.names]
            yield Bands(names, [one.layer for one in those], layout, waves, queries, keys)


def _thin(value: Any) -> Any:
    """Lists of over 256 numbers side by side: every second, third, … of them, and which."""
    if not isinstance(value, dict):
        return [_thin(inner) for inner in value] if isinstance(value, list) else value
    long = [one for one in value.values() if isinstance(one, list) and len(one) > POINTS]
    every = max((-(-len(one) // POINTS) for one in long), default=1)
    if every == 1:
        return {key: _thin(inner) for key, inner in value.items()}
    return {"every": every} | {
        key: one[::every] if isinstance(one, list) and len(one) > POINTS else _thin(one)
        for key, one in value.items()
    }
