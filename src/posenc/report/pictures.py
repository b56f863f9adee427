"""List the figures of each kind of report, by their names on the page and as files."""

from dataclasses import replace

from posenc.bench.run import Benchmark
from posenc.models.inspection import Inspection
from posenc.models.weighing import Weighing
from posenc.report import figures
from posenc.report.drawing.figure import Figure
from posenc.report.figures import weights as weights_figures
from posenc.studies.comparison import Comparison
from posenc.studies.portrait import Closeup, Portrait, Turning
from posenc.studies.real_model import Reading

PAIRS = (0, 1), (2, 3), (6, 7), (14, 15)  # of 16 channels, from fast to slow
Pictures = dict[str, Figure]
Result = Comparison | Inspection | Portrait | Benchmark


def of(result: Result) -> Pictures:
    """Every figure that there is something to draw in."""
    if isinstance(result, Benchmark):
        return _benched(result)
    if isinstance(result, Comparison):
        return _compared(result)
    return _inspected(result) if isinstance(result, Inspection) else _portrayed(result)


def for_paper(result: Result) -> Pictures:
    """Every figure, and what the page has as a table: which property holds."""
    if isinstance(result, Inspection | Benchmark):
        return of(result)
    compared = result if isinstance(result, Comparison) else result.comparison
    return {"properties": figures.properties(compared)} | of(result)


def _compared(result: Comparison) -> Pictures:
    rows = figures.rows(result)
    return (
        {"curves": figures.curves(result)}
        | ({"rows": rows} if rows else {})
        | {"order": figures.order(result), "costs": figures.costs(result)}
        | _cards(result)
    )


def _cards(result: Comparison) -> Pictures:
    return {f"{one.slug}-figure": figures.card(result, one) for one in result.encodings}


def _benched(result: Benchmark) -> Pictures:
    grown = dict.fromkeys(one.part for one in result.growth)
    drawn = {f"table-{n}": figures.ways(table) for n, table in enumerate(result.tables)}
    return drawn | {f"growth-{part}": figures.growth(part, result.growth) for part in grown}


def _inspected(found: Inspection) -> Pictures:
    return {
        f"bands-{n}-{m}": figures.bands(group.turning)
        for n, one in enumerate([found, *found.parts.values()])
        for m, group in enumerate(one.groups)
        if group.turning
    } | (_weighed(found.weighing) if found.weighing else {})


def _weighed(found: Weighing) -> Pictures:
    draw = weights_figures
    shown: dict[str, Figure | None] = {
        **{f"table-{n}": draw.table(one) for n, one in enumerate(found.tables)},
        **{f"bias-{n}": draw.bias(one) for n, one in enumerate(found.biases)},
        "relative": draw.relative(found.relative),
        "strength": draw.bands(found.bands),
    }
    return {name: figure for name, figure in shown.items() if figure}


def _portrayed(result: Portrait) -> Pictures:
    names = {one.slug: one.name for one in result.comparison.encodings}
    close = {names[one.slug]: one for one in result.encodings}
    moved = {name: one.advance for name, one in close.items() if one.advance}
    waves = {name: one.waves for name, one in close.items() if one.waves}
    planes = {name: one.plane for name, one in close.items() if one.plane}
    patches = {name: one.patches for name, one in close.items() if one.patches}
    drawn = {
        "order": figures.order(result.comparison),
        "costs": figures.costs(result.comparison),
    } | _cards(result.comparison)
    if moved:
        drawn |= {
            "codes": figures.codes(moved),
            "vectors": figures.vectors(moved),
            "paths": figures.paths(moved),
        }
    if waves:
        drawn["decay"] = figures.decay(waves)
    if patches:
        drawn["grids"] = figures.grids(patches)
    if planes:
        drawn["projection"] = figures.projection(planes)
    if result.turning:
        drawn |= _turning(result.turning, names[result.turning.slug], result)
    for name, one in close.items():
        drawn |= _closeup(name, one, result.sentence)
    return drawn | (_read(result.reading) if result.reading else {})


def _closeup(name: str, one: Closeup, sentence: list[str]) -> Pictures:
    drawn = {
        "attention": replace(figures.attention(one.attention, sentence), columns=4),
        "parts": figures.decomposition(one.parts, sentence),
    }
    if one.similarity:
        drawn["similarity"] = figures.similarity(name, one.similarity)
    if one.shift:
        drawn["shift"] = figures.shift(name, one.shift)
    return {f"{one.slug}-{what}": figure for what, figure in drawn.items()}


def _turning(found: Turning, name: str, result: Portrait) -> Pictures:
    drawn = {
        "extensions": figures.extensions(found.extended),
        "precision": figures.precision(found.precision),
        "bound": figures.bound(found.bound),
        "peak": figures.peak(found.peak),
    }
    if found.pair:
        drawn["rotation"] = figures.rotation(found.sentences, found.pair)
    advance = next(one.advance for one in result.encodings if one.slug == found.slug)
    return drawn | ({"turning": figures.turning(name, advance, PAIRS)} if advance else {})


def _read(found: Reading) -> Pictures:
    drawn = {
        "model-layers": figures.layers(found),
        "model-heads": figures.heads(found),
        "model-distances": figures.distances(found),
    } | {f"model-{name}": figure for name, figure in _inspected(found.inspection).items()}
    if found.parts:
        drawn["model-parts"] = figures.decomposition(found.parts, found.tokens)
    if found.bound:
        drawn["model-bound"] = figures.bound(found.bound)
    if found.order:
        drawn["model-order"] = figures.shuffled(found.order)
    return drawn
