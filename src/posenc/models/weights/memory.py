"""Reject files whose stated sizes would need too much memory.

    check_memory(elements * 8, info.file, info.name)        raises ModelError if too large

The size of the file does not protect: a shape is a few digits in a header, and a sparse file of
terabytes occupies almost no disk space.
"""

from pathlib import Path

from posenc.models.files.errors import ModelError

MOST_BYTES = 2**32
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def check_memory(
    needed: int, file: str | Path, key: str, most: int = MOST_BYTES, of: str = ""
) -> None:
    """Raise ModelError, naming `file` and `key`, if `needed` is more than `most` bytes.

    >>> check_memory(2**40, "config.json", "vocab_size")
    Traceback (most recent call last):
    posenc.models.files.errors.ModelError: config.json:vocab_size: needs 1 TiB, allowed: up to 4 GiB
    """
    if needed > most:
        problem = f"needs {format_bytes(needed)}{of and ' ' + of}"
        raise ModelError(file, key, problem, allowed=f"up to {format_bytes(most)}")


def format_bytes(count: int) -> str:
    """Format a number of bytes with a binary unit, such as "4 GiB".

    >>> format_bytes(512), format_bytes(2**32), format_bytes(137_438_953_472)
    ('512 B', '4 GiB', '128 GiB')
    """
    power = min(max(count.bit_length() - 1, 0) // 10, len(UNITS) - 1)
    return f"{count / 1024**power:,.4g} {UNITS[power]}"
