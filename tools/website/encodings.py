"""What the page of an encoding shows beyond its card."""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posenc.analysis import toy
from posenc.catalog import create
from posenc.properties.card import Card, findings
from posenc.show import plot
from posenc.show.report import words
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.page import PROPERTIES
from posenc.support.numbers import number
from website import places

TOKENS = 48
SENTENCE = "the dog bites the man . the man saw the dog".split()
GROWTH = places.ROOT / "benchmarks/results/2026-11-24-epyc-2-threads/growth-quick.json"
LIMITS = {  # what a property that does not hold keeps an encoding from
    "any_length": "It has a last position",
    "length_independent": "It goes by the length of the text",
    "shift_invariant": "Scores change when the whole text is moved",
    "unique_positions": "Two positions may look alike",
    "bounded": "Its numbers grow with the position",
    "order_sensitive": "By itself it does not tell the order",
    "norm_preserving": "It changes how long embeddings, queries or keys are",
    "several_axes": "It is for texts",
}


@dataclass(frozen=True)
class Property:
    name: str
    holds: bool | None
    means: str
    why: str  # the witness


def properties(described: Mapping[str, Any]) -> list[Property]:
    means, measured = dict(PROPERTIES), described["properties"]
    return [
        Property(words.label(name), found["holds"], means[name].rstrip("."), found["why"])
        for name, found in measured.items()
    ]


def described(card: Card) -> Mapping[str, Any]:
    """The card with its measured properties, as `posenc show` prints them."""
    return card.to_json() | findings(card)


def limits(card: Card, described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What it cannot do, and the witness; then what was measured of its cost."""
    measured = described["properties"]
    for name, sentence in LIMITS.items():
        if measured[name]["holds"] is False:
            yield sentence, measured[name]["why"]
    if described["causal"]:
        yield "It is made for causal attention", "it was measured under a causal mask"
    if measured["learned"]["holds"]:
        yield "It must be trained", measured["learned"]["why"]
    if cost := growth(card.slug):
        yield "Cost", cost


def growth(slug: str) -> str:
    """What a layer with it took at the longest text that was tried, beside one with none."""
    rows = {row["name"]: row for row in json.loads(GROWTH.read_text("utf-8"))["growth"]}
    row, plain = rows.get(slug), rows["nope"]
    if row is None:
        return ""
    tokens, seconds, megabytes = (row[key][-1] for key in ("tokens", "seconds", "megabytes"))
    said = (
        f"a layer of 4 heads of 64 took {number(seconds)} s and {megabytes:,.0f} MB"
        f" at {tokens:,} tokens, the longest that was tried"
    )
    if slug != "nope" and tokens in plain["tokens"]:
        n = plain["tokens"].index(tokens)
        said += f" (without positions {number(plain['seconds'][n])} s)"
    return f"{said}; forward, causal, two threads of a shared EPYC, 2026-11-24"


def pictures(card: Card) -> dict[str, Figure]:
    """Its figures by name: what it adds to scores first, then where words look, then its rows."""
    torch.manual_seed(0)
    encoding = create(card.slug, toy.DIM, toy.HEADS)
    reads = "on_hidden" in encoding.acts_on or card.slug in ("cope", "path", "wall")
    tokens = [SENTENCE[n % len(SENTENCE)] if reads else toy.WORD for n in range(TOKENS)]
    scores = toy.added(encoding, tokens)[0, 0]
    if encoding.causal:
        scores = scores.where(torch.ones_like(scores).tril().bool(), 0)
    what = "for the words of a sentence" if reads else f"for “{toy.WORD}” at every place"
    panel = Panel(
        "", [heat(scores.tolist(), signed=True)], "key", "query", y_down=True, square=True
    )
    alt = (
        f"What {card.name} adds to the score of query and key, {what}, in the toy world, first"
        f" head: between {number(float(scores.min()))} and {number(float(scores.max()))}."
    )
    shown = {"added": Figure(f"What {card.name} adds to scores", [panel], alt)}
    if not scores.any():
        shown = {}
    makers = {
        "clocks": plot.clocks,
        "bias": plot.bias,
        "rows": plot.rows,
        "similarity": plot.similarity,
        "attention": plot.attention,
    }
    for name, make in makers.items():
        try:
            shown[name] = make(card.slug).figure
        except ValueError:  # it has no such picture, and says so
            continue
    return shown


def source(card: Card) -> str:
    """The file that an encoding is, by its path in the repository."""
    path = inspect.getsourcefile(inspect.unwrap(card.make))
    assert path is not None
    return Path(path).resolve().relative_to(places.ROOT).as_posix()


def module(card: Card) -> str:
    return card.make.__module__.removeprefix("posenc.")
