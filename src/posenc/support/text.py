"""Format values for messages, and make text from files safe to print.

torch is not imported, so that errors in files are reported before it is loaded.
"""

from typing import Any


def shown(value: Any, most: int = 80) -> str:
    """Format a value from a file for a message: strings in quotes, long values shortened.

    >>> print(shown("yarn"), shown([1, 2.5, True, None]))
    'yarn' [1, 2.5, True, None]
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4096:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, dict)) and len(value) > 8:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return printable(repr(value), most)


def printable(text: str, most: int = 80) -> str:
    r"""Shorten text to `most` characters, and escape its control and direction characters.

    >>> print(printable("a\x1b[31mb\u202e"))
    a\x1b[31mb\u202e
    """
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
