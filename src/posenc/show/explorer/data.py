"""The data of the explorer's page, as one JSON document: encodings, models, results of a study.

    python -m posenc.show.explorer.data > data.json

What takes minutes is measured once for the catalogue, and packaged: `catalog.json` has graphs and
properties. tools/explorer.py writes it, and tests hold it against the encodings. A user's own
encodings, and what models do, are described when the page is made.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict

from posenc.analysis.cost import cost_of_encoding
from posenc.catalog import CATALOG
from posenc.properties import ALL, check
from posenc.properties.card import Card
from posenc.properties.probe import in_float64
from posenc.show.explorer import graphs
from posenc.show.explorer.models import ModelEntry, TurningEntry, architectures
from posenc.show.explorer.sliders import Slider, graph_or_sentence
from posenc.show.explorer.story import Story, story
from posenc.show.explorer.vectors import WordVectors
from posenc.show.report import mathml, words
from posenc.support import provenance
from posenc.support.text import printable
from posenc.support.version import __version__

SCHEMA = 1
WIDE = 64, 4  # channels of a head, and heads: what properties are measured with, as in `show`
DIMS = 8, 32, 64  # channels of a head, besides those of the usual graphs
ON_CHANNELS = {"on_embeddings", "on_queries", "on_keys"}
COUNTED = 512  # tokens of the text that a layer reads while its operations are counted
# By folder, in the order of the catalogue
FAMILIES = {
    "none": "no encoding",
    "additive": "added to embeddings",
    "relative": "read by distance",
    "bias": "added to scores",
    "rotary": "turning queries and keys",
    "own": "your own",
}


class Citation(TypedDict):
    key: str
    short: str  # "Su et al. 2021"
    title: str
    year: int
    link: str
    bibtex: str  # entry that `posenc cite` prints


class Passage(TypedDict):
    """A part of a docstring: prose, or the lines of a formula, each as MathML and remarks."""

    prose: str  # text with code in back-quotes; empty where it is a formula
    formula: list[list[str]]  # MathML: for each line, what stands apart on it


class MeasuredProperty(TypedDict):
    """A property as measured."""

    holds: bool | None  # None: it has no meaning here
    why: str  # the number and its witness, in words


class Option(TypedDict):
    """An option of the constructor."""

    name: str
    default: Any  # a number, a text, true, false or null
    type: str  # annotation: "Literal['interleaved', 'half']"


class Work(TypedDict):
    """The work of a layer in a forward pass, beyond that of the layer without an encoding."""

    tokens: int
    operations: int  # calls of torch that make a tensor
    numbers: int  # numbers that these calls write
    memory: int  # bytes, at the peak
    grows: float  # twice the tokens: so many times the numbers


class Measurements(TypedDict):
    """The measurements of an encoding, made once."""

    graph: dict[str, Any]  # see graphs.py; or with a "sentence": why there is none
    wider: dict[str, dict[str, Any]]  # graphs by other numbers of channels in a head
    sliders: dict[str, Slider]  # by option
    properties: dict[str, MeasuredProperty]  # by name
    parameters: int  # learned, with 4 heads of 64 channels
    cost: Work | None  # None: it cannot be made, or run, at this size
    causal: bool  # True of one made for causal attention, under whose mask it is measured


class PageEntry(Measurements):
    """One encoding on the page."""

    name: str
    slug: str
    family: str  # a key of `families`
    acts_on: list[str]  # "embeddings", "queries", "keys", "scores", "values", …
    axes: int
    summary: str  # one sentence
    text: list[Passage]  # the docstring, its first sentence first
    formula: list[list[str]]  # all lines of formulas in it
    paper: Citation | None  # None: the user's own
    options: list[Option]
    command: str  # what to call it, in `create("rope", 16, 4)`
    shell: str  # the same in `posenc show rope`: quoted, where a shell would read it otherwise


class PropertyWords(TypedDict):
    name: str
    label: str  # its name in words
    meaning: str  # a sentence


class Page(TypedDict):
    schema: int
    version: str  # version of posenc
    command: str  # command that made this page
    seed: int  # seed of learned weights
    dim: int  # channels of a head, in the graphs
    heads: int
    families: dict[str, str]
    properties: list[PropertyWords]
    encodings: list[PageEntry]  # the user's own come first
    first: list[str]  # slugs to begin with
    begin: str  # the view to begin with: of what was named, or else the story
    story: Story  # what its scenes show beside the encodings
    models: list[ModelEntry]  # the user's come first
    turnings: dict[str, TurningEntry]  # rotations by the keys that models name
    words: WordVectors | None  # word vectors of a model; None: all words have seeded ones
    study: dict[str, Any] | None  # results, as `posenc results --json` prints them
    notes: list[str]  # what could not be shown, in sentences


def page(
    cards: Sequence[Card] = (),
    models: Sequence[tuple[ModelEntry, Mapping[str, TurningEntry]]] = (),
    study: Mapping[str, Any] | None = None,
    spoken: WordVectors | None = None,
) -> Page:
    """Collect the catalogue and a user's encodings, all architectures and a user's models.

    An encoding that cannot be exported is on the page as a sentence, and in `notes`.
    """
    cards, known = [renamed(card) for card in cards], catalog()
    own = [card for card in cards if card not in CATALOG]
    shown = {card.slug: card for card in (*own, *CATALOG)}
    # An encoding that was just added to the catalogue is not packaged yet
    measured = known | {slug: measure(shown[slug]) for slug in shown if slug not in known}
    usual, usual_turnings = architectures()
    turnings = {key: rotation for _, turns in models for key, rotation in turns.items()}
    return {
        "schema": SCHEMA,
        "version": __version__,
        "command": provenance.command_line.get(),
        "seed": graphs.SEED,
        "dim": graphs.DIM,
        "heads": graphs.HEADS,
        "families": FAMILIES,
        "properties": [
            {
                "name": test.__name__,
                "label": words.label(test.__name__),
                "meaning": (test.__doc__ or "").splitlines()[0],
            }
            for test in ALL
        ],
        "encodings": [encoding(card, measured[slug]) for slug, card in shown.items()],
        "first": [card.slug for card in cards] or ["rope", "sinusoidal", "alibi"],
        "begin": "context" if models and not own else "encoding" if cards else "story",
        "story": story(),
        "models": [*(model for model, _ in models), *usual],
        "turnings": turnings | usual_turnings,
        "words": spoken,
        "study": None if study is None else dict(study),
        "notes": [
            measured[card.slug]["graph"]["sentence"]
            for card in own
            if "sentence" in measured[card.slug]["graph"]
        ],
    }


def encoding(card: Card, measured: Measurements) -> PageEntry:
    """Describe an encoding for the page, beside its measurements."""
    instance = card.make(graphs.DIM, graphs.HEADS)
    named = card.slug if card in CATALOG else getattr(card.make, "name", card.name)
    text = blocks(card.text)
    return {
        **measured,
        "name": card.name,
        "slug": card.slug,
        "family": card.family,
        "acts_on": [hook.removeprefix("on_") for hook in instance.acts_on],
        "axes": instance.axes,
        "summary": card.summary,
        "text": text,
        "formula": [line for block in text for line in block["formula"]],
        "paper": None if card.paper is None else paper(card),
        "options": [*_options(card, type(instance))],
        "command": named,
        "shell": shlex.quote(named),
    }


def measure(card: Card) -> Measurements:
    """Export an encoding and measure its properties: seconds."""
    instance = graphs.make(card, *WIDE)
    graph, sliders = graph_or_sentence(card)
    return {
        "graph": graph,
        "wider": {},
        "sliders": sliders,
        "properties": {
            name: {"holds": finding.holds, "why": finding.why}
            for name, finding in check(instance, *WIDE).items()
        },
        "parameters": sum(parameter.numel() for parameter in instance.parameters()),
        "cost": cost(card),
        "causal": instance.causal,
    }


def wider(card: Card) -> dict[str, dict[str, Any]]:
    """Export graphs with other numbers of channels in a head, of what learns nothing: seconds."""
    found = {}
    for dim in DIMS:
        try:
            encoding = in_float64(graphs.make(card, dim, graphs.HEADS))
            if {*encoding.acts_on}.isdisjoint(ON_CHANNELS) or [*encoding.parameters()]:
                continue
            program = graphs.export(card, encoding, dim, graphs.HEADS)
            found[str(dim)] = graphs.written(card, encoding, program, dim, graphs.HEADS)
        except ValueError:  # a width that the encoding refuses
            continue
    return found


def cost(card: Card) -> Work | None:
    """Count what a layer of 4 heads with 64 channels does for the encoding."""
    try:
        encoding = card.make(*WIDE)
        half, full = (cost_of_encoding(encoding, *WIDE, n) for n in (COUNTED // 2, COUNTED))
    except (TypeError, ValueError, LookupError):
        return None
    grows = round(full.numbers / half.numbers, 2) if half.numbers else 1.0
    return Work(tokens=COUNTED, **asdict(full), grows=grows)


@cache
def catalog() -> dict[str, Measurements]:
    """Read the measurements of the catalogue's encodings, by slug."""
    return json.loads((files("posenc.show.explorer") / "catalog.json").read_text("utf-8"))


def blocks(text: str) -> list[Passage]:
    """Split a docstring into parts."""
    return [
        {"prose": "", "formula": mathml.lines(_visible(block))}
        if kind == "formula"
        else {"prose": _visible(block), "formula": []}
        for kind, block in words.blocks(text)
    ]


def paper(card: Card) -> Citation:
    source = card.paper
    assert source is not None
    return {
        "key": source.key,
        "short": source.short,
        "title": source.title,
        "year": source.year,
        "link": source.link,
        "bibtex": source.bibtex(),
    }


def to_json(data: Any) -> str:
    """Write compact JSON; numbers that JSON does not have are refused."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write(data: Mapping[str, Any], path: Path) -> None:
    """Write a file of the package, one line for each key of each part, so that diffs are short."""
    parts = (f"{json.dumps(key)}:{_lines(value)}" for key, value in data.items())
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _lines(value: Any) -> str:
    if isinstance(value, dict):
        inner: Iterable[str] = (f"{json.dumps(key)}:{to_json(item)}" for key, item in value.items())
        return "{\n" + ",\n".join(inner) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(to_json, value)) + "]"
    return to_json(value)


def renamed(card: Card) -> Card:
    """Rename a user's own encoding, if its name is taken in the catalogue."""
    taken = card not in CATALOG and card.slug in {known.slug for known in CATALOG}
    return replace(card, name=f"{card.name} own") if taken else card


def _options(card: Card, encoding_type: type) -> Iterable[Option]:
    source = getattr(card.make, "source", card.make)
    if not callable(source):
        return
    asked = dict(signature(source).parameters)
    if any(option.kind is Parameter.VAR_KEYWORD for option in asked.values()):
        asked = dict(signature(encoding_type).parameters) | asked
    for option in asked.values():
        if option.default is None or isinstance(option.default, bool | int | float | str):
            kind = getattr(option.annotation, "__name__", "")
            kind = kind if isinstance(option.annotation, type) else str(option.annotation)
            kind = "" if option.annotation is option.empty else kind.replace("typing.", "")
            yield {"name": option.name, "default": option.default, "type": kind}


def _visible(text: str) -> str:
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))


if __name__ == "__main__":
    print(to_json(page()))
