"""safetensors: the length of the header in 8 bytes, the header in JSON, the bytes of the tensors.

The header is checked more strictly than the format's own library does: no key twice, no shape that
overflows, no bytes between the tensors, behind them, or in two of them.
https://huggingface.co/docs/safetensors
"""

import os
from pathlib import Path
from typing import Any

from posenc.models.files.errors import Broken, ModelError
from posenc.models.files.strict import opened, parse_json
from posenc.models.weights.info import (
    BITS,
    MOST_TENSORS,
    Info,
    Part,
    checked_info,
    read_bytes,
    to_tensor,
)

MOST_HEADER = 2**24  # bytes


def read_safetensors(path: Path) -> Part:
    """Read the header; the tensors stay in the file."""
    header, start, size = _header(path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Broken(path, "__metadata__", "must hold strings only", got=metadata)
    if len(header) > MOST_TENSORS:
        raise ModelError(path, "", f"holds {len(header)} tensors", allowed=f"up to {MOST_TENSORS}")
    infos = {name: _info(name, entry, path) for name, entry in header.items()}
    spans = {name: _span(infos[name], entry["data_offsets"]) for name, entry in header.items()}
    # Offsets count from the end of the header. In order, the spans must join without hole or
    # overlap: no byte of the file is hidden, none belongs to two tensors.
    end = 0
    for begin, after, name in sorted((*span, name) for name, span in spans.items()):
        if begin != end:
            hole = "leaves a hole before it" if begin > end else "overlaps the tensor before it"
            raise Broken(path, name, hole, got=begin, allowed=str(end))
        end = after
    if start + end != size:
        raise Broken(path, "", f"has {size} bytes, its header describes {start + end}")
    return Part(
        infos,
        metadata,
        lambda name: to_tensor(
            infos[name],
            read_bytes(infos[name], start + spans[name][0], spans[name][1] - spans[name][0]),
        ),
    )


def _header(path: Path) -> tuple[dict[str, Any], int, int]:
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise Broken(path, "", f"has {size} bytes, too few for a safetensors header")
        length = int.from_bytes(file.read(8), "little")
        if length > min(MOST_HEADER, size - 8):
            most = f"{MOST_HEADER}, in a file of {size}"
            raise Broken(path, "", f"says its header has {length} bytes", allowed=f"up to {most}")
        return parse_json(file.read(length), path), 8 + length, size


def _info(name: str, entry: Any, path: Path) -> Info:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Broken(path, name, "must have dtype, shape and data_offsets, and no more", entry)
    if not isinstance(entry["shape"], list):
        raise Broken(path, name, "has an impossible shape", entry["shape"], "a list")
    return checked_info(name, str(entry["dtype"]), entry["shape"], path, BITS)


def _span(info: Info, offsets: Any) -> tuple[int, int]:
    if not isinstance(offsets, list) or [type(at) for at in offsets] != [int, int]:
        raise Broken(info.file, info.name, "needs two data_offsets", got=offsets)
    begin, end = offsets
    bits = info.elements * BITS[info.dtype]
    if begin < 0 or (end - begin) * 8 != bits:
        needs = f"{list(info.shape)} of {info.dtype}: {bits / 8:g} bytes"
        raise Broken(info.file, info.name, "has data_offsets that do not fit", offsets, needs)
    return begin, end
