"""Errors in the files of a model, in one line: file, key, value, what is allowed.

Nothing here imports torch, so that a bad file is refused before torch has even been loaded.
"""

from pathlib import Path
from typing import Any

_NOTHING = object()


class ModelError(ValueError):
    """An error in a file of a model: malformed, unsafe, or with an impossible value.

    >>> print(ModelError("config.json", "rope_theta", "must be above 0", got=-1))
    config.json:rope_theta: must be above 0, got -1
    """

    def __init__(
        self, file: str | Path, key: str, problem: str, got: Any = _NOTHING, allowed: str = ""
    ):
        name = file.name or str(file) if isinstance(file, Path) else file
        where = ":".join(printable(part, 200) for part in (name, key) if part)
        value = "" if got is _NOTHING else f", got {shown(got)}"
        super().__init__(f"{where}: {problem}{value}{f', allowed: {allowed}' if allowed else ''}")


class Unread(ModelError):
    """A valid model that posenc does not read; the message says why."""


def shown(value: Any, most: int = 80) -> str:
    """Format a value from a file for a message: strings in quotes, long values cut.

    >>> print(shown("yarn"), shown([1, 2.5, True, None]))
    'yarn' [1, 2.5, True, None]
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4096:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, dict)) and len(value) > 8:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return printable(repr(value), most)


def printable(text: str, most: int = 80) -> str:
    r"""Make text from a file safe to print: escape control and direction marks, cut at `most`.

    >>> print(printable("a\x1b[31mb\u202e"))
    a\x1b[31mb\u202e
    """
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
