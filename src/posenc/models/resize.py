"""Write a copy of a model in which the learned position table has another length or grid.

    resized = resize(Path("bert"), 1024, Path("bert-1024"))
    resized = resize(Path("vit"), 384, Path("vit-384"))                    pixels of a side
    resized = resize(Path("clip"), 336, Path("clip-336"), "vision_config")

Rows are interpolated by `Learned.resized`: linearly for texts, and with cubic splines for the
patches of images, as in transformers for ViT. Rows before the first position (class tokens,
padding) are kept. All other tensors are copied as bytes, in pieces. Interpolated rows are
untrained, so train the model on the new size.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from posenc.encodings.additive.learned import Learned
from posenc.models.config import families, specify
from posenc.models.config.families import Family
from posenc.models.config.source import Source
from posenc.models.config.spec import PatchTable, Table
from posenc.models.convert import TensorChange, other_files, write_folder
from posenc.models.files.errors import ModelError
from posenc.models.files.folder import ModelFiles, unused_folder
from posenc.models.weights import Weights
from posenc.models.weights.memory import check_memory
from posenc.support.writing import written_beside

POSITIONS = re.compile(r"(^|[._])(pos|position|positions|wpe|positional)([._]|$)")
LONGEST = 2**20  # tokens, or pixels of a side


@dataclass(frozen=True)
class Resized:
    """Result of `resize`: the tensor, its rows before and after, and the changed config key."""

    out: Path
    tensor: str
    before: int
    after: int
    key: str
    value: Any
    bytes: int
    notes: tuple[str, ...]


def resize(model: Path | Source, to: int, out: Path, part: str = "") -> Resized:
    """Write a model to the new folder `out`, with its position table resized.

    - `to`: new length in tokens, or the side of an image in pixels
    - `part`: key of the nested config with the table, such as "vision_config" or "decoder"

    Raises ModelError for a model without a learned table, FileExistsError if `out` is not empty.
    Nothing is written after an error.
    """
    if not 1 <= to <= LONGEST:
        raise ValueError(f"`to` must be 1 to 2²⁰ tokens, or pixels of a side, got {to}.")
    out = unused_folder(out)
    source = Source.of(model)
    files = source.files
    if files.config is None or files.format != "safetensors":
        raise ModelError(source.path, "", "must contain a config.json, and weights in safetensors")
    config, weights = source.config(""), source.weights
    inner, family, table = _chosen(config, files.config.name, part)
    name = _tensor(weights, family, table, part, files.config.name)
    changed, key, new, notes = _lengthened(inner, family, table, weights, name, to)
    after = deepcopy(config)
    place: Any = after[part] if part in config else after
    place |= changed
    if specify(after, files.config.name) == specify(config, files.config.name):
        raise ModelError(
            files.config, key, f"is {inner.get(key)} already, so `to` must be another size", to
        )
    size = _written(files, weights, name, new, after, out)
    before = weights.infos[name].shape[-2]
    where = f"{part}.{key}" if part in config else key
    return Resized(out, name, before, new.shape[-2], where, changed[key], size, tuple(notes))


def _chosen(config: dict[str, Any], file: str, part: str) -> tuple[dict[str, Any], Family, Table]:
    """Return the config, `Family` and position table of a model, or of its nested config `part`."""
    spec = specify(config, file)
    specs = {"": spec, **spec.parts}
    tables = [name for name, one in specs.items() if isinstance(one.embedding, Table)]
    if part not in specs or not isinstance((found := specs[part]).embedding, Table):
        others = f". Pass `part`, one of {', '.join(filter(None, tables))}" if any(tables) else ""
        whose = part or spec.model
        if part in specs and isinstance(specs[part].embedding, PatchTable):
            why = f"{whose!r} resizes its table of patches to each image, so it needs no other"
            raise ModelError(file, part or "model_type", why)
        raise ModelError(file, part or "model_type", f"{whose!r} has no learned table{others}")
    inner = config[part] if part in config else config
    family = families.family(found.model) or families.family(spec.model)
    assert family is not None
    assert isinstance(found.embedding, Table)
    return inner, family.stack(part) if part in family.stacks else family, found.embedding


def _tensor(weights: Weights, family: Family, table: Table, part: str, file: str) -> str:
    """Return the name of the tensor that stores the position table."""
    shape = [table.rows + table.offset, table.width]
    stem = part.removesuffix("_config")
    named = [
        name
        for name, info in weights.infos.items()
        if POSITIONS.search(name)
        and list(info.shape[-2:]) == shape
        and info.elements == prod(shape)
    ]
    found = [name for name in named if stem in name] or named
    if len(found) != 1:
        rows = f"{shape[0]} rows of {shape[1]}"
        problem = f"describes {rows}, which {len(found)} position tables have instead of one"
        raise ModelError(file, family.name, problem, found or None)
    return found[0]


def _lengthened(
    inner: dict[str, Any], family: Family, table: Table, weights: Weights, name: str, to: int
) -> tuple[dict[str, Any], str, torch.Tensor, list[str]]:
    """Return (changed config keys, name of the length key, resized table, notes)."""
    stored = weights[name]
    learned = Learned(stored.shape[-2], stored.shape[-1])
    learned.table = nn.Parameter(stored.reshape(stored.shape[-2:]).float())
    if not family.grid:
        key = family.keys.get("max_position_embeddings", "max_position_embeddings")
        usual: Any = family.defaults.get("max_position_embeddings")
        value = inner.get(key, usual) + to - table.rows
        check_memory(4 * (to + table.offset) * table.width, Path(key), name, of="of memory")
        new = learned.resized(to + table.offset, kept=table.offset)
        return {key: value}, key, _like(new, stored), []
    key, patches = family.grid
    image, patch = (_sides(inner.get(k, family.defaults.get(k))) for k in (key, patches))
    grid, wanted = ((side[0] // patch[0], side[1] // patch[1]) for side in (image, (to, to)))
    if min(wanted) < 1:
        raise ModelError(
            "config.json", key, f"must be at least {patch[0]} pixels, the side of a patch", to
        )
    check_memory(4 * wanted[0] * wanted[1] * table.width, Path(key), name, of="of memory")
    new = learned.resized(wanted, grid, kept=family.extra)
    value = [to, to] if isinstance(inner.get(key), list) else to
    note = f"set the size in preprocessor_config.json to {to} pixels too"
    return {key: value}, key, _like(new, stored), [note]


def _like(new: Learned, stored: torch.Tensor) -> torch.Tensor:
    rows = new.table.detach().to(stored.dtype)
    return rows.reshape(*stored.shape[:-2], *rows.shape).contiguous()


def _sides(value: Any) -> tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, list | tuple) else (value, value)


def _written(
    files: ModelFiles,
    weights: Weights,
    name: str,
    new: torch.Tensor,
    config: dict[str, Any],
    out: Path,
) -> int:
    """Write the model to a temporary folder, rename it to `out`, and return its size in bytes."""
    shards = list(dict.fromkeys(info.file for info in weights.infos.values()))
    copied, _ = other_files(files, shards, out)
    raw = new.view(torch.uint8).numpy().tobytes()
    change = TensorChange(new={name: ([*new.shape], raw)})
    with written_beside(out) as unfinished:
        unfinished.mkdir(parents=True)
        for _ in write_folder(files.root, shards, copied, unfinished, change):
            pass
        text = json.dumps(config, ensure_ascii=False, indent=2) + "\n"
        (unfinished / "config.json").write_text(text, "utf-8")
        return sum(file.stat().st_size for file in unfinished.rglob("*") if file.is_file())
