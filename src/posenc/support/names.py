"""Names of encodings as people type them, and their cards as printed. Needs no torch."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from posenc.support import cards as card_files

CATALOG = ""  # the module of all encodings, which `posenc/__init__.py` names

STRETCHED = (
    "a stretching of RoPE's frequencies: `RoPE({function}(frequencies(64), …))`, with {function}"
    " from `posenc.encodings.rotary.extension`; for a model's config `posenc extend`"
)
SEVERAL = "a family: choose of {names}"
NOT_ENCODINGS = {  # names that are asked for and belong to no encoding: what they are
    "yarn": STRETCHED.format(function="yarn"),
    "ntk": STRETCHED.format(function="ntk"),
    "dynamic": STRETCHED.format(function="dynamic_ntk"),
    "dynamicntk": STRETCHED.format(function="dynamic_ntk"),
    "linear": STRETCHED.format(function="interpolate"),
    "interpolation": STRETCHED.format(function="interpolate"),
    "positioninterpolation": STRETCHED.format(function="interpolate"),
    "llama3": STRETCHED.format(function="llama3"),
    "longrope": STRETCHED.format(function="longrope"),
    "relative": SEVERAL.format(names="shaw, transformer-xl, deberta and t5"),
    "bias": SEVERAL.format(names="alibi, t5, kerple and fire"),
    "absolute": SEVERAL.format(names="sinusoidal and learned"),
    "additive": SEVERAL.format(names="sinusoidal and learned"),
    "partial": "RoPE on some of the channels: `RoPE(16, dim=64)`",
    "partialrope": "RoPE on some of the channels: `RoPE(16, dim=64)`",
    "temperature": "a scaling of queries: `posenc.encodings.temperature`",
}
SYNONYMS = {  # other names of encodings of the catalogue
    "rotary": "rope",
    "rotarypositionembedding": "rope",
    "rotarypositionalembedding": "rope",
    "rotarypositionalencoding": "rope",
    "roformer": "rope",
    "none": "nope",
    "nopositionalencoding": "nope",
    "sincos": "sinusoidal",
    "sinusoidalpositionalencoding": "sinusoidal",
    "vaswani": "sinusoidal",
    "sinusoidalencoding": "sinusoidal",
    "integerpositionencoding": "integer",
    "binarypositionencoding": "binary",
    "learnable": "learned",
    "learnedembeddings": "learned",
    "learnedpositionembeddings": "learned",
    "rotarypositionembeddings": "rope",
    "rotaryembeddings": "rope",
    "suetal": "rope",
    "press": "alibi",
    "raffel": "t5",
    "kazemnejad": "nope",
    "learnedpositionalembedding": "learned",
    "normalised": "normalized",
    "t5bias": "t5",
    "t5relativebias": "t5",
    "attentionwithlinearbiases": "alibi",
    "axial": "axial-rope",
    "contextualpositionencoding": "cope",
    "forgettingtransformer": "fox",
    "2d": "axial-rope",
    "rope2d": "axial-rope",
    "rope3d": "axial-rope-3-d",
    "xl": "transformer-xl",
    "qwen": "m-rope",
    "forgetting": "fox",
    "rectifiedrope": "rerope",
    "grapem": "rope",
    "contextrepositioning": "repo",
}


def normalise(name: str) -> str:
    """Letters and digits alone: case, spaces, dashes and underscores do not matter."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def is_own(name: str) -> bool:
    """Test whether it names code: "my_module.py:Mine", "package.module:Mine"."""
    place, colon, inner = name.rpartition(":")
    words = all(part.isidentifier() for part in place.split("."))
    return bool(colon) and inner.isidentifier() and (words or place.endswith(".py"))


def refusal(name: str, slugs: Iterable[str]) -> str:
    """Say in a sentence or two that no encoding has this name, and what may be meant.

    >>> refusal("roep", ["rope", "alibi"])
    "no encoding is called 'roep'. Did you mean rope?"
    """
    # Imported here, as few commands need it.
    from difflib import get_close_matches

    typed, known = normalise(name), {normalise(slug): slug for slug in slugs}
    if name.endswith(".py"):
        return f"no encoding is called {name!r}. Say which of the file: `{name}:CLASS`."
    if typed in NOT_ENCODINGS:
        return f"no encoding is called {name!r}. It is {NOT_ENCODINGS[typed]}."
    contain = [key for key in known if len(typed) > 1 and typed in key]
    near = [known[key] for key in [*get_close_matches(typed, known, cutoff=0.7), *contain]]
    meant = [*dict.fromkeys([SYNONYMS[typed]] if typed in SYNONYMS else near)][:3]
    hint = f"Did you mean {' or '.join(meant)}?" if meant else "`posenc list` shows all."
    return f"no encoding is called {name!r}. {hint}"


@cache
def cards() -> dict[str, dict[str, Any]]:
    """The printed cards of the catalogue by slug, in the catalogue's order."""
    return {card["name"]: card for card in card_files.read(CATALOG)}


@cache
def modules() -> dict[str, str]:
    """The module of each encoding of the catalogue by slug."""
    return card_files.modules(CATALOG)


def find(name: str) -> dict[str, Any]:
    """The printed card of that name. Raises LookupError with the nearest names on a typo."""
    by_name = {normalise(slug): card for slug, card in cards().items()}
    if normalise(name) not in by_name:
        raise LookupError(refusal(name, cards()))
    return by_name[normalise(name)]


def resolve_synonym(name: str) -> str:
    """The slug of the encoding that is also called so; of another word, the word.

    >>> meant("rotary position embedding"), meant("wavelength")
    ('rope', 'wavelength')
    """
    return SYNONYMS.get(normalise(name), name)


def catalog() -> Any:
    """The catalogue, for layers and promises, on which it stands, when they are given a name."""
    return import_module(CATALOG)
