"""List the figures of each kind of report, by their names on the page and as files."""

from posenc.lab.bench.run import Benchmark
from posenc.lab.compare.comparison import Comparison
from posenc.lab.compare.portrait import Closeup, Portrait, Turning
from posenc.lab.compare.real_model import Reading
from posenc.lab.study.summary import Summary
from posenc.models.inspection import Inspection
from posenc.models.weighing import Weighing
from posenc.show.report import figures
from posenc.show.report.drawing.figure import Figure
from posenc.show.report.figures import studies as study_figures
from posenc.show.report.figures import weights as weights_figures

Figures = dict[str, Figure]
Result = Comparison | Inspection | Portrait | Benchmark | Summary


def figures_of(result: Result) -> Figures:
    """The figures of a result by name; those without data are left out."""
    if isinstance(result, Benchmark):
        return _of_benchmark(result)
    if isinstance(result, Comparison):
        return _of_comparison(result)
    if isinstance(result, Summary):
        return _of_study(result)
    return _of_inspection(result) if isinstance(result, Inspection) else _of_portrait(result)


def figures_for_paper(result: Result) -> Figures:
    """The figures of a result, and the properties, which the page shows as a table."""
    if isinstance(result, Inspection | Benchmark | Summary):
        return figures_of(result)
    compared = result if isinstance(result, Comparison) else result.comparison
    return {"properties": figures.properties(compared)} | figures_of(result)


def _of_comparison(result: Comparison) -> Figures:
    drawn = {
        "rows": figures.rows(result),
        "curves": figures.curves(result),
        "order": figures.order(result),
        "costs": figures.costs(result),
        "lengths": figures.lengths(result),
    }
    return {name: figure for name, figure in drawn.items() if figure} | _cards(result)


def _cards(result: Comparison) -> Figures:
    return {
        f"{measured.slug}-figure": figures.card(result, measured) for measured in result.encodings
    }


def _of_benchmark(result: Benchmark) -> Figures:
    parts = dict.fromkeys(growth.part for growth in result.growth)
    drawn = {f"table-{n}": figures.ways(table) for n, table in enumerate(result.tables)}
    return drawn | {f"growth-{part}": figures.growth(part, result.growth) for part in parts}


def _of_study(result: Summary) -> Figures:
    analysis, draw = result.analysis, study_figures
    drawn: dict[str, Figure | None] = {}
    for n, task in enumerate(dict.fromkeys(row.task for row in analysis.rows)):
        rows = [row for row in analysis.rows if row.task == task]
        drawn[f"lengths-{n}"] = draw.lengths(rows, result.published.get(task))
        drawn[f"seeds-{n}"] = draw.seeds(rows, analysis.metric)
        contrasts = [contrast for contrast in analysis.contrasts if contrast.task == task]
        drawn[f"contrasts-{n}"] = draw.contrasts(contrasts, rows[0].bits)
    drawn["profiles"] = draw.profiles(analysis.overall, analysis.metric)
    return {name: figure for name, figure in drawn.items() if figure}


def _of_inspection(inspection: Inspection) -> Figures:
    drawn = {}
    for n, stack in enumerate([inspection, *inspection.parts.values()]):
        for m, group in enumerate(stack.groups):
            if turning := group.turning:
                if turning.dials and turning.trained and turning.span:
                    drawn[f"dials-{n}-{m}"] = figures.dials(
                        turning.dials, turning.trained, turning.span
                    )
                drawn[f"bands-{n}-{m}"] = figures.bands(turning)
    return drawn | (_of_weights(inspection.weighing) if inspection.weighing else {})


def _of_weights(weighing: Weighing) -> Figures:
    draw = weights_figures
    shown: dict[str, Figure | None] = {
        **{f"table-{n}": draw.table(tensor) for n, tensor in enumerate(weighing.tables)},
        **{f"bias-{n}": draw.bias(tensor) for n, tensor in enumerate(weighing.biases)},
        "relative": draw.relative(weighing.relative),
        "strength": draw.bands(weighing.bands),
    }
    return {name: figure for name, figure in shown.items() if figure}


def _of_portrait(result: Portrait) -> Figures:
    names = {closeup.slug: closeup.name for closeup in result.comparison.encodings}
    close = {names[closeup.slug]: closeup for closeup in result.encodings}
    moved = {name: closeup.advance for name, closeup in close.items() if closeup.advance}
    alike: dict[tuple[float, ...], list[str]] = {}  # encodings of equal frequencies share a panel
    for name, closeup in close.items():
        if closeup.waves:
            alike.setdefault(tuple(closeup.waves.share), []).append(name)
    waves = {}
    for names_of in alike.values():
        if shared_waves := close[names_of[0]].waves:
            waves[f"{' and '.join(names_of)}, {shared_waves.channels} channels"] = shared_waves
    clouds = {name: closeup.clouds for name, closeup in close.items() if closeup.clouds}
    patches = {name: closeup.patches for name, closeup in close.items() if closeup.patches}
    drawn = {
        "order": figures.order(result.comparison),
        "costs": figures.costs(result.comparison),
    } | _cards(result.comparison)
    if moved:
        drawn |= {
            "codes": figures.codes(moved),
            "vectors": figures.vectors(moved),
        }
    if waves:
        drawn["decay"] = figures.decay(waves)
    if patches:
        drawn["grids"] = figures.grids(patches)
    if clouds:
        drawn["clouds"] = figures.clouds(clouds)
    if result.turning:
        drawn |= _of_turning(result.turning, names[result.turning.slug], result)
    for name, closeup in close.items():
        drawn |= _of_closeup(name, closeup, result.sentence)
    return drawn | (_of_reading(result.reading) if result.reading else {})


def _of_closeup(name: str, closeup: Closeup, sentence: list[str]) -> Figures:
    drawn = {
        "attention": figures.compared(closeup.without, closeup.attention, sentence),
        "parts": figures.decomposition(closeup.parts, sentence),
    }
    if closeup.similarity:
        drawn["similarity"] = figures.similarity(name, closeup.similarity)
    if closeup.shift:
        drawn["shift"] = figures.shift(name, closeup.shift)
    return {f"{closeup.slug}-{what}": figure for what, figure in drawn.items()}


def _of_turning(turning: Turning, name: str, result: Portrait) -> Figures:
    reached = turning.extended
    drawn = {
        "dials": figures.dials(turning.dials, reached.trained, reached.target),
        "stretch": figures.stretch(reached),
        "extensions": figures.extensions(reached),
        "precision": figures.precision(turning.precision),
        "bound": figures.bound(turning.bound),
        "peak": figures.peak(turning.peak),
    }
    if turning.pair:
        drawn["rotation"] = figures.rotation(turning.sentences, turning.pair)
    clocks = next(closeup.clocks for closeup in result.encodings if closeup.slug == turning.slug)
    return drawn | ({"turning": figures.turning(name, clocks)} if clocks else {})


def _of_reading(reading: Reading) -> Figures:
    drawn = {
        "model-layers": figures.layers(reading),
        "model-heads": figures.heads(reading),
        "model-distances": figures.distances(reading),
    } | {f"model-{name}": figure for name, figure in _of_inspection(reading.inspection).items()}
    if reading.parts:
        drawn["model-parts"] = figures.decomposition(reading.parts, reading.tokens)
    if reading.bound:
        drawn["model-bound"] = figures.bound(reading.bound)
    if reading.order:
        drawn["model-order"] = figures.shuffled(reading.order)
    return drawn
