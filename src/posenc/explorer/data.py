"""The data of the explorer's page, as one JSON document: encodings, models, results of a study.

    python -m posenc.explorer.data > data.json

What takes long is measured once for the catalogue, and packaged: `catalog.json` has graphs and
properties, `models.json` what the architectures of transformers do by default. tools/explorer.py
writes both, and tests hold them against the encodings. A user's own encodings and models are
measured when the page is made.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict

from posenc import __version__, provenance
from posenc.analysis.cost import cost_of_encoding
from posenc.catalog import CATALOG
from posenc.explorer import graphs
from posenc.explorer.models import Model, Turning
from posenc.explorer.sliders import Slider, graph_or_sentence
from posenc.explorer.vectors import Vectors
from posenc.models.files.errors import printable
from posenc.properties import ALL, check
from posenc.properties.card import Card
from posenc.report import mathml, words

SCHEMA = 1
WIDE = 64, 4  # channels of a head, and heads: what properties are measured with, as in `show`
COUNTED = 512  # tokens of the text that a layer reads while its operations are counted
FAMILIES = {  # by room, in the order of the catalogue
    "none": "no encoding",
    "additive": "added to embeddings",
    "relative": "read by distance",
    "bias": "added to scores",
    "rotary": "turning queries and keys",
    "own": "your own",
}


class Paper(TypedDict):
    key: str
    short: str  # "Su et al. 2021"
    title: str
    year: int
    link: str
    bibtex: str  # as `posenc cite` prints it


class Block(TypedDict):
    """A part of a docstring: prose, or the lines of a formula, each as MathML and remarks."""

    prose: str  # with code in back-quotes; empty of a formula
    formula: list[list[str]]  # MathML: for each line, what stands apart on it


class Found(TypedDict):
    """A property as measured."""

    holds: bool | None  # None: it has no meaning here
    why: str  # the number and its witness, in words


class Option(TypedDict):
    """An option of the constructor."""

    name: str
    default: Any  # a number, a text, true, false or null
    type: str  # as it is annotated: "Literal['interleaved', 'half']"


class Cost(TypedDict):
    """What a layer does in a forward pass more than the same layer without an encoding."""

    tokens: int
    operations: int  # calls of torch that make a tensor
    numbers: int  # that they write
    memory: int  # bytes, at the peak
    grows: float  # twice the tokens: so many times the numbers


class Measured(TypedDict):
    """What is measured of an encoding once."""

    graph: dict[str, Any]  # see graphs.py; or with a "sentence": why there is none
    sliders: dict[str, Slider]  # by option
    properties: dict[str, Found]  # by name
    parameters: int  # learned, with 4 heads of 64 channels
    cost: Cost | None  # None: it cannot be made, or run, at this size
    causal: bool  # made for causal attention, and measured under such a mask


class Encoding(Measured):
    """One encoding on the page."""

    name: str
    slug: str
    family: str  # a key of `families`
    acts_on: list[str]  # "embeddings", "queries", "keys", "scores", "values", …
    axes: int
    summary: str  # one sentence
    text: list[Block]  # the docstring, its first sentence first
    formula: list[list[str]]  # all lines of formulas in it
    paper: Paper | None  # None: the user's own
    options: list[Option]
    command: str  # what to call it, in `posenc show rope` and `create("rope", 16, 4)`


class Property(TypedDict):
    name: str
    label: str  # in words
    meaning: str  # a sentence


class Page(TypedDict):
    schema: int
    version: str  # of posenc
    command: str  # that made this page
    seed: int  # of what is learned
    dim: int  # channels of a head, in the graphs
    heads: int
    families: dict[str, str]
    properties: list[Property]
    encodings: list[Encoding]  # the user's own come first
    first: list[str]  # slugs to begin with
    models: list[Model]  # the user's come first
    turnings: dict[str, Turning]  # by the keys that models name
    words: Vectors | None  # of a model; None: all words have seeded ones
    study: dict[str, Any] | None  # results, as `posenc results --json` prints them
    notes: list[str]  # what could not be shown, in sentences


def page(
    cards: Sequence[Card] = (),
    models: Sequence[tuple[Model, Mapping[str, Turning]]] = (),
    study: Mapping[str, Any] | None = None,
    spoken: Vectors | None = None,
) -> Page:
    """All encodings of the catalogue and these of the user's; all architectures, and these models.

    What cannot be exported is on the page as a sentence, and in `notes`.
    """
    cards, known = [renamed(card) for card in cards], catalog()
    own = [card for card in cards if card not in CATALOG]
    measured = {card.slug: measure(card) for card in own} | known
    shown = {card.slug: card for card in (*own, *CATALOG)}
    usual = architectures()
    turnings = {key: one for _, turns in models for key, one in turns.items()}
    return {
        "schema": SCHEMA,
        "version": __version__,
        "command": provenance.typed.get(),
        "seed": graphs.SEED,
        "dim": graphs.DIM,
        "heads": graphs.HEADS,
        "families": FAMILIES,
        "properties": [
            {
                "name": one.__name__,
                "label": words.label(one.__name__),
                "meaning": (one.__doc__ or "").splitlines()[0],
            }
            for one in ALL
        ],
        "encodings": [encoding(card, measured[slug]) for slug, card in shown.items()],
        "first": [card.slug for card in cards] or ["rope", "sinusoidal", "alibi"],
        "models": [*(model for model, _ in models), *usual["models"]],
        "turnings": turnings | usual["turnings"],
        "words": spoken,
        "study": None if study is None else dict(study),
        "notes": [
            measured[card.slug]["graph"]["sentence"]
            for card in own
            if "sentence" in measured[card.slug]["graph"]
        ],
    }


def encoding(card: Card, measured: Measured) -> Encoding:
    """What the page says of an encoding, beside what is measured."""
    made = card.make(graphs.DIM, graphs.HEADS)
    named = card.slug if card in CATALOG else getattr(card.make, "name", card.name)
    text = blocks(card.text)
    return {
        **measured,
        "name": card.name,
        "slug": card.slug,
        "family": card.family,
        "acts_on": [hook.removeprefix("on_") for hook in made.acts_on],
        "axes": made.axes,
        "summary": card.summary,
        "text": text,
        "formula": [line for block in text for line in block["formula"]],
        "paper": None if card.paper is None else paper(card),
        "options": [*_options(card, type(made))],
        "command": named,
    }


def measure(card: Card) -> Measured:
    """Export an encoding and measure its properties: seconds."""
    made = graphs.make(card, *WIDE)
    graph, sliders = graph_or_sentence(card)
    return {
        "graph": graph,
        "sliders": sliders,
        "properties": {
            name: {"holds": finding.holds, "why": finding.why}
            for name, finding in check(made, *WIDE).items()
        },
        "parameters": sum(parameter.numel() for parameter in made.parameters()),
        "cost": cost(card),
        "causal": made.causal,
    }


def cost(card: Card) -> Cost | None:
    """Count what a layer of 4 heads with 64 channels does for the encoding."""
    try:
        encoding = card.make(*WIDE)
        half, whole = (cost_of_encoding(encoding, *WIDE, n) for n in (COUNTED // 2, COUNTED))
    except (TypeError, ValueError, LookupError):
        return None
    grows = round(whole.numbers / half.numbers, 2) if half.numbers else 1.0
    return Cost(tokens=COUNTED, **asdict(whole), grows=grows)


@cache
def catalog() -> dict[str, Measured]:
    """What is measured of the encodings of the catalogue, by slug."""
    return json.loads((files("posenc.explorer") / "catalog.json").read_text("utf-8"))


@cache
def architectures() -> dict[str, Any]:
    """Models as transformers makes them by default, and how they turn."""
    return json.loads((files("posenc.explorer") / "models.json").read_text("utf-8"))


def blocks(text: str) -> list[Block]:
    """A docstring in parts."""
    return [
        {"prose": "", "formula": mathml.lines(_visible(block))}
        if kind == "formula"
        else {"prose": _visible(block), "formula": []}
        for kind, block in words.blocks(text)
    ]


def paper(card: Card) -> Paper:
    one = card.paper
    assert one is not None
    return {
        "key": one.key,
        "short": one.short,
        "title": one.title,
        "year": one.year,
        "link": one.link,
        "bibtex": one.bibtex(),
    }


def to_json(data: Any) -> str:
    """As it stands in a file: numbers that JSON does not have are refused."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write(data: Mapping[str, Any], path: Path) -> None:
    """A file of the package: one line for each key of each part, so that a change can be read."""
    parts = (f"{json.dumps(key)}:{_lines(value)}" for key, value in data.items())
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _lines(value: Any) -> str:
    if isinstance(value, dict):
        inner: Iterable[str] = (f"{json.dumps(key)}:{to_json(one)}" for key, one in value.items())
        return "{\n" + ",\n".join(inner) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(to_json, value)) + "]"
    return to_json(value)


def renamed(card: Card) -> Card:
    """A user's own under a name that the catalogue does not have."""
    taken = card not in CATALOG and card.slug in {one.slug for one in CATALOG}
    return replace(card, name=f"{card.name} own") if taken else card


def _options(card: Card, made: type) -> Iterable[Option]:
    source = getattr(card.make, "source", card.make)
    if not callable(source):
        return
    asked = dict(signature(source).parameters)
    if any(one.kind is Parameter.VAR_KEYWORD for one in asked.values()):
        asked = dict(signature(made).parameters) | asked
    for one in asked.values():
        if one.default is None or isinstance(one.default, bool | int | float | str):
            kind = getattr(one.annotation, "__name__", "")
            kind = kind if isinstance(one.annotation, type) else str(one.annotation)
            kind = "" if one.annotation is one.empty else kind.replace("typing.", "")
            yield {"name": one.name, "default": one.default, "type": kind}


def _visible(text: str) -> str:
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))


if __name__ == "__main__":
    print(to_json(page()))
