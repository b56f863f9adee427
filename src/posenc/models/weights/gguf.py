"""Read GGUF, the file format of llama.cpp: a header with key-values, then the tensors.

    "GGUF"  version  tensors  key-values  (name type value)…  (name axes sizes type offset)…  data

The header is parsed here because the reader of the package `gguf` does not terminate on a header
with false counts. Of a truncated file, the tensors within it can be read. Quantised tensors become
float32, as computed by `gguf.quants`. Once arrays exceed 131,072 entries in total, which happens
only with vocabularies, further arrays are skipped.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from posenc.models.files.errors import ModelError
from posenc.models.files.strict import opened
from posenc.models.weights.info import (
    BITS,
    MOST_AXES,
    MOST_TENSORS,
    Info,
    Part,
    checked_info,
    read_bytes,
    require,
    to_tensor,
)

if TYPE_CHECKING:
    import torch

MOST_HEADER = 2**26  # bytes
MOST_KEYS = 10_000
MOST_STRINGS = 1_000_000  # strings in arrays
MOST_TEXT = 2**20  # bytes, of a chat template
MOST_KEPT = 2**17  # entries of arrays that are returned

STRING, ARRAY = 8, 9
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
TYPES = {  # number: name, elements in a block, bytes in a block
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}  # fmt: skip


def read_gguf(path: Path) -> Part:
    """Read the header of a GGUF file; each tensor is read when it is loaded."""
    with opened(path) as file:
        header = _Header(path, file)
        tensors, keys = header.counts()
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = header.name()
            if key in metadata:
                raise ModelError(path, key, "occurs twice")
            metadata[key] = header.value(header.number("I"), key)
        lines = [header.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            must = "must be a power of two"
            raise ModelError(path, "general.alignment", must, got=alignment)
        # The data starts at the next multiple of the alignment after the header.
        start = -(-file.tell() // alignment) * alignment
    infos: dict[str, Info] = {}
    spans: dict[str, tuple[int, int]] = {}
    # Sorted by offset, each tensor must start at a multiple of the alignment and not overlap the
    # previous one. Padding is allowed, and in a truncated file tensors may lie past its end.
    end = 0
    for info, offset, size in sorted(lines, key=lambda line: line[1:]):
        if info.name in infos:
            raise ModelError(path, info.name, "occurs twice")
        if offset < end or offset % alignment:
            where = f"at or after {end}, a multiple of {alignment}"
            raise ModelError(
                path,
                info.name,
                "must have an aligned offset after the previous tensor",
                offset,
                where,
            )
        infos[info.name], spans[info.name] = info, (start + offset, size)
        end = offset + size
    kept = {key: value for key, value in metadata.items() if value is not None}
    load = lambda name: _plain(infos[name], read_bytes(infos[name], *spans[name]))  # noqa: E731
    return Part(infos, kept, load, start + end)


class _Header:
    """Reader of a GGUF header, value by value, with limits on its size."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self.file = path, file
        self.left, self.strings, self.kept = MOST_HEADER, MOST_STRINGS, MOST_KEPT

    def take(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise self.too_long()
        raw = self.file.read(size)
        if len(raw) < size:
            raise self.cut_off()
        return raw

    def too_long(self) -> ModelError:
        return ModelError(
            self.path, "", "has a header that is too long", allowed=f"{MOST_HEADER} bytes"
        )

    def cut_off(self) -> ModelError:
        return ModelError(self.path, "", "ends within its header")

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> bytes:
        size = self.number("Q")
        if size > MOST_TEXT:
            raise ModelError(
                self.path, "", f"contains a string of {size} bytes", allowed=str(MOST_TEXT)
            )
        return self.take(size)

    def name(self) -> str:
        try:
            return self.text().decode()
        except UnicodeDecodeError:
            raise ModelError(self.path, "", "contains a name that is not UTF-8") from None

    def counts(self) -> tuple[int, int]:
        magic, version = self.take(4), self.number("I")
        if magic != b"GGUF" or version not in (2, 3):
            got = f"{magic!r}, version {version}"
            raise ModelError(
                self.path, "", "is not GGUF", got, "b'GGUF', version 2 or 3, little-endian"
            )
        tensors, keys = self.number("Q"), self.number("Q")
        if tensors > MOST_TENSORS or keys > MOST_KEYS:
            sizes = f"states {tensors} tensors and {keys} keys"
            raise ModelError(self.path, "", sizes, allowed=f"{MOST_TENSORS} and {MOST_KEYS}")
        return tensors, keys

    def value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self.text().decode(errors="replace")
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == ARRAY:
            return self.array(self.number("I"), self.number("Q"), key)
        raise ModelError(self.path, key, "has an unknown type", got=kind)

    def array(self, kind: int, count: int, key: str) -> list[Any] | None:
        keep = count <= self.kept
        self.kept -= count if keep else 0
        if kind == STRING:
            self.strings -= count
            if self.strings < 0:
                most = f"up to {MOST_STRINGS}"
                raise ModelError(self.path, key, f"contains {count} strings", allowed=most)
            return self.texts(count, keep)
        if kind not in SCALARS:
            raise ModelError(self.path, key, "must be an array of a known value type", got=kind)
        raw = self.take(count * struct.calcsize(f"<{SCALARS[kind]}"))
        return list(struct.unpack(f"<{count}{SCALARS[kind]}", raw)) if keep else None

    def texts(self, count: int, keep: bool) -> list[str] | None:
        """Read an array of `count` strings, such as a vocabulary; None unless `keep` is True."""
        kept: list[str] = []
        before, left, read = self.file.tell(), self.left, self.file.read
        # Each string needs at least the 8 bytes of its length
        if 8 * count > os.fstat(self.file.fileno()).st_size - before:
            raise self.cut_off()
        for _ in range(count):
            size = int.from_bytes(read(8), "little")
            left -= 8 + size
            if left < 0:
                raise self.too_long()
            raw = read(size)
            if keep:
                kept.append(raw.decode(errors="replace"))
        # At the end of a file `read` returns fewer bytes than requested
        if self.file.tell() - before != self.left - left:
            raise self.cut_off()
        self.left = left
        return kept if keep else None

    def tensor(self) -> tuple[Info, int, int]:
        name, axes = self.name(), self.number("I")
        if axes > MOST_AXES:
            raise ModelError(self.path, name, f"has {axes} axes", allowed=f"up to {MOST_AXES}")
        sizes = [self.number("Q") for _ in range(axes)]  # the fastest axis first
        kind, offset = self.number("I"), self.number("Q")
        dtype, block, size = TYPES.get(kind, (str(kind), 1, 1))
        dtypes = [name for name, _, _ in TYPES.values()]
        info = checked_info(name, dtype, reversed(sizes), self.path, dtypes)
        if (sizes[0] if sizes else 1) % block:
            rows = f"has rows of {sizes[0] if sizes else 1} numbers"
            most = f"multiples of {block}, the block size of {dtype}"
            raise ModelError(self.path, name, rows, allowed=most)
        return info, offset, info.elements // block * size


def _plain(info: Info, raw: bytearray) -> "torch.Tensor":
    if info.dtype in BITS:
        return to_tensor(info, raw)
    import numpy
    import torch

    with require("gguf"):
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize
    if not raw:
        return torch.empty(info.shape)
    # gguf expects the bytes as rows of whole blocks, one row for each row of the tensor.
    rows = numpy.frombuffer(raw, numpy.uint8).reshape(*info.shape[:-1], -1)
    try:
        # A NaN scale is valid input: the numbers of its block become NaN
        with numpy.errstate(all="ignore"):
            values = dequantize(rows, GGMLQuantizationType[info.dtype])
    except (KeyError, NotImplementedError):
        unknown = "has a dtype that the package gguf cannot dequantise"
        raise ModelError(info.file, info.name, unknown, info.dtype) from None
    return torch.from_numpy(values).reshape(info.shape)
