"""The glossary: words of texts on positions, read from `glossary.toml`. Needs no torch.

`posenc show WORD` answers from it, `docs/glossary.md` is made of it, and a test follows each place.
"""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from posenc.support import names


@dataclass(frozen=True)
class Term:
    """A word, what it means, and where to see it: a command, a file of the repository, a name."""

    word: str
    means: str
    where: str
    also: tuple[str, ...] = ()


def _terms() -> Iterator[Term]:
    for term in tomllib.loads(FILE.read_text("utf-8"))["term"]:
        yield Term(term["word"], term["means"], term["where"], tuple(term.get("also", ())))


FILE = Path(__file__).with_name("glossary.toml")
TERMS = tuple(_terms())


def find(word: str) -> Term | None:
    """The term that a word means, whatever its case, spaces and dashes; None: it is not there."""
    typed = names.plain(word)
    for term in TERMS:
        if typed in map(names.plain, (term.word, *term.also)):
            return term
    return None


def page(terms: Iterable[Term] = TERMS) -> str:
    """`docs/glossary.md`."""
    lines = [
        "# Glossary",
        "",
        "Made by `make table`. `posenc show WORD` says the same in a terminal.",
        "",
    ]
    for term in sorted(terms, key=lambda one: one.word.lower()):
        also = f" ({', '.join(term.also)})" if term.also else ""
        lines += [f"**{term.word}**{also}: {term.means}", f"→ {_linked(term.where)}", ""]
    return "\n".join(lines)


def _linked(where: str) -> str:
    return f"`{where}`" if where.startswith("posenc ") else f"[{where}](../{where})"
