"""Open files that may be malicious: regular files only, and strict JSON.

Python's json accepts duplicate keys, NaN, 1e400, 5000-digit numbers and half of a surrogate pair,
and fails on deep nesting with a RecursionError. Here each of these raises a ModelError of one line.
"""

import io
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

from posenc.models.files.errors import Broken, ModelError

MOST_CONFIG = 2**20  # bytes
MOST_INDEX = 2**24
MOST_DEPTH = 64
MOST_INT = 2**53  # JSON parsers disagree about larger integers
MOST_KEYS = 450_000  # 100,000 tensors with their dtype, shape and offsets
MOST_VALUES = 700_000

_WITHOUT_WAITING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def opened(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises ModelError for a pipe or device, without blocking."""
    try:
        real = os.path.realpath(path)
        handle = os.open(real, _WITHOUT_WAITING)
    except OSError as error:
        raise ModelError(path, "", f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise ModelError(path, "", "does not exist") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ModelError(path, "", "must be a regular file")
    return os.fdopen(handle, "rb")


def read_json(path: Path, most: int = MOST_CONFIG) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ModelError if the file has over `most` bytes."""
    with opened(path) as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise ModelError(path, "", "is too large", allowed=f"up to {most} bytes")
    return parse_json(raw, path)


def parse_json(raw: bytes, file: Path) -> dict[str, Any]:
    """Parse the bytes of a file as a JSON object, strictly."""

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        if len(keys) < len(pairs):
            earlier: set[str] = set()
            again = next(key for key, _ in pairs if key in earlier or earlier.add(key))
            raise Broken(file, again, "occurs twice in the same object")
        return keys

    def whole_number(digits: str) -> int:
        if len(digits) > 17 or abs(int(digits)) > MOST_INT:
            size = len(digits.lstrip("-"))
            raise Broken(file, "", f"contains an integer of {size} digits", allowed="up to 2^53")
        return int(digits)

    def finite_number(digits: str) -> float:
        if math.isinf(float(digits)):
            raise Broken(file, "", f"contains {digits[:40]}, which is too large for a number")
        return float(digits)

    def no_constant(word: str) -> Any:
        raise Broken(file, "", f"contains {word}, which is not JSON", allowed="finite numbers")

    text = _text(raw, file)
    if text.count(",") > MOST_VALUES or text.count(":") > MOST_KEYS:
        raise ModelError(file, "", "contains too many values", allowed=f"up to {MOST_KEYS} keys")
    try:
        value = json.loads(
            text,
            object_pairs_hook=unique_keys,
            parse_int=whole_number,
            parse_float=finite_number,
            parse_constant=no_constant,
        )
        if _HALF_PAIR.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise Broken(file, "", f"is not JSON: {error.msg}, {at}") from None
    except UnicodeEncodeError:
        raise Broken(file, "", "contains half of a surrogate pair, which is not text") from None
    except RecursionError:
        raise _too_deep(file) from None
    if _depth(value) > MOST_DEPTH:
        raise _too_deep(file)
    if not isinstance(value, dict):
        raise Broken(file, "", "must be an object", got=value, allowed="{…}")
    return value


def _text(raw: bytes, file: Path) -> str:
    if not raw.strip():
        raise Broken(file, "", "is empty", allowed="a JSON object")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise Broken(
            file,
            "",
            "starts with a byte order mark. Save it as UTF-8 without this mark",
            allowed="UTF-8 without one",
        )
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw[:4]:
        raise Broken(file, "", "is UTF-16 or UTF-32", allowed="UTF-8")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Broken(file, "", f"is not UTF-8 at byte {error.start}") from None


def _too_deep(file: Path) -> Broken:
    return Broken(file, "", "is nested too deeply", allowed=f"up to {MOST_DEPTH} levels")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while nested := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        level = [c for node in nested for c in (node.values() if isinstance(node, dict) else node)]
    return depth
