"""Gate for user code: code that a file names is run only if the user allows it.

A file is data, and may come from a stranger. Code that it names, "mine.py:Mine", is run only if the
user allows it with `--allow-code mine.py:Mine` or `allow_code="mine.py:Mine"`, spelled as in the
file. If the file has the SHA-256 of that code, the code must not have changed either.
"""

import shlex
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from posenc.support.names import is_own
from posenc.support.text import printable

Allowed = str | Iterable[str]


class CodeRefused(ValueError):
    """Raised if a file names code that the user has not allowed, or that has changed since."""


def check_allowed(
    names: Iterable[str], allow_code: Allowed, where: object, made_with: Mapping[str, str] = {}
) -> None:
    """Raise CodeRefused if a file names code that is not allowed or has changed.

    - `names`: names in the file; names of the catalogue are ignored
    - `allow_code`: names that the user allows
    - `where`: the file, for messages
    - `made_with`: SHA-256 of the code by name, as stored in the file
    """
    allowed = {allow_code} if isinstance(allow_code, str) else {*allow_code}
    code = sorted({name for name in names if is_own(name)})
    if refused := [printable(name, 300) for name in code if name not in allowed]:
        options = " ".join(f"--allow-code {shlex.quote(name)}" for name in refused)
        raise CodeRefused(
            f"{where} names code, {', '.join(refused)}, and posenc runs this code only if you"
            f" allow it. Read the code, then add `{options}`, or in Python `allow_code={refused}`."
        )
    for name, digest in digests(code).items():
        if made_with.get(name, digest) != digest:
            raise CodeRefused(
                f"{name} must have the same code as when {where} was made, SHA-256"
                f" {made_with[name][:12]}…, got {digest[:12]}…. Restore the file with the old code."
            )


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the code file behind each name such as "mine.py:Mine"."""
    files = {name: Path(name.rpartition(":")[0]) for name in sorted(names) if is_own(name)}
    return {
        name: sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if path.is_file()
    }
