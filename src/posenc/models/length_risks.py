"""Predict how a model fails on texts of `target` tokens, and list what could not be determined.

    problems, unknown = length_risks(whole, spec, target, measurements)

A model fits only if both lists are empty: a fact that the config does not state, or that was not
recognised or measured in the weights, is in `unknown`. If config and weights describe the same
table, the weights are used, since they show which rows are trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from typing import TYPE_CHECKING

from posenc.models.config.spec import (
    IN_IMAGES,
    Buckets,
    Convolution,
    Disentangled,
    Fourier,
    OfPatches,
    PatchTable,
    Rotary,
    Slopes,
    Spec,
    Table,
    Waves,
)
from posenc.models.layouts import NOT_TEXT
from posenc.support.text import printable

# Reading a config alone must not import torch, which this module needs
if TYPE_CHECKING:
    from posenc.models.weight_measurements import Positions, WeightMeasurements

COVERED = (Rotary, Slopes, Buckets, Disentangled)  # Slopes and Buckets score any distance
ROUNDING = 1e-9  # relative
UNTRAINED = {"random": "random", "alike": "all the same", "zero": "all zero"}


def length_risks(
    full_spec: Spec, spec: Spec, target: int, measurements: WeightMeasurements | None = None
) -> tuple[list[str], list[str]]:
    """Return the failures at `target` tokens, and what the config and weights leave unknown.

    The model fits if both lists are empty.

    - `full_spec`, `spec`: the specification, and its text model; other stacks that read text are
      included
    - `target`: length in tokens
    - `measurements`: those of the weights
    """
    problems, unknown = [], []
    for name, part in [("", spec), *_beside(full_spec, spec)]:
        where = f"{name}: " if name else ""
        if part.applied:
            unknown.append(
                f"{where}the effect of {' and '.join(part.applied)} at this length must be measured"
            )
            continue
        problems += [where + line for line in _problems(part, target, measurements)]
        unknown += [where + line for line in _unknown(part, target)]
    if measurements:
        problems += _weight_problems(full_spec, target, measurements)
        unknown += _weight_unknown(full_spec, spec, target, measurements)
    return list(dict.fromkeys(problems)), list(dict.fromkeys(unknown))


def _beside(full_spec: Spec, main: Spec) -> Iterator[tuple[str, Spec]]:
    """Yield (path, specification) of each other text stack in the config, such as an encoder."""
    for name, part in full_spec.parts.items():
        if NOT_TEXT.search(name) or NOT_TEXT.search(part.model):
            continue
        if part != main and (part.layers or part.embedding):
            yield name, part
        yield from ((f"{name}.{inner}", nested) for inner, nested in _beside(part, main))


def _problems(spec: Spec, target: int, measurements: WeightMeasurements | None) -> Iterator[str]:
    """Yield each failure that the config alone predicts for the target length."""
    match spec.embedding:
        case Table() as table if target > table.rows and not _stored(spec, measurements):
            yield f"the table has {table.rows:,} rows: {_none_from(table.rows, target)}"
        case Waves() if spec.context and target > spec.context and not _stored(spec, measurements):
            yield f"positions {_span(spec.context, target)} did not occur in training"
    for rotary in spec.rotary:
        yield from _rotary_problems(rotary, spec, target)
    biased = next((x.encoding for x in spec.layers if isinstance(x.encoding, Disentangled)), None)
    if biased and spec.context and target > spec.context:
        yield f"all distances beyond {biased.reach:,} tokens count as {biased.reach:,}"


def _rotary_problems(rotary: Rotary, spec: Spec, target: int) -> Iterator[str]:
    """Yield the failures of one rotation (RoPE) in texts of `target` tokens."""
    if rotary not in spec.global_rotary or not spec.context:
        # Distances within a window do not grow with the text
        return
    trained = rotary.trained or spec.context
    if rotary.by_length and target > trained:
        yield (
            f"{rotary.method}: beyond {trained:,} tokens all frequencies change, so keys that were"
            " cached after rotation are wrong; compute them again, or cache keys before rotation"
        )
    if target <= spec.context:
        return
    turns = [abs(turn) / (2 * pi) for turn in rotary.theta(target)]
    new = sum(0 < turn and turn * spec.context < 1 for turn in turns)
    if new:
        yield (
            f"{new} of {rotary.turned // 2} pairs complete no turn in {spec.context:,} tokens:"
            f" up to {target:,} they reach angles that do not occur in shorter texts"
        )
    else:
        yield f"distances beyond {spec.context:,} tokens exceed the context of the config"


def _extension_unknown(rotary: Rotary, spec: Spec, target: int) -> Iterator[str]:
    """Yield a warning if the model may not have been trained after its context extension.

    Then some pairs reach angles that did not occur in training.
    """
    before = rotary.trained or spec.trained
    extended = rotary.method != "default" and rotary in spec.global_rotary
    if not (extended and before and spec.context):
        return
    if not before < target <= spec.context:
        # Up to `before` no angle is new; beyond the context, `_rotary_problems` covers it
        return
    turns = zip(rotary.unscaled(), rotary.theta(target), strict=True)
    met = [(abs(was) * before, abs(now) * target) for was, now in turns]
    new = sum(was < 2 * pi and now > was * (1 + ROUNDING) for was, now in met)
    if new:
        yield (
            f"the config states {before:,} tokens before context extension and {spec.context:,}"
            f" after, but not the trained length: if it is {before:,}, {new} of"
            f" {rotary.turned // 2} pairs reach new angles at {target:,} tokens; if it is"
            f" {spec.context:,}, none"
        )


def _unknown(spec: Spec, target: int) -> Iterator[str]:
    """Yield sentences on what the config leaves unknown about texts of `target` tokens."""
    yield from spec.doubts
    attending = [layer for layer in spec.layers if layer.attends]
    if not attending and not spec.embedding:
        if spec.model:
            yield f"the layers of {printable(spec.model)!r} that attend to text are unknown"
        return
    if isinstance(spec.embedding, IN_IMAGES):
        yield "its positions are patches of an image, so a number of tokens has no meaning"
    if isinstance(spec.embedding, Convolution):
        yield "a convolution gives the order of near frames, so the effect of length is unknown"
    if isinstance(spec.embedding, Waves) and not spec.context:
        yield "the config does not state the number of trained positions"
    far = [layer.encoding for layer in attending if layer.window is None]
    if not spec.context and any(isinstance(encoding, Rotary) for encoding in far):
        yield "the config does not state the trained length of its frequencies"
    for rotary in spec.rotary:
        yield from _extension_unknown(rotary, spec, target)
    if None in far and not spec.embedding and target > (spec.context or 0):
        where = f"beyond {spec.context:,} tokens" if spec.context else "at this length"
        yield f"some layers have no encoding, and their quality {where} must be measured"
    for encoding in dict.fromkeys(far):
        if isinstance(encoding, Fourier):
            yield "the weights that mix its waves (FoPE) are in the checkpoint"
        elif isinstance(encoding, OfPatches):
            yield "its positions are points of an image, so a number of tokens has no meaning"
        elif encoding is not None and not isinstance(encoding, COVERED):
            yield f"its {type(encoding).__name__} has an unknown effect beyond the trained length"


def _weight_problems(
    full_spec: Spec, target: int, measurements: WeightMeasurements
) -> Iterator[str]:
    """Yield each failure that the weights predict for the target length."""
    for table in text_tables(measurements):
        if _of_patches(table, full_spec):
            continue
        offset = _offset(table, full_spec)
        rows, name = table.rows - offset, printable(table.tensor)
        if target > rows:
            more = ", although its formula is defined there" if table.formula else ""
            yield f"{name} has {rows:,} rows: {_none_from(rows, target)}{more}"
        learned = table.learned
        if learned and not learned.trained:
            yield f"{name} looks untrained in all rows"
        elif (
            learned and learned.untrained and min(target, rows) > (met := learned.trained - offset)
        ):
            state = UNTRAINED[learned.untrained]
            span = _span(met, min(target, rows))
            yield f"{name}: the rows of positions {span} are {state}, so they are untrained"
    evidence = measurements.evidence
    if evidence and evidence.verdict and measurements.layout not in (None, evidence.verdict):
        yield (
            f"the weights have layout {evidence.verdict!r}, but the model is read with layout"
            f" {measurements.layout!r}, so rotations are wrong at any length"
        )


def _weight_unknown(
    full_spec: Spec, spec: Spec, target: int, measurements: WeightMeasurements
) -> Iterator[str]:
    """Yield sentences on what the weights leave unknown about texts of `target` tokens."""
    if full_spec.kind == "nothing" and not full_spec.model:
        yield "the weights have no config, so other encodings of the layers are unknown"
    if not measurements.recognised:
        yield "no tensor of a positional encoding was recognised in the weights"
    elif isinstance(spec.embedding, Table) and not (measurements.tables or measurements.broken):
        table = spec.embedding
        size = f"{table.rows + table.offset:,} rows of {table.width:,}"
        yield f"the config describes a table of {size}, which the weights do not contain"
    for rows in text_tables(measurements):
        falls = rows.learned.falls if rows.learned else None
        if falls is not None and target > (start := falls - _offset(rows, full_spec)):
            yield (
                f"{printable(rows.tensor)} has falling norms from position {start:,} on, a sign of"
                " few training texts of this length"
            )
    yield from (f"{printable(n)} contains numbers that are not finite" for n in measurements.broken)
    yield from (f"{printable(name)} {why}" for name, why in measurements.skipped.items())


def text_tables(measurements: WeightMeasurements) -> list[Positions]:
    """Return the tables of text positions; if all tables are for images or audio, all of them."""
    of_text = [table for table in measurements.tables if not NOT_TEXT.search(table.tensor)]
    return of_text or measurements.tables


def _offset(table: Positions, spec: Spec) -> int:
    """Return the number of rows that a position table has before position 0; 0 if unknown."""
    if isinstance(spec.embedding, Table | Waves) and spec.stored == (table.rows, table.width):
        return spec.embedding.offset
    return max((_offset(table, part) for part in spec.parts.values()), default=0)


def _of_patches(table: Positions, spec: Spec) -> bool:
    """Test whether a table has the size that the specification gives for a patch grid."""
    own = isinstance(spec.embedding, PatchTable) and spec.stored == (table.rows, table.width)
    return own or any(_of_patches(table, part) for part in spec.parts.values())


def _stored(spec: Spec, measurements: WeightMeasurements | None) -> bool:
    """Test whether the weights contain a table of the size that the specification describes."""
    tables = text_tables(measurements) if measurements else []
    return spec.stored in [(table.rows, table.width) for table in tables]


def _none_from(rows: int, target: int) -> str:
    return f"positions {_span(rows, target)} have no row"


def _span(start: int, end: int) -> str:
    return f"{start:,} … {end - 1:,}" if end - start > 1 else f"{start:,}"
