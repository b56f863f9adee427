"""Read the header of a safetensors file and check it more strictly than the format's own library.

A file has 8 bytes with the length of the header, the header in JSON, and the tensors. Duplicate
keys, shapes that overflow, overlapping tensors, and bytes of no tensor raise an error.
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
    """Read the header of a safetensors file; each tensor is read when it is loaded."""
    header, start, size = _header(path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Broken(path, "__metadata__", "must contain strings only", got=metadata)
    if len(header) > MOST_TENSORS:
        raise ModelError(
            path, "", f"contains {len(header)} tensors", allowed=f"up to {MOST_TENSORS}"
        )
    infos = {name: _info(name, entry, path) for name, entry in header.items()}
    spans = {name: _span(infos[name], entry["data_offsets"]) for name, entry in header.items()}
    # Offsets count from the end of the header. The sorted spans must join without gap or overlap,
    # so that each byte of the file belongs to exactly one tensor.
    end = 0
    for begin, after, name in sorted((*span, name) for name, span in spans.items()):
        if begin != end:
            fault = "leaves a gap before it" if begin > end else "overlaps the tensor before it"
            raise Broken(path, name, fault, got=begin, allowed=str(end))
        end = after
    if start + end != size:
        raise Broken(path, "", f"has {size} bytes, but its header describes {start + end}")
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
            raise Broken(path, "", f"states a header of {length} bytes", allowed=f"up to {most}")
        return parse_json(file.read(length), path), 8 + length, size


def _info(name: str, entry: Any, path: Path) -> Info:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Broken(path, name, "must have dtype, shape and data_offsets, no other keys", entry)
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
        raise Broken(
            info.file,
            info.name,
            "must have data_offsets that fit its shape and dtype",
            offsets,
            needs,
        )
    return begin, end
