"""The glossary: terms of the field, and encodings of papers and models with their config keys.

Terms are read from `glossary.toml` and `published_names.toml`. `posenc show WORD` and
`docs/glossary.md` use both, and a test checks each link. torch is not imported.
"""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from posenc.support import names


@dataclass(frozen=True)
class Term:
    """A term, its meaning, and a command or file to look at.

    - `word`, `also`: the term, and other spellings
    - `means`: a sentence or two, with the formula of an encoding
    - `where`: a command or a file; for an encoding that posenc lacks, the most similar one
    - `used_by`: models or programs that use it, with the config key; "" for a term of the field
    - `here`: support in posenc; "" for a term of the field
    """

    word: str
    means: str
    where: str
    also: tuple[str, ...] = ()
    used_by: str = ""
    here: str = ""


def _terms(file: str) -> Iterator[Term]:
    for term in tomllib.loads(FOLDER.joinpath(file).read_text("utf-8"))["term"]:
        yield Term(**term | {"also": tuple(term.get("also", ()))})


FOLDER = Path(__file__).parent
WORDS = tuple(_terms("glossary.toml"))
PUBLISHED = tuple(_terms("published_names.toml"))
TERMS = WORDS + PUBLISHED


def find(word: str) -> Term | None:
    """Return the term with this spelling, without regard to case, spaces and dashes; or None."""
    typed = names.normalise(word)
    for term in TERMS:
        if typed in map(names.normalise, (term.word, *term.also)):
            return term
    return None


def page() -> str:
    """Return the content of `docs/glossary.md`."""
    about = (
        "This page defines terms of the field and of posenc. After each definition, an arrow (→)"
        " points to a command or a file that shows the term. [Published names](names.md) lists the"
        " encodings of papers and models. Each entry ends with the other words by which"
        " `posenc show` finds the entry."
    )
    return _page("Glossary", about, WORDS)


def names_page() -> str:
    """Return the content of `docs/names.md`."""
    about = (
        "This page lists encodings, methods of context extension and config keys of papers and"
        " models. Each entry has a definition, models and programs that use the encoding, method or"
        " key, and an answer to the question whether posenc supports it."
    )
    return _page("Published names", about, PUBLISHED)


def _page(title: str, about: str, terms: Iterable[Term]) -> str:
    made = "`posenc show TERM` prints an entry in a terminal, and `make table` writes this page."
    return "\n".join([f"# {title}", "", f"{about} {made}", "", *_entries(terms)])


def _entries(terms: Iterable[Term]) -> Iterator[str]:
    for term in sorted(terms, key=lambda one: one.word.lower()):
        used = f" Users of {term.word} include {term.used_by}." if term.used_by else ""
        here = f" Does posenc support {term.word}? {term.here}" if term.here else ""
        words = f" `posenc show` also finds “{term.word}” by these words: {', '.join(term.also)}."
        also = words if term.also else ""
        yield f"**{term.word}**: {term.means}{used}{here} → {_linked(term.where)}.{also}"
        yield ""


def _linked(where: str) -> str:
    return f"`{where}`" if where.startswith("posenc ") else f"[{where}](../{where})"
