"""Collect the data of the explorer's page in one JSON document: encodings, models, study results.

    python -m posenc.show.explorer.data > data.json

Graphs and other measurements of the catalogue are made once and cached (`measured.py`), as is the
page of the catalogue (`ready.py`). Encodings and models of users are described in each call.
"""

import multiprocessing
import os
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import Parameter, signature
from random import Random
from typing import Any, TypedDict, cast

from posenc.catalog import CATALOG
from posenc.models import published
from posenc.properties import ALL
from posenc.properties.card import Card
from posenc.show.explorer import graphs, ready
from posenc.show.explorer.measured import Measurements, graph_only, kept, measure, measure_own
from posenc.show.explorer.models import ModelEntry, TurningEntry, architectures
from posenc.show.explorer.packing import to_json
from posenc.show.explorer.story import Story, story
from posenc.show.explorer.vectors import WordVectors
from posenc.show.report import mathml, phrases
from posenc.support.text import printable
from posenc.support.version import __version__

SCHEMA = 1
STORY = "nope", "sinusoidal", "binary", "rope", "alibi"  # encodings in the scenes of the story
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
    """A part of a docstring: either prose, or formulas in MathML."""

    prose: str  # text with code in back-quotes; empty for a formula
    formula: list[list[str]]  # MathML: for each line, its formula and remarks


class Option(TypedDict):
    """An option of an encoding's constructor."""

    name: str
    default: Any  # a number, a text, true, false or null
    type: str  # annotation: "Literal['interleaved', 'half']"


class PageEntry(Measurements):
    """An encoding as the explorer's page shows it: name, formula, paper, options, measurements."""

    name: str
    slug: str
    family: str  # a key of `families`
    acts_on: list[str]  # "embeddings", "queries", "keys", "scores", "values", …
    axes: int
    summary: str  # one sentence
    text: list[Passage]  # the docstring, its first sentence first
    formula: list[list[str]]  # all formula lines of the docstring
    paper: Citation | None  # None for a user's encoding
    options: list[Option]
    command: str  # name for Python, as in `create("rope", 16, 4)`
    shell: str  # name for a shell, as in `posenc show rope`, with quotes if needed


class PropertyWords(TypedDict):
    name: str
    label: str  # name of the property in words
    meaning: str  # a sentence about the property


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
    first: list[str]  # slugs of the encodings that are shown first
    begin: str  # the first view: that of the named encodings or models, or the story
    story: Story  # data of the story's scenes that do not run an encoding
    models: list[ModelEntry]  # the user's models come first
    turnings: dict[str, TurningEntry]  # rotations by key, to which `models` refer
    words: WordVectors | None  # word vectors of a model; None: all are random
    study: dict[str, Any] | None  # results, as `posenc results --json` prints them
    notes: list[str]  # a sentence for each thing that could not be shown
    missing: list[str]  # parts that this page will have later: "40 encodings"


def page(
    cards: Sequence[Card] = (),
    models: Sequence[tuple[ModelEntry, Mapping[str, TurningEntry]]] = (),
    study: Mapping[str, Any] | None = None,
    spoken: WordVectors | None = None,
    whole: bool = True,
) -> Page:
    """Return the page's data: the catalogue, published models, and a user's encodings and models.

    An encoding that cannot be exported is on the page as a sentence, and in `notes`. Unless the
    page is `whole`, a page of the catalogue that was not made before is incomplete: see
    `catalog_page`.
    """
    cards = [renamed(card) for card in cards]
    slugs = [card.slug for card in cards]
    own = {card: measure_own(card, published_bases()) for card in cards if card not in CATALOG}
    made = ready.page(slugs) or ready.begun(catalog_page(None if whole else slugs), slugs)
    usual = cast(Page, made)
    turnings = {key: rotation for _, turns in models for key, rotation in turns.items()}
    own_entries = [encoding(card, measured) for card, measured in own.items()]
    return {
        **usual,
        "encodings": [*own_entries, *usual["encodings"]],
        "begin": "context" if models and not own else usual["begin"],
        "models": [*(model for model, _ in models), *usual["models"]],
        "turnings": turnings | usual["turnings"],
        "words": spoken,
        "study": None if study is None else dict(study),
        "notes": [
            entry["graph"]["sentence"] for entry in own_entries if "sentence" in entry["graph"]
        ],
    }


def catalog_page(slugs: Iterable[str] | None = None) -> Page:
    """Make the page of the catalogue and the published models, and cache it if it is complete.

    - `slugs`: make an incomplete page at once: it has the encodings with cached measurements,
      graphs of `slugs` and of the story's encodings, and no models. None: measure every encoding
    """
    bases = published_bases()
    if slugs is not None:
        measured, missing = _measured_before(bases, {*STORY, *slugs})
        return _catalog_page(measured, (), {}, missing)
    page = _catalog_page(catalog(bases), *architectures(), [])
    ready.keep(page)
    return page


def _measured_before(
    bases: Sequence[float], slugs: Container[str]
) -> tuple[dict[str, Measurements], list[str]]:
    """Return the cached measurements, keyed by slug, and a list of the page's missing parts.

    For encodings in `slugs` without cached measurements, only graphs are made.
    """
    found = {card: kept(card, bases) for card in CATALOG}
    missing = [card for card, one in found.items() if one is None]
    found |= {card: graph_only(card) for card in missing if card.slug in slugs}
    counted = [f"{len(missing)} encodings"] if missing else []
    measured = {card.slug: one for card, one in found.items() if one is not None}
    return measured, [*counted, "the published models"]


def _catalog_page(
    measured: Mapping[str, Measurements],
    models: Sequence[ModelEntry],
    turnings: dict[str, TurningEntry],
    missing: list[str],
) -> Page:
    return {
        "schema": SCHEMA,
        "version": __version__,
        "command": "",
        "seed": graphs.SEED,
        "dim": graphs.DIM,
        "heads": graphs.HEADS,
        "families": FAMILIES,
        "properties": [
            {
                "name": test.__name__,
                "label": phrases.label(test.__name__),
                "meaning": (test.__doc__ or "").splitlines()[0],
            }
            for test in ALL
        ],
        "encodings": [
            encoding(card, measured[card.slug]) for card in CATALOG if card.slug in measured
        ],
        "first": [],
        "begin": "story",
        "story": story(),
        "models": [*models],
        "turnings": turnings,
        "words": None,
        "study": None,
        "notes": [],
        "missing": missing,
    }


def encoding(card: Card, measured: Measurements) -> PageEntry:
    """Return an encoding's entry on the page, made from its `Card` and its measurements."""
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


def catalog(bases: Sequence[float] | None = None) -> dict[str, Measurements]:
    """Return the measurements of every encoding of the catalogue, by slug.

    Encodings without stored measurements are measured now, each in about half a second.

    `bases` are values that sliders mark; None: those of published models.
    """
    bases = published_bases() if bases is None else bases
    found = {card.slug: kept(card, bases) for card in CATALOG}
    lacking = [card for card in CATALOG if found[card.slug] is None]
    # In random order, so that processes that start together do not repeat each other's work
    Random(os.getpid()).shuffle(lacking)
    measured = {card.slug: kept(card, bases) or measure(card, bases) for card in lacking}
    return {slug: one or measured[slug] for slug, one in found.items()}


@contextmanager
def measured_beside() -> Iterator[Callable[[], None]]:
    """Measure all encodings of the catalogue in a second process while a `with` block runs.

    Yields a function that waits until this process has finished. It is stopped, finished or not,
    when the `with` block ends. A machine with one processor starts no process.
    """
    if (os.cpu_count() or 1) < 2 or not unmeasured():
        yield lambda: None
        return
    process = multiprocessing.get_context("spawn").Process(target=catalog, daemon=True)
    process.start()
    try:
        yield process.join
    finally:
        process.terminate()


def unmeasured() -> int:
    """Count the encodings of the catalogue whose measurements are not stored yet."""
    bases = published_bases()
    return sum(kept(card, bases) is None for card in CATALOG)


def published_bases() -> list[float]:
    """Return the distinct RoPE bases of published models, smallest first."""
    return sorted({model.base for model in published.models()})


def blocks(text: str) -> list[Passage]:
    """Split a docstring into passages of prose and of formulas."""
    return [
        {"prose": "", "formula": mathml.lines(_visible(block))}
        if kind == "formula"
        else {"prose": _visible(block), "formula": []}
        for kind, block in phrases.blocks(text)
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
        "bibtex": source.bibtex,
    }


def renamed(card: Card) -> Card:
    """Append "own" to the name of a user's encoding if the catalogue has the same name."""
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
