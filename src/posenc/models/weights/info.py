"""Describe a tensor from the header of its file, and convert its bytes to a torch tensor.

torch is imported only in this conversion, so headers are read and rejected without it.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc.models.files.errors import ModelError
from posenc.models.files.strict import MOST_INT, opened
from posenc.support.extras import how_to_install

if TYPE_CHECKING:
    import torch

MOST_TENSORS = 100_000
MOST_NAME = 512  # characters
MOST_AXES = 64

BITS = {  # bits of an element; safetensors' names of dtypes are used for all formats
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F16": "float16", "BF16": "bfloat16", "F32": "float32",
    "F64": "float64", "C64": "complex64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Info:
    """Header entry of one tensor; `dtype` is the stored one, such as "BF16" or "Q4_K"."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Part(NamedTuple):
    """One file of weights: header entries, metadata, and a function that loads a tensor by name."""

    infos: dict[str, Info]
    metadata: dict[str, Any]
    load: Callable[[str], "torch.Tensor"]
    end: int = 0  # size in bytes of a file that is not truncated


def checked_info(
    name: str, dtype: str, dims: Iterable[Any], file: Path, dtypes: Iterable[str]
) -> Info:
    """Return the Info of a tensor; raise ModelError for an impossible name, dtype or shape."""
    shape = tuple(dims)
    if not 0 < len(name) <= MOST_NAME:
        size = f"names a tensor with {len(name)} characters"
        raise ModelError(file, name, size, allowed=f"1 to {MOST_NAME}")
    if dtype not in dtypes:
        raise ModelError(file, name, "has an unknown dtype", dtype, ", ".join(dtypes))
    sizes_valid = all(type(size) is int and size >= 0 for size in shape)
    if (
        not sizes_valid
        or len(shape) > MOST_AXES
        or math.prod(size or 1 for size in shape) > MOST_INT
    ):
        raise ModelError(file, name, "has an impossible shape", list(shape), "2^53 elements in all")
    return Info(name, dtype, shape, file)


def read_bytes(info: Info, start: int, size: int) -> bytearray:
    """Return `size` bytes from byte `start` of a tensor's file."""
    with opened(info.file) as file:
        if os.fstat(file.fileno()).st_size < start + size:
            ends = f"lies past the end of the file: it needs {start + size} bytes"
            raise ModelError(info.file, info.name, ends)
        file.seek(start)
        raw = bytearray(size)
        file.readinto(raw)
        return raw


def to_tensor(info: Info, raw: bytearray) -> "torch.Tensor":
    """Return little-endian bytes as a tensor."""
    import torch

    if info.dtype not in TORCH:
        raise ModelError(info.file, info.name, "must have a dtype that torch supports", info.dtype)
    if info.dtype == "BOOL":
        return torch.tensor(raw, dtype=torch.uint8).reshape(info.shape) != 0
    dtype = getattr(torch, TORCH[info.dtype])
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(info.shape)


@contextmanager
def require(package: str) -> Iterator[None]:
    """Name the command that installs `package` in any ImportError raised within a `with` block."""
    try:
        yield
    except ImportError as error:
        how = f"These weights need `{package}`. Install it: {how_to_install('models')}"
        raise ImportError(how) from error
