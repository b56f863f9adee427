"""The glossary, read from two files: words of texts on positions, and names that others published.

`glossary.toml` has the words, `published_names.toml` encodings and config keys of other projects.
`posenc show WORD` answers from both, `docs/glossary.md` is made of them, and a test follows each
place. Needs no torch.
"""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from posenc.support import names


@dataclass(frozen=True)
class Term:
    """A word, what it means, and where to see it: a command or a file of the repository.

    - `word`, `also`: the word, and other spellings of it
    - `means`: a sentence or two, with the formula of an encoding
    - `where`: a command or a file; of an encoding that posenc lacks, the nearest one that it has
    - `used_by`: models or programs that use it, with the config key; "" for a word of texts
    - `here`: an answer to whether posenc has it; "" for a word of texts
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
    """The term that a word means, whatever its case, spaces and dashes; None: it is not there."""
    typed = names.normalise(word)
    for term in TERMS:
        if typed in map(names.normalise, (term.word, *term.also)):
            return term
    return None


def page() -> str:
    """`docs/glossary.md`."""
    says = (
        "Words of the field and of posenc, each with its meaning and its place in the code."
        " [Published names](names.md) lists the encodings of papers and models."
    )
    return _page("Glossary", says, WORDS)


def names_page() -> str:
    """`docs/names.md`."""
    says = (
        "Encodings, extensions and config keys of papers and models: what each is, who uses it,"
        " and whether posenc has it."
    )
    return _page("Published names", says, PUBLISHED)


def _page(title: str, about: str, terms: Iterable[Term]) -> str:
    made = "`posenc show WORD` prints an entry in a terminal, and `make table` writes this page."
    return "\n".join([f"# {title}", "", f"{about} {made}", "", *_entries(terms)])


def _entries(terms: Iterable[Term]) -> Iterator[str]:
    for term in sorted(terms, key=lambda one: one.word.lower()):
        also = f" ({', '.join(term.also)})" if term.also else ""
        yield f"**{term.word}**{also}: {term.means}"
        if term.used_by:
            yield f"Used by {term.used_by}."
        if term.here:
            yield f"In posenc: {term.here}"
        yield f"→ {_linked(term.where)}"
        yield ""


def _linked(where: str) -> str:
    return f"`{where}`" if where.startswith("posenc ") else f"[{where}](../{where})"
