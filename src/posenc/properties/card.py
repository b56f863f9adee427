"""The card of an encoding: name, paper and properties, from which tests and docs are generated."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch

from posenc.compat.threads import threads
from posenc.core.encoding import Encoding
from posenc.properties import (
    ALL,
    Finding,
    Property,
    any_length,
    bounded,
    check,
    learned,
    length_independent,
    linear_shift,
    measures,
    norm_constant,
    norm_preserving,
    order_sensitive,
    shift_invariant,
    unique_positions,
)
from posenc.support import cards, made
from posenc.support.cards import Paper as Paper
from posenc.support.cards import paper as paper
from posenc.support.notebook import card
from posenc.support.version import __version__

PROPERTIES = "properties"  # name of the findings in the cache
DEFECTS = "defects"  # key of the numbers that `posenc show` does not print
DIM, HEADS, SEED = 64, 4, 0  # sizes and seed of measured encodings of the catalogue
# The properties of learned relative encodings
RELATIVE = frozenset(
    {shift_invariant, norm_preserving, any_length, length_independent, order_sensitive, learned}
)
# The properties of rotations, for all frequencies
ROTATION = frozenset(
    {unique_positions, bounded, norm_constant, linear_shift, shift_invariant}
    | {norm_preserving, any_length, length_independent, order_sensitive}
)


@dataclass(frozen=True)
class Card:
    """Card of an encoding: name, paper, constructor, and the properties that it must have.

    - `name`: name as papers spell it; `slug` is the form for the command line
    - `paper`: a paper of `encodings/papers.bib`; None for encodings outside of the catalogue
    - `make`: function (channels per head, heads, **options) -> an instance
    - `holds`: properties that hold; every other property must measurably fail
    - `docstring`: text with a summary and a formula; None: the docstring of the file of `make`
    - `used_by`: well-known models with this encoding, as text

    >>> from posenc.catalog import find
    >>> find("rope").used_by
    'Llama, Qwen, Mistral, Gemma, DeepSeek, Phi'
    """

    name: str
    paper: Paper | None
    make: Callable[..., Encoding]
    holds: frozenset[Property]
    docstring: str | None = None
    used_by: str = ""

    def __repr__(self) -> str:
        return f"Card({self.name!r}, {self.paper.short if self.paper else 'your own'})"

    def _repr_html_(self) -> str:
        holds = [_words(measure.__name__) for measure in ALL if measure in self.holds]
        fails = [_words(measure.__name__) for measure in ALL if measure not in self.holds]
        marks = [f"✓ {', '.join(holds)}" if holds else "", f"✗ {', '.join(fails)}"]
        paper = f"{self.paper.title}. {self.paper.short}, {self.paper.link}" if self.paper else ""
        used = f"used by {self.used_by}" if self.used_by else ""
        return card(
            self.name, [self.summary, *(marks if self.paper else []), used, paper], self.formula
        )

    @property
    def slug(self) -> str:
        """The name for the command line: "Linear sinusoidal" -> "linear-sinusoidal"."""
        return cards.slug(self.name)

    @property
    def family(self) -> str:
        """The family, named like the folder of the encoding's file: additive, rotary, bias …"""
        return cards.family(self.make.__module__)

    @property
    def text(self) -> str:
        """The docstring of the encoding's file, with its meaning, formula and consequences."""
        if self.docstring is not None:
            return self.docstring
        return (sys.modules[self.make.__module__].__doc__ or "").strip()

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, without the name before the colon."""
        return cards.summary(self.text)

    @property
    def formula(self) -> str:
        """The formula and its symbols: the indented lines of the encoding's docstring."""
        return cards.formula(self.text)

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain data for JSON."""
        holds = [measure.__name__ for measure in self.holds]
        make = self.make.__module__
        return cards.in_plain_data(self.name, self.paper, make, self.text, self.used_by, holds)


def described(
    card: Card, causal: bool, findings: Mapping[str, Finding], outcomes: Iterable[Any] = ()
) -> dict[str, Any]:
    """Return a card, measured properties and results of promise tests as plain data for JSON."""
    promises = {
        one.name: {"holds": one.holds, "why": one.found, "remedy": one.remedy} for one in outcomes
    }
    return (
        card.to_json()
        | {"causal": causal}
        | ({"promises": promises} if promises else {})
        | {"properties": {n: {"holds": f.holds, "why": f.why} for n, f in findings.items()}}
        | {"measured_by": {"posenc": __version__, "torch": str(torch.__version__)}}
    )


def findings_key(card: Card) -> tuple[str, str, tuple[str, ...]]:
    """Return the cache key of an encoding's measured properties."""
    return PROPERTIES, card.slug, (card.make.__module__, measures.__name__)


def findings(card: Card) -> dict[str, Any]:
    """Return the measured properties of an encoding of the catalogue, as plain data for JSON.

    They are measured once per version of its files, with weights of one seed, and cached.
    """
    key = findings_key(card)
    kept = made.read(*key)
    if kept is None:
        with torch.random.fork_rng(devices=[]), threads(1):
            torch.manual_seed(SEED)
            encoding = card.make(DIM, HEADS)
            found = check(encoding, DIM, HEADS)
        whole = described(card, encoding.causal, found)
        kept = {name: whole[name] for name in ("causal", "properties", "measured_by")}
        # JSON has neither inf nor nan
        kept[DEFECTS] = {n: f.defect if isfinite(f.defect) else None for n, f in found.items()}
        made.keep(*key, kept)
    return kept


def kept_findings(card: Card) -> dict[str, Finding]:
    """Return the cached measured properties of a card's encoding.

    Defects that are not finite are returned as NaN.
    """
    kept = findings(card)
    found = {}
    for name, one in kept["properties"].items():
        defect, applicable = kept[DEFECTS][name], one["holds"] is not None
        found[name] = Finding(float("nan") if defect is None else defect, one["why"], applicable)
    return found


def _words(name: str) -> str:
    return name.replace("_", " ")
