"""Find encodings and their cards by the names that users type, without importing torch."""

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from posenc.support import cards as card_files

CATALOG = ""  # the module of all encodings, set by `posenc/__init__.py`

EXTENSION = (
    "a context extension of RoPE. Use `RoPE({function}(frequencies(64), …))` with {function} from"
    " `posenc.encodings.rotary.extension`, or `posenc extend` for a config"
)
_TYPED = tomllib.loads(Path(__file__).with_name("typed_names.toml").read_text("utf-8"))
# Other names of encodings of the catalogue, each with the encoding's slug
SYNONYMS = {name: slug for slug, names in _TYPED["synonyms"].items() for name in names}
# Names that users try but that are not encodings, with their meaning
NOT_ENCODINGS = _TYPED["others"] | {
    name: EXTENSION.format(function=function)
    for function, names in _TYPED["extensions"].items()
    for name in names
}


def normalise(name: str) -> str:
    """Return the letters and digits of a name in lower case, for comparisons."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def is_own(name: str) -> bool:
    """Test whether a name refers to user code: "my_module.py:Mine", "package.module:Mine"."""
    place, colon, inner = name.rpartition(":")
    words = all(part.isidentifier() for part in place.split("."))
    return bool(colon) and inner.isidentifier() and (words or place.endswith(".py"))


def refusal(name: str, slugs: Iterable[str]) -> str:
    """Return the error message for an unknown name, with suggestions of similar names.

    >>> refusal("roep", ["rope", "alibi"])
    "no encoding is called 'roep'. Did you mean rope?"
    """
    # Imported here, because few commands need it
    from difflib import get_close_matches

    typed, known = normalise(name), {normalise(slug): slug for slug in slugs}
    if name.endswith(".py"):
        return f"no encoding is called {name!r}. Name a class in the file: `{name}:CLASS`."
    if typed in NOT_ENCODINGS:
        return f"no encoding is called {name!r}. It is {NOT_ENCODINGS[typed]}."
    contain = [key for key in known if len(typed) > 1 and typed in key]
    near = [known[key] for key in [*get_close_matches(typed, known, cutoff=0.7), *contain]]
    meant = [*dict.fromkeys([SYNONYMS[typed]] if typed in SYNONYMS else near)][:3]
    hint = f"Did you mean {' or '.join(meant)}?" if meant else "`posenc list` shows all."
    return f"no encoding is called {name!r}. {hint}"


@cache
def cards() -> dict[str, dict[str, Any]]:
    """Return the cards of the catalogue as plain data by slug, in the order of the catalogue."""
    return {card["name"]: card for card in card_files.read(CATALOG)}


@cache
def modules() -> dict[str, str]:
    """Map the slug of each encoding in the catalogue to its module."""
    return card_files.modules(CATALOG)


def find(name: str) -> dict[str, Any]:
    """Return a card as plain data by name; raise LookupError with similar names on a typo."""
    by_name = {normalise(slug): card for slug, card in cards().items()}
    if normalise(name) not in by_name:
        raise LookupError(refusal(name, cards()))
    return by_name[normalise(name)]


def resolve_synonym(name: str) -> str:
    """Return the slug of the encoding with this synonym, or the name itself if there is none.

    >>> resolve_synonym("rotary position embedding"), resolve_synonym("wavelength")
    ('rope', 'wavelength')
    """
    return SYNONYMS.get(normalise(name), name)


def catalog() -> Any:
    """Import the catalogue on first use, to avoid circular imports."""
    return import_module(CATALOG)
