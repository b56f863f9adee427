"""Exceptions for the files of a model; each message is one line with file, key and value.

This module does not import torch, so a bad file is rejected before torch is loaded.
"""

from pathlib import Path
from typing import Any

from posenc.support.text import printable, shown

_NOTHING = object()


class ModelError(ValueError):
    """Error in a file of a model: malformed, unsafe, or with an impossible value.

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
    """Error for a corrupt file: truncated, or without a tensor that an index or header lists."""


class Unread(ModelError):
    """Error for a valid model that posenc does not support; the message states the reason."""
