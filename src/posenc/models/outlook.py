"""Predict what breaks in a model when a text has `target` tokens, and what cannot be predicted.

    problems, unknown = outlook(whole, spec, target, weighing)

Missing knowledge never counts as fitting: what the config leaves open, what was not recognised in
the weights and what was not measured goes to `unknown`. Where config and weights describe the same
table, the weights count, as they show which rows training has met.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from typing import TYPE_CHECKING

from posenc.models.config.spec import (
    Buckets,
    Disentangled,
    Pictured,
    Rotary,
    Slopes,
    Spec,
    Table,
    Waves,
)
from posenc.models.layouts import NOT_TEXT
from posenc.support.text import printable

# These need torch, which a config alone does not
if TYPE_CHECKING:
    from posenc.models.weighing import Positions, Weighing

JUDGED = (Rotary, Slopes, Buckets, Disentangled)  # Slopes and Buckets score any distance
ROUNDING = 1e-9  # relative
UNTRAINED = {"random": "as random as they are drawn", "alike": "all the same", "zero": "all zero"}


def outlook(
    full_spec: Spec, spec: Spec, target: int, weighing: Weighing | None = None
) -> tuple[list[str], list[str]]:
    """List what breaks and what cannot be said; both are empty where the target fits.

    `spec` is the main stack of `whole`; other stacks that read text are judged with it.
    """
    problems, unknown = [], []
    for name, part in [("", spec), *_beside(full_spec, spec)]:
        where = f"{name}: " if name else ""
        if part.applied:
            unknown.append(
                f"{where}what {' and '.join(part.applied)} does there only a trial shows"
            )
            continue
        problems += [where + line for line in _problems(part, target, weighing)]
        unknown += [where + line for line in _unknown(part, target)]
    if weighing:
        problems += _weighed_problems(full_spec, target, weighing)
        unknown += _weighed_unknown(full_spec, spec, target, weighing)
    return list(dict.fromkeys(problems)), list(dict.fromkeys(unknown))


def _beside(full_spec: Spec, main: Spec) -> Iterator[tuple[str, Spec]]:
    """Yield the other stacks that read text, such as the encoder of a decoder, by their path."""
    for name, part in full_spec.parts.items():
        if NOT_TEXT.search(name) or NOT_TEXT.search(part.model):
            continue
        if part != main and (part.layers or part.embedding):
            yield name, part
        yield from ((f"{name}.{inner}", nested) for inner, nested in _beside(part, main))


def _problems(spec: Spec, target: int, weighing: Weighing | None) -> Iterator[str]:
    """Yield what breaks, by the config."""
    match spec.embedding:
        case Table() as table if target > table.rows and not _stored(spec, weighing):
            yield f"the table has {table.rows:,} rows: {_none_from(table.rows, target)}"
        case Waves() if spec.context and target > spec.context and not _stored(spec, weighing):
            span = _span(spec.context, target)
            yield f"positions {span} have rows that no training has shown"
    for rotary in spec.rotary:
        yield from _turning_problems(rotary, spec, target)
    biased = next((x.encoding for x in spec.layers if isinstance(x.encoding, Disentangled)), None)
    if biased and spec.context and target > spec.context:
        yield f"distances beyond {biased.reach:,} tokens all count as {biased.reach:,}"


def _turning_problems(rotary: Rotary, spec: Spec, target: int) -> Iterator[str]:
    if not sees_all(spec, rotary) or not spec.context:
        # Distances within a window stay as they were
        return
    trained = rotary.trained or spec.context
    if rotary.by_length and target > trained:
        yield (
            f"{rotary.method}: past {trained:,} tokens all keys turn by other frequencies, so"
            " those that a cache has turned before are wrong; compute them anew, or cache keys"
            " before they are turned"
        )
    if target <= spec.context:
        return
    turns = [abs(turn) / (2 * pi) for turn in rotary.theta(target)]
    new = sum(0 < turn and turn * spec.context < 1 for turn in turns)
    if new:
        yield (
            f"{new} of {rotary.turned // 2} pairs do not go round once in {spec.context:,} tokens:"
            f" up to {target:,} they come to angles that no shorter text shows"
        )
    else:
        yield f"distances beyond {spec.context:,} tokens are not in the context of the config"


def _stretched_unknown(rotary: Rotary, spec: Spec, target: int) -> Iterator[str]:
    """Yield the angles that are new if the model was trained on the length before stretching."""
    before = rotary.trained or spec.trained
    if rotary.method == "default" or not (before and spec.context and sees_all(spec, rotary)):
        return
    if not before < target <= spec.context:
        # Up to `before` no angle is new; past the context `_turning_problems` judges
        return
    turns = zip(rotary.unscaled(), rotary.theta(target), strict=True)
    met = [(abs(was) * before, abs(now) * target) for was, now in turns]
    new = sum(was < 2 * pi and now > was * (1 + ROUNDING) for was, now in met)
    if new:
        yield (
            f"the config states {before:,} tokens before stretching and {spec.context:,} after, and"
            f" does not tell on which of them the model was trained: if on {before:,}, {new} of"
            f" {rotary.turned // 2} pairs meet new angles at {target:,} tokens; if on"
            f" {spec.context:,}, none"
        )


def _unknown(spec: Spec, target: int) -> Iterator[str]:
    """Yield what the config leaves open."""
    yield from spec.doubts
    attending = [layer for layer in spec.layers if layer.attends]
    if not attending and not spec.embedding:
        if spec.model:
            yield f"no layer of {printable(spec.model)!r} that attends to a text is known"
        return
    if isinstance(spec.embedding, Waves) and not spec.context:
        yield "the config does not say how many positions training has shown"
    far = [layer.encoding for layer in attending if layer.window is None]
    if not spec.context and any(isinstance(encoding, Rotary) for encoding in far):
        yield "the config does not say on how many tokens its frequencies were trained"
    for rotary in spec.rotary:
        yield from _stretched_unknown(rotary, spec, target)
    if None in far and not spec.embedding and target > (spec.context or 0):
        trained = f"past {spec.context:,} tokens" if spec.context else "of this length"
        yield f"some layers have no encoding, and how they fare {trained} only a trial shows"
    for encoding in dict.fromkeys(far):
        if isinstance(encoding, Pictured):
            yield "its positions are points of a picture, of which a number of tokens says nothing"
        elif encoding is not None and not isinstance(encoding, JUDGED):
            yield f"what its {type(encoding).__name__} do past their training is not known"


def _weighed_problems(full_spec: Spec, target: int, weighing: Weighing) -> Iterator[str]:
    """Yield what breaks, by the weights."""
    for table in judged(weighing):
        offset = _offset(table, full_spec)
        rows, name = table.rows - offset, printable(table.tensor)
        if target > rows:
            more = ", though its formula would go on" if table.formula else ""
            yield f"{name} has {rows:,} rows: {_none_from(rows, target)}{more}"
        learned = table.learned
        if learned and not learned.trained:
            yield f"{name} looks untrained, from its first row to its last"
        elif (
            learned and learned.untrained and min(target, rows) > (met := learned.trained - offset)
        ):
            state = UNTRAINED[learned.untrained]
            span = _span(met, min(target, rows))
            yield f"{name}: the rows of positions {span} are {state}, training has not met them"
    evidence = weighing.evidence
    if evidence and evidence.verdict and weighing.layout not in (None, evidence.verdict):
        yield (
            f"the weights speak for layout {evidence.verdict!r}, and the model is said to be in"
            f" {weighing.layout!r}: queries and keys would turn wrongly, at any length"
        )


def _weighed_unknown(full_spec: Spec, spec: Spec, target: int, weighing: Weighing) -> Iterator[str]:
    """Yield what the weights leave open."""
    if full_spec.kind == "nothing" and not full_spec.model:
        yield "no config is beside the weights, so what else the layers do is not known"
    if not weighing.recognised:
        yield "nothing about positions was recognised in the weights"
    elif isinstance(spec.embedding, Table) and not (weighing.tables or weighing.broken):
        table = spec.embedding
        size = f"{table.rows + table.offset:,} rows of {table.width:,}"
        yield f"the config asks for a table of {size}, and the weights show none"
    for rows in judged(weighing):
        falls = rows.learned.falls if rows.learned else None
        if falls is not None and target > (start := falls - _offset(rows, full_spec)):
            yield (
                f"{printable(rows.tensor)} fades from position {start:,} on, as where training met"
                " few texts so long"
            )
    yield from (f"{printable(name)} holds numbers that are not finite" for name in weighing.broken)
    yield from (f"{printable(name)} {why}" for name, why in weighing.skipped.items())


def judged(weighing: Weighing) -> list[Positions]:
    """The tables of text; all of them, where each name is of pictures or sound."""
    of_text = [table for table in weighing.tables if not NOT_TEXT.search(table.tensor)]
    return of_text or weighing.tables


def _offset(table: Positions, spec: Spec) -> int:
    """Stored rows before that of position 0, where the config has such a table."""
    if spec.embedding and spec.stored == (table.rows, table.width):
        return spec.embedding.offset
    return max((_offset(table, part) for part in spec.parts.values()), default=0)


def _stored(spec: Spec, weighing: Weighing | None) -> bool:
    """Test whether the table of this spec is among those that were measured."""
    tables = judged(weighing) if weighing else []
    return spec.stored in [(table.rows, table.width) for table in tables]


def _none_from(rows: int, target: int) -> str:
    return f"there is none for positions {_span(rows, target)}"


def _span(start: int, end: int) -> str:
    return f"{start:,} … {end - 1:,}" if end - start > 1 else f"{start:,}"


def sees_all(spec: Spec, rotary: Rotary) -> bool:
    """Test whether a layer with this rotation sees the whole text."""
    return any(x.encoding == rotary and x.window is None for x in spec.layers)
