"""Measure an encoding for the explorer: graph, sliders, properties and cost.

For encodings of the catalogue it is measured once for these files and kept, in some 20 seconds.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypedDict

from posenc.analysis.cost import cost_of_encoding
from posenc.core.encoding import Encoding
from posenc.properties import check
from posenc.properties.card import Card, findings
from posenc.properties.probe import in_float64
from posenc.show.explorer import graphs
from posenc.show.explorer.sliders import Slider, graph_or_sentence
from posenc.support import made

KIND = "explorer"  # name of the measurements in the cache
WIDE = 64, 4  # channels of a head, and heads, with which properties are measured, as in `show`
DIMS = 8, 32, 64  # channels of a head, besides those of the usual graphs
ON_CHANNELS = {"on_embeddings", "on_queries", "on_keys"}
COUNTED = 512  # tokens of the text that a layer reads while its operations are counted


class MeasuredProperty(TypedDict):
    """The result of measuring one property of an encoding."""

    holds: bool | None  # None if the property is not applicable
    why: str  # the number and its witness, in words


class Work(TypedDict):
    """The extra work that an encoding causes in a layer's forward pass: operations and memory."""

    tokens: int
    operations: int  # calls of torch that make a tensor
    numbers: int  # numbers that these calls write
    memory: int  # bytes, at the peak
    grows: float  # factor by which `numbers` grows with twice the tokens


class Measurements(TypedDict):
    """An encoding as measured for the explorer: graphs, sliders, properties and cost."""

    graph: dict[str, Any]  # see graphs.py; or a "sentence" with the reason why it is missing
    wider: dict[str, dict[str, Any]]  # graphs by other numbers of channels in a head
    sliders: dict[str, Slider]  # sliders by name of the option
    properties: dict[str, MeasuredProperty]  # properties by name
    parameters: int  # learned, with 4 heads of 64 channels
    cost: Work | None  # None if the encoding cannot be made or run at this size
    causal: bool  # True if it is made for causal attention, and measured under a causal mask


def kept(card: Card, bases: Sequence[float]) -> Measurements | None:
    """Return the cached measurements of an encoding of the catalogue, or None."""
    return made.read(*_key(card), given=str(bases))


def file_name(card: Card, bases: Sequence[float]) -> str:
    """Return the name of the cache file for the measurements of an encoding."""
    return made.file_name(*_key(card), given=str(bases))


def _key(card: Card) -> tuple[str, str, Sequence[str]]:
    return KIND, card.slug, (__name__, card.make.__module__)


def measure(card: Card, bases: Sequence[float]) -> Measurements:
    """Measure an encoding of the catalogue, and cache the result.

    - `bases`: values that sliders mark and try
    """
    found = _exported(card, bases, findings(card)["properties"], wider(card))
    made.keep(*_key(card), found, given=str(bases))
    return found


def measure_own(card: Card, bases: Sequence[float]) -> Measurements:
    """Measure a user's own encoding; the result is not cached."""
    properties = {
        name: MeasuredProperty(holds=finding.holds, why=finding.why)
        for name, finding in check(graphs.make(card, *WIDE), *WIDE).items()
    }
    return _exported(card, bases, properties, {})


def graph_only(card: Card) -> Measurements:
    """Return an encoding's graph alone; the slower measurements are left empty."""
    instance = graphs.make(card, *WIDE)
    return {
        "graph": graphs.graph(card),
        "wider": {},
        "sliders": {},
        "properties": {},
        "parameters": _learned(instance),
        "cost": None,
        "causal": instance.causal,
    }


def _exported(
    card: Card,
    bases: Sequence[float],
    properties: dict[str, MeasuredProperty],
    wider: dict[str, dict[str, Any]],
) -> Measurements:
    instance = graphs.make(card, *WIDE)
    graph, sliders = graph_or_sentence(card, bases)
    return {
        "graph": graph,
        "wider": wider,
        "sliders": sliders,
        "properties": properties,
        "parameters": _learned(instance),
        "cost": cost(card),
        "causal": instance.causal,
    }


def _learned(encoding: Encoding) -> int:
    return sum(parameter.numel() for parameter in encoding.parameters())


def wider(card: Card) -> dict[str, dict[str, Any]]:
    """Export graphs of an encoding for other head sizes, keyed by the number of channels.

    The result is empty for biases and for encodings with parameters.
    """
    found = {}
    for dim in DIMS:
        try:
            encoding = in_float64(graphs.make(card, dim, graphs.HEADS))
            if {*encoding.acts_on}.isdisjoint(ON_CHANNELS) or [*encoding.parameters()]:
                continue
            found[str(dim)] = graphs.written(graphs.export(card, encoding, dim, graphs.HEADS))
        except ValueError:  # the encoding does not accept this width
            continue
    return found


def cost(card: Card) -> Work | None:
    """Count the extra work that the encoding causes in a layer of 4 heads with 64 channels."""
    try:
        encoding = card.make(*WIDE)
        half, full = (cost_of_encoding(encoding, *WIDE, n) for n in (COUNTED // 2, COUNTED))
    except (TypeError, ValueError, LookupError):
        return None
    grows = round(full.numbers / half.numbers, 2) if half.numbers else 1.0
    return Work(tokens=COUNTED, **asdict(full), grows=grows)
