"""Measure the positional tensors of a model: tables, biases and rotary projections.

    measure_weights(spec, open_weights(find_files(path)))

A tensor is recognised by its name and, with a config, by the shape that the config implies. Without
a config, a T5 bias is assumed to have a maximum distance of 128, and to be bidirectional unless its
name contains "decoder"; rotary projections are recognised in GGUF files only, from their metadata.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from math import pi
from typing import Any, get_args

import torch
from torch import Tensor

from posenc.analysis import relative_tables, rotary_pairs
from posenc.analysis.formula import Formula, fit_formula
from posenc.analysis.relative_tables import Steps, Vectors
from posenc.analysis.rotary_pairs import Evidence
from posenc.analysis.tables import Rows, rows
from posenc.compat.threads import threads
from posenc.core.frequencies import Layout
from posenc.models.config.spec import Buckets, Rotary, Spec
from posenc.models.layouts import KEY
from posenc.models.projections import Projection, find_projections
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
MOST_ELEMENTS = 2**25  # elements of a table
MOST_ROWS, MOST_WIDTH = 2**21, 2**16  # rows and channels of a table
MOST_HEADS = 2**10  # heads of a bias
MOST_TENSORS = 256  # measured tensors of one kind
MOST_PROJECTION = 2**29  # elements of a query or key projection
MOST_WORK = 2**40  # multiplications in the search for the layout
REACH = 128  # maximum distance of the released T5
MOST_POINTS = 256  # points of a curve in JSON
NAMES_SHOWN = 3  # names of tensors in the report if none is recognised


@dataclass(frozen=True)
class Positions:
    """Position table that is added to the embeddings, either sinusoidal or learned.

    `formula` is set for a sinusoidal table, `learned` for a learned one.
    """

    tensor: str
    rows: int
    width: int
    formula: Formula | None
    learned: Rows | None


@dataclass(frozen=True)
class Bias:
    """T5 bias: a number for each head and bucket of distances."""

    tensor: str
    buckets: int
    reach: int
    bidirectional: bool
    assumed: bool  # True: `reach` and `bidirectional` are assumed, not from a config
    steps: Steps


@dataclass(frozen=True)
class Relative:
    """Shaw table: a vector for each distance."""

    tensor: str
    vectors: Vectors


@dataclass(frozen=True)
class Bands:
    """Mean norms of the W_q and W_k rows of each RoPE pair, fastest pair first.

    The mean is over heads, and over layers with the same rotation.
    """

    tensors: list[str]
    layers: list[int]
    layout: Layout
    wavelengths: list[float]  # in tokens, before context extension
    queries: list[float]  # mean over heads and layers
    keys: list[float]


@dataclass(frozen=True)
class WeightMeasurements:
    """Measurements of a model's position tables, biases and rotary projections."""

    tables: list[Positions]
    biases: list[Bias]
    relative: list[Relative]
    bands: list[Bands]
    evidence: Evidence | None  # evidence of the layout
    layout: Layout | None  # layout that the config or the file states
    broken: list[str]  # tensors that were not measured because of numbers that are not finite
    skipped: dict[str, str]  # tensor → reason why it was not measured
    tensors: int  # number of all tensors in the file
    some: list[str]  # names of the first few tensors

    @property
    def recognised(self) -> bool:
        """True if a tensor was recognised as positional."""
        kinds = (self.tables, self.biases, self.relative, self.bands, self.broken, self.skipped)
        return any(kinds) or self.evidence is not None

    def to_json(self) -> dict[str, Any]:
        """Return the measurements as plain data for `json.dumps`, at most 256 points per curve."""
        data = _thin(asdict(self)) | {"recognised": self.recognised}
        if self.evidence:
            data["evidence"]["verdict"] = self.evidence.verdict
        return data


@threads(1)
def measure_weights(spec: Spec | None, weights: Weights) -> WeightMeasurements:
    """Measure all positional tensors in these weights, with one tensor in memory at a time."""
    tensors = _FloatTensors(weights)
    tables = tensors.measured(lambda info: _is_table(info, spec), _table_size)
    biases = tensors.measured(_is_bias, _bias_size)
    relative = tensors.measured(_is_relative, _table_size)
    rotary = find_projections(spec, weights)
    projections = _RotaryProjections(rotary, tensors)
    evidence = rotary_pairs.evidence(projections.layers()) if rotary else None
    layout: Layout | None = next((projection.rotary.layout for projection in rotary), None)
    mark = weights.metadata.get(KEY)
    layout = mark if mark in get_args(Layout) else layout
    layout_used = layout or (evidence.verdict if evidence else None)
    return WeightMeasurements(
        [_position_table(info, tensors) for info in tables if tensors.finite(info.name)],
        [_bias(info, spec, tensors) for info in biases if tensors.finite(info.name)],
        [_relative(info, tensors) for info in relative if tensors.finite(info.name)],
        list(projections.bands(layout_used)) if layout_used else [],
        evidence,
        layout,
        tensors.broken,
        tensors.skipped,
        len(weights),
        list(islice(weights, NAMES_SHOWN)),
    )


@threads(1)
def layout_evidence(spec: Spec, weights: Weights, layers: int = 8) -> Evidence | None:
    """Measure the RoPE pair layout of q and k in some of the layers; None if there is no RoPE."""
    projections = find_projections(spec, weights)
    picked = projections[:: max(len(projections) // layers, 1)]
    return (
        rotary_pairs.evidence(_RotaryProjections(picked, _FloatTensors(weights)).layers())
        if picked
        else None
    )


class _FloatTensors(Tensors):
    """Mapping from name to float32 tensor, with a cache of the last two tensors.

    It records tensors that are not finite or not measurable.
    """

    def __init__(self, weights: Weights):
        self.weights = weights
        self.kept: dict[str, Tensor] = {}
        self.broken: list[str] = []
        self.skipped: dict[str, str] = {}

    def measured(self, is_kind: Callable[[Info], bool], size: Callable[[Info], str]) -> list[Info]:
        """Return the tensors of one kind that can be measured; record the others in `skipped`."""
        infos = []
        for info in filter(is_kind, self.weights.infos.values()):
            why = "" if info.dtype in FLOATS else f"is stored as {info.dtype}"
            why = why or size(info) or ("is one of too many" if len(infos) >= MOST_TENSORS else "")
            if why:
                self.skipped[info.name] = f"{why}, so it is not measured"
            else:
                infos.append(info)
        return infos

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.kept:
            self.kept = dict([*self.kept.items()][-1:])
            # A copy frees the bytes of the stored tensor, even if it is float32
            self.kept[name] = self.weights[name].to(torch.float32, copy=True)
        return self.kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def finite(self, name: str) -> bool:
        """Test whether all values of a tensor are finite; if not, append its name to `broken`."""
        fine = bool(self[name].isfinite().all())
        if not fine and name not in self.broken:
            self.broken.append(name)
        return fine


def _is_table(info: Info, spec: Spec | None) -> bool:
    shape = info.shape
    # A table may have a batch axis of size 1 before its rows or after them
    if len(shape) == 3 and 1 in shape[:2]:
        shape = (shape[0] * shape[1], shape[2])
    if len(shape) != 2 or min(shape) < 2 or RELATIVE.search(info.name):
        return False
    return bool(TABLE.fullmatch(info.name)) or (
        "pos" in info.name.lower() and shape in [part.stored for part in _specs(spec)]
    )


def _table_size(info: Info) -> str:
    """Return the reason why a table is too large to be measured; "" if it can be measured."""
    rows, width = info.elements // info.shape[-1], info.shape[-1]
    if rows > MOST_ROWS or width > MOST_WIDTH:
        return f"has {rows:,} rows of {width:,} channels, more than any model"
    return (
        f"has {info.elements:,} numbers, over {MOST_ELEMENTS:,}"
        if info.elements > MOST_ELEMENTS
        else ""
    )


def _specs(spec: Spec | None) -> Iterator[Spec]:
    """Yield a specification and, at any depth, those nested in it."""
    if spec:
        yield spec
        for part in spec.parts.values():
            yield from _specs(part)


def _position_table(info: Info, weights: Tensors) -> Positions:
    values = weights[info.name].flatten(0, -2)
    fitted = fit_formula(values)
    count, width = values.shape
    return Positions(info.name, count, width, fitted, None if fitted else rows(values))


def _is_bias(info: Info) -> bool:
    if not T5.fullmatch(info.name) or len(info.shape) != 2:
        return False
    return 4 <= info.shape[0] < REACH and info.shape[1] > 0


def _bias_size(info: Info) -> str:
    heads = info.shape[1]
    return f"has {heads:,} heads, more than any model" if heads > MOST_HEADS else ""


def _bias(info: Info, spec: Spec | None, weights: Tensors) -> Bias:
    decoder = "decoder" in info.name
    layers = [layer.encoding for part in _specs(spec) for layer in part.layers]
    fit = [
        encoding
        for encoding in layers
        if isinstance(encoding, Buckets) and encoding.buckets == info.shape[0]
    ]
    config = next(
        (encoding for encoding in fit if encoding.bidirectional != decoder), next(iter(fit), None)
    )
    reach = config.reach if config else REACH
    bidirectional = config.bidirectional if config else not decoder
    steps = relative_tables.t5(weights[info.name], reach, bidirectional)
    return Bias(info.name, info.shape[0], reach, bidirectional, config is None, steps)


def _is_relative(info: Info) -> bool:
    if not SHAW.fullmatch(info.name) or len(info.shape) < 2 or not info.elements:
        return False
    rows = info.elements // info.shape[-1]
    return rows == info.shape[-2] and rows % 2 == 1 and rows > 1


def _relative(info: Info, weights: Tensors) -> Relative:
    return Relative(info.name, relative_tables.shaw(weights[info.name].flatten(0, -2)))


class _RotaryProjections:
    """Query and key projections of a model, read once to measure layout and norms of pairs."""

    def __init__(self, projections: list[Projection], tensors: _FloatTensors):
        self.projections, self.tensors, self.work = projections, tensors, 0
        self.strength: dict[int, dict[Layout, tuple[Tensor, Tensor]]] = {}

    def layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rotated weight rows of q and k, layer by layer, until MOST_WORK is exceeded."""
        infos = self.tensors.weights.infos
        for projection in self.projections:
            large = [name for name in projection.names if infos[name].elements > MOST_PROJECTION]
            for name in large:
                many = f"has {infos[name].elements:,} numbers, over {MOST_PROJECTION:,}"
                self.tensors.skipped[name] = f"{many}, so it is not measured"
            if large or not all([self.tensors.finite(name) for name in projection.names]):
                continue
            q, k = projection.rotary_rows(self.tensors)
            self.strength[projection.layer] = {
                to: (rotary_pairs.strength(q, to).mean(0), rotary_pairs.strength(k, to).mean(0))
                for to in get_args(Layout)
            }
            self.work += projection.heads * (2 * projection.rotary.turned) ** 3
            if self.work <= MOST_WORK:
                yield q, k

    def bands(self, layout: Layout) -> Iterator[Bands]:
        """Yield the mean norms of RoPE pairs for each group of layers with the same rotation."""
        alike: dict[Rotary, list[Projection]] = {}
        for projection in self.projections:
            if projection.layer in self.strength:
                alike.setdefault(projection.rotary, []).append(projection)
        for rotary, same in alike.items():
            strengths = [self.strength[projection.layer][layout] for projection in same]
            queries, keys = (
                torch.stack(side).mean(0).tolist() for side in zip(*strengths, strict=True)
            )
            waves = [2 * pi / turn for turn in rotary.unscaled()]
            names = [name for projection in same for name in projection.names]
            yield Bands(
                names, [projection.layer for projection in same], layout, waves, queries, keys
            )


def _thin(value: Any) -> Any:
    """Keep every n-th number of lists with over 256 numbers, and add n under the key "every"."""
    if not isinstance(value, dict):
        return [_thin(inner) for inner in value] if isinstance(value, list) else value
    lists = {key: x for key, x in value.items() if isinstance(x, list) and len(x) > MOST_POINTS}
    step = max((-(-len(x) // MOST_POINTS) for x in lists.values()), default=1)
    thinned = {key: x[::step] if key in lists else _thin(x) for key, x in value.items()}
    return {"every": step, **thinned} if lists else thinned
