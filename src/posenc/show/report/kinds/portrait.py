"""Figures and terminal output of a portrait: a few encodings in detail, and a real model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from posenc.analysis.similarity import PairsApart
from posenc.lab.compare.portrait import Closeup, FirstTurning, Portrait
from posenc.lab.compare.real_model import LayerReading, ModelReading
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import Band, Line
from posenc.show.report.figures import attention, clocks, plane, positions, rotary
from posenc.show.report.kinds import FILES_ONLY, Sections
from posenc.show.report.kinds import comparison as comparison
from posenc.show.report.kinds import inspection as inspection
from posenc.show.report.kinds.comparison import figures
from posenc.support.numbers import number

if TYPE_CHECKING:
    from rich.console import Console


def print_result(result: Portrait, console: Console) -> None:
    comparison.print_result(result.comparison, console)


def make_figures(result: Portrait) -> Sections:
    compared = result.comparison
    names = {closeup.slug: closeup.name for closeup in compared.encodings}
    close = {names[closeup.slug]: closeup for closeup in result.encodings}
    clouds = {name: closeup.clouds for name, closeup in close.items() if closeup.clouds}
    patches = {name: closeup.patches for name, closeup in close.items() if closeup.patches}
    turning, waves = result.turning, _waves(close)
    rotated = plane.rotation(turning.sentences, turning.pair) if turning and turning.pair else None
    drawn: Sections = {
        FILES_ONLY: {"properties": figures.properties(compared)},
        "words": {"order": figures.order(compared), "costs": figures.costs(compared)},
        "plane": {
            "clouds": plane.clouds(clouds) if clouds else None,
            "rotation": rotated,
            "grids": plane.grids(patches) if patches else None,
        },
        "distance": {
            "decay": positions.decay(waves) if waves else None,
            "apart": positions.apart(waves) if waves else None,
        },
    }
    drawn |= figures.cards(compared)
    for name, closeup in close.items():
        drawn[f"{closeup.slug}-more"] = _of_closeup(name, closeup, result.sentence)
    if turning:
        drawn |= _of_turning(turning, names[turning.slug], result)
    return drawn | (_of_reading(result.reading) if result.reading else {})


def _waves(close: Mapping[str, Closeup]) -> dict[str, PairsApart]:
    """Return the similarity of two positions by distance for each encoding with RoPE.

    Encodings with the same values share one key.
    """
    alike: dict[tuple[float, ...], list[str]] = {}
    for name, closeup in close.items():
        if closeup.waves:
            alike.setdefault(tuple(closeup.waves.share), []).append(name)
    shared = {" and ".join(names): close[names[0]].waves for names in alike.values()}
    return {f"{names}, {one.channels} channels": one for names, one in shared.items() if one}


def _of_closeup(name: str, closeup: Closeup, sentence: list[str]) -> dict[str, Figure | None]:
    alike, shift = closeup.similarity, closeup.shift
    drawn = {
        "similarity": positions.similarity(name, alike) if alike else None,
        "shift": positions.shift(name, shift) if shift else None,
        "attention": attention.compared(closeup.without, closeup.attention, sentence),
        "parts": attention.decomposition(closeup.parts, sentence),
    }
    return {f"{closeup.slug}-{what}": figure for what, figure in drawn.items()}


def _of_turning(turning: FirstTurning, name: str, result: Portrait) -> Sections:
    reached = turning.extended
    turned = next(closeup.clocks for closeup in result.encodings if closeup.slug == turning.slug)
    return {
        "turning": {
            "clocks": clocks.turning(name, turned) if turned else None,
            "dials": rotary.dials(turning.dials, reached.trained, reached.target),
        },
        "turning-more": {
            "stretch": rotary.stretch(reached),
            "extensions": rotary.extensions(reached),
            "precision": rotary.precision(turning.precision),
            "bound": positions.bound(turning.bound),
            "peak": positions.peak(turning.peak),
        },
    }


def _of_reading(reading: ModelReading) -> Sections:
    parts, bound, order = reading.parts, reading.bound, reading.order
    drawn: Sections = {
        "model": {
            "model-order": attention.shuffled(order) if order else None,
            "model-layers": layers(reading),
            "model-heads": heads(reading),
            "model-distances": distances(reading),
            "model-parts": attention.decomposition(parts, reading.tokens) if parts else None,
            "model-bound": positions.bound(bound) if bound else None,
        }
    }
    for section, named in inspection.make_figures(reading.inspection).items():
        drawn[f"model-{section}"] = {f"model-{name}": figure for name, figure in named.items()}
    return drawn


def layers(reading: ModelReading) -> Figure:
    """Draw the attention of some layers, averaged over heads."""
    names = [f"layer {layer.number}" for layer in reading.layers]
    figure = attention.attention([layer.weights for layer in reading.layers], reading.tokens, names)
    return replace(figure, title="Attention, the mean of the heads of a layer", columns=3)


def heads(reading: ModelReading) -> Figure:
    """Draw the attention of the first layer, one panel for each head."""
    figure = attention.attention(reading.heads, reading.tokens)
    title, says = (
        "Attention of the first layer, head by head",
        f"{figure.says}{_describe_heads(reading)}",
    )
    return replace(figure, title=title, says=says, columns=4)


def _describe_heads(reading: ModelReading) -> str:
    """Name the heads that attend mostly to the previous, the same or the next token."""
    sentences = ""
    for n, weights in enumerate(reading.heads):
        for back, place in (
            (1, "the token before"),
            (0, "the token itself"),
            (-1, "the next token"),
        ):
            there = [row[q - back] for q, row in enumerate(weights) if 0 <= q - back < len(row)]
            mean = sum(weight or 0.0 for weight in there) / max(1, len(there))
            if mean > 0.5:
                sentences += f" Head {n} looks at {place}: {mean:.2f} of its weight, on average."
    return sentences


def distances(reading: ModelReading) -> Figure:
    """Draw a model's scores against the distance of query and key."""
    panels = [_curve(layer) for layer in reading.layers]
    scores = ", ".join(
        f"{number(layer.curve.mean[1])} to {number(layer.curve.mean[-1])} in layer {layer.number}"
        for layer in reading.layers
    )
    return Figure(
        "Scores of a model against distance",
        panels,
        f"{reading.window} tokens of the text. From neighbours to the tokens farthest apart, the"
        f" mean score goes from {scores}.",
        columns=len(panels),
        height=220,
    )


def _curve(layer: LayerReading) -> Panel:
    # Distance 0 is left out: its score is so high that all others would look equal
    curve, others = layer.curve, slice(1, None)
    x = curve.distance[others]
    marks = [
        Band(x, curve.low[others], curve.high[others], "80 % of the scores"),
        Line(x, curve.mean[others], "mean score"),
    ]
    return Panel(f"layer {layer.number}", marks, "tokens back", "score, logits")
