"""Write to standard output safely: with any encoding, on a full disk, to a closed pipe.

A character that the encoding of standard output lacks is written in ASCII: ✓ as +, θ as theta,
xⱼ² as x_j^2, and characters without a spelling by their number, as \\u27f6.
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
# Characters of tables and bars: one replaces one, so that columns stay aligned
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
RAISED = {"<super>": "^", "<sub>": "_"}  # prefixes of Unicode decompositions


@contextmanager
def writable() -> Iterator[None]:
    """Make standard output accept every character, or raise OSError if it accepts none.

    Commands call this before they start to work, so that they do not compute for a full disk.
    """
    for name in ("stdout", "stderr"):
        # The shell has closed the stream, as `>&-` does
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))
    out = sys.stdout
    _check_writable(out)
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
    """Discard unwritten output, because Python would try to write it again on exit, and fail."""
    with open(os.devnull, "wb") as nowhere, suppress(OSError, ValueError):
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def universal() -> bool:
    """Test whether standard output can write every character."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def _check_writable(out: Any) -> None:
    """Raise OSError if standard output is not writable, such as a closed pipe or a full disk."""
    try:
        number = out.fileno()
    except (OSError, AttributeError):
        # The stream is not a file, as in a test or a notebook
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
    r"""Replace each character outside ASCII by an ASCII spelling, such as "theta" for θ.

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
