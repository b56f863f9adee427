"""Walk through a protocol buffer, reading only the fields that are asked for.

A buffer is a sequence of fields: a tag (field number and wire type), then the value: a varint
(type 0), 8 bytes (1), 4 bytes (5), or a length and as many bytes (2), which may be a buffer again.
https://protobuf.dev/programming-guides/encoding
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from posenc.models.files.errors import ModelError

MOST_FIELDS = 200_000
MOST_BYTES = 2**16  # bytes of a field that is read and not skipped
LONGEST = 20  # bytes of a tag and a varint


class Field(NamedTuple):
    """A field: its number, its value if it is a varint, and the span of its bytes."""

    number: int
    value: int | None
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Walk:
    """A walk through the fields of a file, up to MOST_FIELDS of them."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self.file, self.left = path, file, MOST_FIELDS

    def fields(self, start: int, end: int) -> Iterator[Field]:
        while start < end:
            self.left -= 1
            if self.left < 0:
                raise ModelError(self.path, "", "has too many parts", allowed=str(MOST_FIELDS))
            self.file.seek(start)
            try:
                field = _field(self.file.read(LONGEST), start)
            except (IndexError, KeyError, ValueError):
                raise ModelError(self.path, "", f"is no protocol buffer at byte {start}") from None
            if field.end > end:
                raise ModelError(self.path, "", f"is cut off, or wrong at byte {start}")
            yield field
            start = field.end

    def within(self, outer: Field) -> Iterator[Field]:
        if outer.value is not None:
            raise ModelError(self.path, "", f"is no protocol buffer at byte {outer.start}")
        return self.fields(outer.start, outer.end)

    def raw(self, at: Field) -> bytes:
        if at.size > MOST_BYTES:
            long = f"holds {at.size} bytes at byte {at.start}"
            raise ModelError(self.path, "", long, allowed=f"{MOST_BYTES} of a name, text or shape")
        self.file.seek(at.start)
        return self.file.read(at.size)

    def text(self, at: Field) -> str:
        try:
            return self.raw(at).decode()
        except UnicodeDecodeError:
            raise ModelError(self.path, "", f"holds no UTF-8 at byte {at.start}") from None

    def pair(self, at: Field) -> tuple[str, str]:
        """Read the key and value of a StringStringEntryProto."""
        both = {part.number: self.text(part) for part in self.within(at)}
        return both.get(1, ""), both.get(2, "")

    def numbers(self, at: Field) -> list[int]:
        """Read a whole number, or several packed into a field; negatives come out above 2^63."""
        if at.value is not None:
            return [at.value]
        try:
            return list(varints(self.raw(at)))
        except (IndexError, ValueError):
            raise ModelError(self.path, "", f"is no protocol buffer at byte {at.start}") from None


def varints(packed: bytes | bytearray) -> Iterator[int]:
    """Yield the varints of a packed field, as unsigned numbers."""
    used = 0
    while used < len(packed):
        number, used = _varint(packed, used)
        yield number


def _field(raw: bytes, at: int) -> Field:
    tag, used = _varint(raw, 0)
    # The wire type is in the lowest three bits of the tag
    number, wire = tag >> 3, tag & 7
    if wire == 0:
        value, after = _varint(raw, used)
        return Field(number, value, at + used, at + after)
    size, used = _varint(raw, used) if wire == 2 else ({1: 8, 5: 4}[wire], used)
    return Field(number, None, at + used, at + used + size)


def _varint(raw: bytes | bytearray, at: int) -> tuple[int, int]:
    """Decode the varint that begins at `at`; return it and the index behind it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        # The lowest seven bits come first; the eighth bit says that another byte follows.
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise ValueError("a varint has at most ten bytes")
