"""ONNX: read the initialisers of a graph, the tensors that a model was exported with.

Only the tensors that are asked for are read; the package `onnx` would load gigabytes. Where
onnxruntime has split X into X_quantized, X_scale and X_zero_point, X is offered too:
    X = (X_quantized − X_zero_point) · X_scale      in float32, one scale or one a row
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.models.files.errors import ModelError
from posenc.models.files.folder import inside
from posenc.models.files.strict import opened
from posenc.models.weights.info import (
    BITS,
    MOST_TENSORS,
    Info,
    Part,
    checked_info,
    read_bytes,
    to_tensor,
)
from posenc.models.weights.protobuf import Field, Walk, varints

if TYPE_CHECKING:
    import torch

MOST_BYTES = 2**31  # what a protocol buffer can have
TYPES = {
    1: "F32", 2: "U8", 3: "I8", 4: "U16", 5: "I16", 6: "I32", 7: "I64", 8: "STRING", 9: "BOOL",
    10: "F16", 11: "F64", 12: "U32", 13: "U64", 14: "C64", 15: "C128", 16: "BF16", 17: "F8_E4M3",
    18: "F8_E4M3FNUZ", 19: "F8_E5M2", 20: "F8_E5M2FNUZ", 21: "U4", 22: "I4", 23: "F4",
    24: "F8_E8M0", 25: "U2", 26: "I2", 27: "F6_E2M3", 28: "F6_E3M2",
}  # fmt: skip

# Numbers of fields: of a model, of its graph, of a tensor.
GRAPH, PROPERTIES = 7, 14
INITIALIZER = 5
DIMS, TYPE, SEGMENT, NAME, RAW, EXTERNAL, LOCATION = 1, 2, 3, 8, 9, 13, 14
FLOATS, DOUBLES, INT32S, INT64S, UINT64S = 4, 10, 5, 7, 11
# The field that holds values which are not raw bytes, by dtype; INT32S for all others
VALUES = {
    "F32": FLOATS, "C64": FLOATS, "F64": DOUBLES, "C128": DOUBLES,
    "I64": INT64S, "U32": UINT64S, "U64": UINT64S,
}  # fmt: skip
WHOLE = ("I8", "U8", "I16", "U16")  # what tables are quantised to


@dataclass(frozen=True)
class Entry:
    """An initialiser: its header, and the place of its values."""

    info: Info
    places: tuple[Field, ...]
    varints: bool
    elsewhere: dict[str, str]  # the location in another file, offset, length


def read_onnx(path: Path) -> Part:
    """Read the headers of the initialisers; their values stay in the file."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise ModelError(path, "", f"has {size} bytes", allowed=f"up to {MOST_BYTES} in ONNX")
        walk = Walk(path, file)
        parts = list(walk.fields(0, size))
        graphs = [part for part in parts if part.number == GRAPH]
        if len(graphs) != 1:
            raise ModelError(path, "", f"is not ONNX: it holds {len(graphs)} graphs")
        metadata = dict(walk.pair(part) for part in parts if part.number == PROPERTIES)
        entries: dict[str, Entry] = {}
        for part in walk.within(graphs[0]):
            if part.number == INITIALIZER:
                entry = _entry(walk, part)
                if entry.info.name in entries:
                    raise ModelError(path, entry.info.name, "is there twice")
                entries[entry.info.name] = entry
    if len(entries) > MOST_TENSORS:
        raise ModelError(path, "", f"holds {len(entries)} tensors", allowed=f"up to {MOST_TENSORS}")
    infos = {name: entry.info for name, entry in entries.items()}
    dequantised = _dequantised(infos)

    def load(name: str) -> "torch.Tensor":
        if name not in dequantised:
            return _load(entries[name])
        # The scales lie along the one axis of their length: they broadcast over all others.
        quantised, scale, zero = (_load(entries[part]) for part in _quantised_names(name))
        shape = [size if size == scale.numel() else 1 for size in quantised.shape]
        return (quantised.int() - zero.int().reshape(shape)) * scale.float().reshape(shape)

    return Part(infos | dequantised, metadata, load)


def _entry(walk: Walk, at: Field) -> Entry:
    fields: defaultdict[int, list[Field]] = defaultdict(list)
    for part in walk.within(at):
        fields[part.number].append(part)
    name = walk.text(fields[NAME][-1]) if fields[NAME] else ""
    dims = [size for part in fields[DIMS] for size in walk.numbers(part)]
    kind = fields[TYPE][-1].value if fields[TYPE] else None
    dtype = TYPES.get(kind or 0, str(kind))
    info = checked_info(name, dtype, dims, walk.path, TYPES.values())
    if fields[SEGMENT]:
        raise ModelError(walk.path, name, "is a segment of a tensor, which is not read")
    if fields[LOCATION] and fields[LOCATION][-1].value == 1:
        return Entry(info, (), False, dict(walk.pair(part) for part in fields[EXTERNAL]))
    number = RAW if fields[RAW] else VALUES.get(dtype, INT32S)
    entry = Entry(info, tuple(fields[number]), number in (INT32S, INT64S, UINT64S), {})
    stored_bytes = sum(place.size for place in entry.places)
    if dtype in BITS and not _least_bytes(entry) <= stored_bytes <= _most_bytes(entry):
        few = f"has {stored_bytes} bytes for {info.elements} elements of {dtype}"
        raise ModelError(walk.path, name, few)
    return entry


def _least_bytes(entry: Entry) -> int:
    return entry.info.elements if entry.varints else _bytes(entry.info)


def _most_bytes(entry: Entry) -> int:
    return 10 * entry.info.elements if entry.varints else _bytes(entry.info)


def _bytes(info: Info) -> int:
    return -(-info.elements * BITS[info.dtype] // 8)


def _load(entry: Entry) -> "torch.Tensor":
    info = entry.info
    if info.dtype not in BITS:
        raise ModelError(info.file, info.name, "is of a dtype that torch lacks", info.dtype)
    if entry.elsewhere:
        return to_tensor(info, _elsewhere(info, entry.elsewhere))
    raw = bytearray().join(read_bytes(info, place.start, place.size) for place in entry.places)
    # Varints are sign-extended to 64 bits: of each, the lowest `size` bytes are the number.
    if entry.varints:
        size = BITS[info.dtype] // 8
        try:
            numbers = [n % 256**size for n in varints(raw)]
        except (IndexError, ValueError):
            raise ModelError(info.file, info.name, "is cut off within a number") from None
        raw = bytearray().join(n.to_bytes(size, "little") for n in numbers)
    if len(raw) != _bytes(info):
        raise ModelError(info.file, info.name, f"has {len(raw)} bytes", allowed=str(_bytes(info)))
    return to_tensor(info, raw)


def _elsewhere(info: Info, location: dict[str, str]) -> bytearray:
    """Read the bytes of a tensor that is in another file of the folder."""
    path = inside(info.file.parent, location.get("location", ""), info.file, info.name)
    start, size = location.get("offset", "0"), location.get("length", str(_bytes(info)))
    if not start.isdecimal() or len(start) > 16 or size != str(_bytes(info)):
        wrong = "has an offset and length that do not fit"
        raise ModelError(info.file, info.name, wrong, [start, size], f"length {_bytes(info)}")
    return read_bytes(replace(info, file=path), int(start), _bytes(info))


def _quantised_names(name: str) -> tuple[str, str, str]:
    return f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"


def _dequantised(infos: dict[str, Info]) -> dict[str, Info]:
    """List the tensors that can be dequantised: the axis of their scales must be unambiguous."""
    infos_ = {}
    for name in (name.removesuffix("_quantized") for name in infos if name.endswith("_quantized")):
        if name in infos or not all(part in infos for part in _quantised_names(name)):
            continue
        quantised, scale, zero = (infos[part] for part in _quantised_names(name))
        one_axis = scale.elements == 1 or quantised.shape.count(scale.elements) == 1
        if one_axis and zero.elements == scale.elements and quantised.dtype in WHOLE:
            infos_[name] = Info(name, "F32", quantised.shape, quantised.file)
    return infos_
