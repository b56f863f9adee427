"""The card of an encoding: name, paper and properties. Tests, docs and pages follow from it."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from posenc.core import names
from posenc.core.encoding import Encoding
from posenc.core.notebook import card
from posenc.core.version import __version__
from posenc.properties import (
    ALL,
    Finding,
    Property,
    any_length,
    bounded,
    learned,
    length_independent,
    linear_shift,
    norm_constant,
    norm_preserving,
    order_sensitive,
    shift_invariant,
    unique_positions,
)

# The properties of encodings that learn how a score depends on all tokens between query and key
RELATIVE = frozenset(
    {shift_invariant, norm_preserving, any_length, length_independent, order_sensitive, learned}
)
# Those of rotations, whatever their frequencies
ROTATION = frozenset(
    {unique_positions, bounded, norm_constant, linear_shift, shift_invariant}
    | {norm_preserving, any_length, length_independent, order_sensitive}
)


@dataclass(frozen=True)
class Paper:
    """The paper of an encoding: `arxiv` or, if it is not there, `url`."""

    key: str
    title: str
    authors: str  # authors as BibTeX wants them: "Family, Given and Family, Given"
    year: int
    arxiv: str = ""
    url: str = ""

    @property
    def link(self) -> str:
        return self.url or f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def short(self) -> str:
        """First author and year: "Su et al. 2021"."""
        people = [person.split(",")[0] for person in self.authors.split(" and ")]
        few = len(people) < 3 and "others" not in people
        return f"{' and '.join(people) if few else f'{people[0]} et al.'} {self.year}"

    def bibtex(self) -> str:
        """Write an entry to paste into a bibliography."""
        where = (
            f"  eprint = {{{self.arxiv}}},\n  archivePrefix = {{arXiv}},\n" if self.arxiv else ""
        )
        return (
            f"@misc{{{self.key},\n  title = {{{{{self.title}}}}},\n  author = {{{self.authors}}},\n"
            f"  year = {{{self.year}}},\n{where}  url = {{{self.link}}},\n}}"
        )


@dataclass(frozen=True)
class Card:
    """Card of an encoding: name, paper, constructor, and the properties that it must have.

    - `name`: name as papers spell it; `slug` is what one types
    - `paper`: a `Paper`; None: an encoding of a user's own
    - `make`: function (channels per head, heads, **options) -> an instance
    - `holds`: properties that hold; every other property must measurably fail
    - `docstring`: text with a summary and a formula; None: that of the file of `make`
    - `used_by`: well-known models that have it, as text

    >>> from posenc.catalog import find
    >>> find("rope").used_by
    'Llama, Qwen, Mistral, Gemma, DeepSeek, Phi'
    """

    name: str
    paper: Paper | None  # None: an encoding of a user's own
    make: Callable[..., Encoding]  # (channels per head, heads, **options) -> an instance
    holds: frozenset[Property]  # these hold; every other property must measurably fail
    docstring: str | None = None  # None: that of the file of `make`
    used_by: str = ""  # well-known models that have it

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
        """The name to type: "Linear sinusoidal" -> "linear-sinusoidal"."""
        return "-".join(self.name.lower().replace("/", " ").replace("+", " ").split())

    @property
    def family(self) -> str:
        """The family, by the folder of its file: additive, rotary, bias, relative, none; or own."""
        house, _, inner = self.make.__module__.partition("posenc.encodings.")
        if house or not inner:
            return "own"
        return inner.partition(".")[0] if "." in inner else "none"

    @property
    def text(self) -> str:
        """The docstring of its file: what it means, the formula, what follows from it."""
        if self.docstring is not None:
            return self.docstring
        return (sys.modules[self.make.__module__].__doc__ or "").strip()

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, without the name before the colon."""
        first = " ".join(self.text.split("\n\n")[0].split())
        return first.partition(": ")[2] or first

    def to_json(self) -> dict[str, Any]:
        """The card in plain data, for JSON."""
        paper = self.paper
        return {
            "name": self.slug,
            "title": self.name,
            "family": self.family,
            "summary": self.summary,
            "formula": self.formula,
            "paper": paper
            and {
                "short": paper.short,
                "title": paper.title,
                "link": paper.link,
                "bibtex": paper.bibtex(),
            },
            "used_by": self.used_by,
            "holds": sorted(measure.__name__ for measure in self.holds),
        }

    @property
    def formula(self) -> str:
        """The indented lines of the docstring: the formula, with its symbols."""
        blocks = [b for b in self.text.split("\n\n") if b.startswith("    ")]
        return "\n".join(line[4:] for line in "\n\n".join(blocks).splitlines())


def described(
    card: Card, causal: bool, findings: Mapping[str, Finding], outcomes: Iterable[Any] = ()
) -> dict[str, Any]:
    """The card with what was measured of it, and what of it was tried, in plain data."""
    promises = {
        one.name: {"holds": one.holds, "why": one.found, "remedy": one.remedy} for one in outcomes
    }
    return (
        card.to_json()
        | {"causal": causal, "text": card.text}
        | ({"promises": promises} if promises else {})
        | {"properties": {n: {"holds": f.holds, "why": f.why} for n, f in findings.items()}}
        | {"measured_by": measured_by()}
    )


def measured_by() -> dict[str, str]:
    versions = {"posenc": __version__, "torch": str(torch.__version__)}
    return versions | {"sources": names.sources()}


def _words(name: str) -> str:
    return name.replace("_", " ")
