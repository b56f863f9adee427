"""Make standard output usable: of any encoding, full, closed, or with a reader that stopped.

A character that the encoding lacks is written in ASCII, so that a sign is lost and not the result:
✓ as +, θ as theta, xⱼ² as x_j^2, and what has no such spelling by its number, as \\u27f6.
"""

import codecs
import errno
import io
import os
import stat
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any

PLAIN = "posenc.plain"  # the name of our error handler, beside "strict" and "replace"
# characters of tables and bars: one for one, so that columns stay in line
NARROW = dict(zip("✓✗·–—−′’‘”“⟨⟩█▓░└┘─▁▂▃▄▅▆▇", "+x.---'''\"\"<>#=-++-__--==#", strict=True))
WIDE = {"→": "->", "×": "x", "√": "sqrt", "∞": "inf", "≈": "~", "≤": "<=", "≥": ">=", "±": "+-"}
WIDE |= {
    "∈": "in",
    "⊙": "*",
    "⌈": "ceil(",
    "⌉": ")",
    "⌊": "floor(",
    "⌋": ")",
    "∑": "sum",
    "§": "section ",
    "⋯": "...",
}
SIGNS = str.maketrans(NARROW | WIDE)
RAISED = {"<super>": "^", "<sub>": "_"}  # words in Unicode's names of characters


@contextmanager
def writable() -> Iterator[None]:
    """Let standard output take every character, or raise OSError if it can take none at all.

    It is tried before the work begins, so that nothing is measured for a device that is full.
    """
    for name in ("stdout", "stderr"):
        # The shell has closed the stream, as `>&-` does
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))
    out = sys.stdout
    _ask(out)
    if not isinstance(out, io.TextIOWrapper):
        yield
        return
    before = out.errors
    out.reconfigure(errors=PLAIN)
    try:
        yield
        out.flush()
    finally:
        with suppress(OSError):
            out.reconfigure(errors=before)


def abandon() -> None:
    """Drop text that could not be written: Python would try again as it exits, and complain."""
    with open(os.devnull, "wb") as nowhere, suppress(OSError, ValueError):
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def universal() -> bool:
    """True if standard output can write every character."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def _ask(out: Any) -> None:
    """Raise OSError if a write must fail: write no bytes to a device, ask a disk for free room."""
    try:
        number = out.fileno()
    except (OSError, AttributeError):
        # A stream may be one of Python's own
        return
    os.write(number, b"")
    if stat.S_ISREG(os.fstat(number).st_mode) and hasattr(os, "fstatvfs"):
        disk = os.fstatvfs(number)
        if disk.f_blocks and not disk.f_bfree:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return spelled(error.object[error.start : error.end]), error.end


def spelled(text: str) -> str:
    r"""Text in ASCII.

    >>> spelled("✓ θ Σ é"), spelled("10⁻⁶ xᵢ"), spelled("⟶")
    ('+ theta Sigma e', '10^-6 x_i', '\\u27f6')
    """
    runs = groupby(text, key=lambda c: RAISED.get(unicodedata.decomposition(c).split(" ")[0], ""))
    return "".join(sign + "".join(map(_letter, run)) for sign, run in runs)


def _letter(character: str) -> str:
    parts = unicodedata.normalize("NFKD", character).translate(SIGNS)
    ascii_part = "".join(c for c in parts if c.isascii())
    if ascii_part or unicodedata.combining(character):
        return ascii_part
    words = unicodedata.name(parts[0], "").split()
    if words[:1] == ["GREEK"] and "LETTER" in words:
        name = words[words.index("LETTER") + 1]
        return name.capitalize() if "CAPITAL" in words else name.lower()
    return character.encode("ascii", "backslashreplace").decode()


codecs.register_error(PLAIN, _plain)
