"""Errors in the files of a model, in one line: file, key, value, what is allowed.

Nothing here imports torch, so that a bad file is refused before torch has even been loaded.
"""

from pathlib import Path
from typing import Any

from posenc.support.text import printable, shown

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


class Broken(ModelError):
    """A file that cannot be what it states: cut off, or without the tensors that it needs."""


class Unread(ModelError):
    """A valid model that posenc does not read; the message says why."""
