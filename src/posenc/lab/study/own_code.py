"""Code that files name, in plans, stores and kept models: it is run only if a person names it too.

A file is data, and may be somebody else's. A name in it, "mine.py:Mine", is run where a command has
`--allow-code mine.py:Mine`, or a function `allow_code="mine.py:Mine"`, spelled as in the file; and
where the file keeps the SHA-256 of that code, only if it is still the same.
"""

import shlex
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from posenc.support.names import is_own
from posenc.support.text import printable

Allowed = str | Iterable[str]


class CodeRefused(ValueError):
    """A file names code that nobody has allowed, or other code than there is; the message says."""


def check(
    names: Iterable[str], allow_code: Allowed, where: object, made_with: Mapping[str, str] = {}
) -> None:
    """Refuse those of the names in a file that are code, unless they are allowed and unchanged.

    `where` is the file in messages, `made_with` has the digests that it keeps. Raises CodeRefused.
    """
    allowed = {allow_code} if isinstance(allow_code, str) else {*allow_code}
    code = sorted({name for name in names if is_own(name)})
    if refused := [printable(name, 300) for name in code if name not in allowed]:
        options = " ".join(f"--allow-code {shlex.quote(name)}" for name in refused)
        raise CodeRefused(
            f"{where} names code, {', '.join(refused)}, and what a file names is run only if you"
            f" name it too: look at it, then add `{options}`, or in Python `allow_code={refused}`."
        )
    for name, digest in digests(code).items():
        if made_with.get(name, digest) != digest:
            raise CodeRefused(
                f"{name} is not the code that {where} was made with: its SHA-256 was"
                f" {made_with[name][:12]}… there and is {digest[:12]}… here: put the former back."
            )


def digests(names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of the files of those names that are code in a file."""
    files = {name: Path(name.rpartition(":")[0]) for name in sorted(names) if is_own(name)}
    return {
        name: sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if path.is_file()
    }
