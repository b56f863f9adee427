"""What is wrong with somebody's model, in one line: file, key, what was given, what is allowed.

Nothing here imports torch, so that a bad file is refused before torch has even been loaded.
"""

from pathlib import Path
from typing import Any

_NOTHING = object()


class ModelError(ValueError):
    """A file of a model that cannot be trusted, or says what cannot be meant.

    >>> print(ModelError("config.json", "rope_theta", "must be above 0", got=-1))
    config.json:rope_theta: must be above 0, got -1
    """

    def __init__(
        self, file: str | Path, key: str, problem: str, got: Any = _NOTHING, allowed: str = ""
    ):
        name = file.name or str(file) if isinstance(file, Path) else file
        where = ":".join(printable(part, 200) for part in (name, key) if part)
        given = "" if got is _NOTHING else f", got {shown(got)}"
        super().__init__(f"{where}: {problem}{given}{f', allowed: {allowed}' if allowed else ''}")


class Unread(ModelError):
    """A model that is sound, and that posenc does not read; the message says why."""


def shown(value: Any, most: int = 80) -> str:
    """A value that a file holds, as it would be typed: strings in quotes, nothing endless.

    >>> print(shown("yarn"), shown([1, 2.5, True, None]))
    'yarn' [1, 2.5, True, None]
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4096:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, dict)) and len(value) > 8:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return printable(repr(value), most)


def printable(text: str, most: int = 80) -> str:
    r"""Text from a file, safe to print: control and direction marks escaped, the rest cut off.

    >>> print(printable("a\x1b[31mb\u202e"))
    a\x1b[31mb\u202e
    """
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
