"""Write a copy of a model with the other RoPE pair layout in its query and key projections.

    converted = convert(Path("model"), "interleaved", Path("model-interleaved"))

Rows are only moved as bytes, so converting back restores the same bytes. One tensor at a time is in
memory. The copy is written to a folder beside `out` and renamed when complete. Each new file of
weights states its layout in its metadata. The present layout is found in the first of these sources
that states it:

    1  the metadata of the files of weights
    2  the queries and keys themselves (posenc.analysis.rotary_pairs)
    3  `from_`
    4  the config, or transformers' code for this `model_type`

Sources 1 to 3 and a key of the config must agree. A GGUF file becomes a folder of safetensors with
a config, in either layout.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.models import from_gguf
from posenc.models.config import families
from posenc.models.config.gguf import specify_gguf
from posenc.models.config.source import Source
from posenc.models.files.errors import ModelError
from posenc.models.files.folder import ModelFiles, inside, unused_folder
from posenc.models.files.strict import opened, parse_json
from posenc.models.layouts import KEY, OTHER, config_of, plan
from posenc.models.weights import Weights
from posenc.models.weights.info import BITS
from posenc.models.weights.memory import check_memory
from posenc.models.weights.safetensors import read_safetensors
from posenc.support.text import printable
from posenc.support.writing import written_beside

if TYPE_CHECKING:
    from posenc.core.frequencies import Layout

COPIED = (".json", ".jsonl", ".txt", ".model", ".jinja", ".tiktoken", ".bpe", ".md", "")
PIECE = 2**24  # bytes copied at a time

Progress = Callable[[str, int, int], None]  # name of a tensor, number written, total


@dataclass(frozen=True)
class Converted:
    """Result of a conversion; `moved` lists the tensors whose rows were reordered."""

    out: Path
    was: Layout
    by: str  # source that states `was`, in words
    now: Layout
    tensors: int
    moved: tuple[str, ...]
    bytes: int
    notes: tuple[str, ...]


def convert(
    model: Path | Source,
    to: Layout,
    out: Path,
    from_: Layout | None = None,
    progress: Progress = lambda doing, count, of: None,
) -> Converted:
    """Write a copy of a model whose RoPE pairs have layout `to`, into the new folder `out`.

    - `model`: a model folder or a GGUF file
    - `from_`: its present layout, needed if its weights do not show it
    - `progress`: called with the name of each tensor, the number written, and the total

    Raises ModelError for a model that cannot be converted with certainty, ValueError for an unknown
    layout, FileExistsError if `out` is not empty. Nothing is written after an error.
    """
    for name, layout in (("to", to), ("from_", from_)):
        if layout not in OTHER and not (name == "from_" and layout is None):
            names = " or ".join(map(repr, OTHER))
            raise ValueError(f"`{name}` must be {names}, got {layout!r}.")
    out, opened_model = unused_folder(out), Source.of(model)
    files = opened_model.files
    if files.config is None and files.format != "gguf":
        raise ModelError(
            opened_model.path,
            "",
            "contains no config.json, which is needed for the number of heads. Add the config",
        )
    weights = opened_model.weights
    source = (Gguf if files.format == "gguf" else Safetensors)(opened_model, out)
    orders, notes = plan(source.infos, source.config, to, source.file.name)
    was, by = _present_layout(source, weights, from_)
    if was == to and files.format != "gguf":
        present = f"is already in layout {to!r} ({by}), so it needs no conversion"
        raise ModelError(source.file, "", present)
    orders = orders if was != to else {}
    for name in orders:
        info = source.infos[name]
        check_memory(info.elements * BITS[info.dtype] // 8, info.file, name, of="of memory")
    home = next(parent for parent in out.parents if parent.exists())
    room = shutil.disk_usage(home).free
    check_memory(source.bytes, home, "", room, of="on the disk")

    with written_beside(out) as part:
        part.mkdir(parents=True)
        count = 0
        for name in source.write(part, orders, to):
            count += 1
            progress(name, count, len(weights))
        notes.append(_declare(part / "config.json", source.config, source.spec.model, to))
        size = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
    notes = [*files.notes, *source.notes, *notes]
    if source.left:
        notes.append(f"not copied: {', '.join(map(printable, source.left))}")
    return Converted(out, was, by, to, count, tuple(orders), size, tuple(notes))


@dataclass(frozen=True)
class TensorChange:
    """Changes to make while safetensors files are copied; tensors not listed stay the same."""

    orders: Mapping[str, list[int]] = field(default_factory=dict)  # tensor → new order of its rows
    new: Mapping[str, tuple[list[int], bytes]] = field(default_factory=dict)  # its shape and bytes
    metadata: Mapping[str, str] = field(default_factory=dict)  # added to the metadata of each file


class Safetensors:
    """Model in safetensors files, which a conversion copies with reordered rows of q and k."""

    def __init__(self, model: Source, out: Path):
        files, weights = model.files, model.weights
        assert files.config is not None
        self.root, self.file, self.infos = files.root, files.config, weights.infos
        self.config, self.spec = model.config(""), model.spec.text_stack
        self.shards = list(dict.fromkeys(info.file for info in weights.infos.values()))
        self.copied, self.left = other_files(files, self.shards, out)
        self.notes: list[str] = []

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in (*self.shards, *self.copied))

    def marks(self) -> dict[Path, str | None]:
        """Map each weights file to the RoPE pair layout in its metadata; None if not stated."""
        return {shard: read_safetensors(shard).metadata.get(KEY) for shard in self.shards}

    def write(self, part: Path, orders: Mapping[str, list[int]], to: Layout) -> Iterator[str]:
        """Copy all files with q and k rows reordered; yield the name of each written tensor."""
        change = TensorChange(orders=orders, metadata={KEY: to})
        yield from write_folder(self.root, self.shards, self.copied, part, change)


class Gguf:
    """Model in a GGUF file, which a conversion writes as a safetensors folder for transformers."""

    def __init__(self, model: Source, out: Path):
        weights = model.weights
        self.file, self.weights = model.files.weights[0], weights
        self.renamed = from_gguf.renamed(weights)
        self.infos = {info.name: info for info in self.renamed.values()}
        self.config = from_gguf.config_of(weights, self.file.name)
        self.spec = specify_gguf(weights.metadata, weights, self.file.name)
        self.left = ["the tokenizer, which is within the GGUF file"]
        blocks = sorted({info.dtype for info in weights.infos.values()} - BITS.keys())
        exact = f"{', '.join(blocks)} are written as float32, with the same values"
        self.notes = [exact] if blocks else []

    @property
    def bytes(self) -> int:
        return sum(info.elements * BITS[info.dtype] // 8 for info in self.infos.values())

    def marks(self) -> dict[Path, str | None]:
        return {self.file: None}

    def write(self, part: Path, orders: Mapping[str, list[int]], to: Layout) -> Iterator[str]:
        """Write the config and one weights file, and yield the name of each written tensor."""
        text = json.dumps(self.config, ensure_ascii=False, indent=2) + "\n"
        (part / "config.json").write_text(text, "utf-8")
        header, end = {}, 0
        for info in self.infos.values():
            size = info.elements * BITS[info.dtype] // 8
            offsets = [end, end + size]
            header[info.name] = {"dtype": info.dtype, "shape": info.shape, "data_offsets": offsets}
            end += size
        with (part / "model.safetensors").open("xb") as out:
            out.write(header_bytes(header, {KEY: to}))
            for name, info in self.renamed.items():
                raw = from_gguf.tensor_bytes(self.weights, name)
                moved = _reordered(raw, orders[info.name]) if info.name in orders else [raw]
                out.writelines(moved)
                yield info.name


def _present_layout(
    source: Safetensors | Gguf, weights: Weights, from_: Layout | None
) -> tuple[Layout, str]:
    """Return the RoPE pair layout that a model has now, and the evidence for it in words."""
    # Imported here because it needs torch
    from posenc.models.weight_measurements import layout_evidence

    marks, file = source.marks(), source.file
    for shard, mark in marks.items():
        if mark is not None and mark not in OTHER:
            raise ModelError(shard, KEY, "must be a layout", mark, ", ".join(OTHER))
    if len(set(marks.values())) > 1:
        raise ModelError(
            file, "", "must state the same pair layout in the metadata of all files", "both"
        )
    # All layers of a family have the same layout
    usual = source.spec.rotary[0].layout
    family = families.family(source.spec.model)
    evidence = layout_evidence(source.spec, weights)
    by_weights = evidence.verdict if evidence else None
    values = ", ".join(f"{n!r} t = {t:.1f}" for n, t in evidence.t.items()) if evidence else ""
    # By source, the most reliable first
    statements: dict[str, Any] = {
        "stated in its metadata": next(iter(marks.values())),
        f"measured in its weights, {values}": by_weights,
        "stated by `--was`": from_,
    }
    statements = {by: layout for by, layout in statements.items() if layout is not None}
    if len(set(statements.values())) > 1:
        listed = "; ".join(f"{layout!r}: {by}" for by, layout in statements.items())
        problem = "must have one pair layout, but the evidence is contradictory"
        raise ModelError(file, "", f"{problem}: {listed}. Correct `--was` if it is wrong")
    by, now = next(iter(statements.items()), ("", None))
    if now and family and family.layout_key and isinstance(source, Safetensors) and now != usual:
        other = "`--was`" if now == from_ and len(statements) == 1 else "the weights"
        problem = f"means {usual!r}, but {other} {now!r}. Correct the key"
        raise ModelError(file, family.layout_key, problem)
    if now and usual and now != usual:
        by += f", although {_named_model(source)} usually has {usual!r}"
    if now:
        return now, by
    if usual:
        return usual, f"as {_named_model(source)}"
    unknown = "does not determine the layout. Pass the present layout with `--was`"
    raise ModelError(file, "model_type", unknown, source.spec.model, ", ".join(OTHER))


def _named_model(source: Safetensors | Gguf) -> str:
    """Return the model type and its file format, such as "'llama' in GGUF"."""
    place = "GGUF" if isinstance(source, Gguf) else "transformers"
    return f"{printable(source.spec.model)!r} in {place}"


def write_folder(
    root: Path, shards: list[Path], copied: list[Path], out: Path, change: TensorChange
) -> Iterator[str]:
    """Copy a model's weights and other files to `out`; yield the name of each written tensor."""
    for shard in shards:
        target = out / shard.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        yield from _write(shard, target, change)
    for file in copied:
        with opened(file) as source, (out / file.name).open("xb") as copy:
            shutil.copyfileobj(source, copy)


def _write(source: Path, target: Path, change: TensorChange) -> Iterator[str]:
    """Copy a weights file with some tensors changed; yield the name of each written tensor."""
    with opened(source) as file, target.open("xb") as out:
        header = parse_json(exactly(file, int.from_bytes(file.read(8), "little"), source), source)
        metadata = header.pop("__metadata__", {})
        spans = sorted((*header[name]["data_offsets"], name) for name in header)
        end = 0
        for begin, stop, name in spans:
            shape, raw = change.new.get(name, (header[name]["shape"], None))
            start, end = end, end + (stop - begin if raw is None else len(raw))
            header[name] |= {"shape": shape, "data_offsets": [start, end]}
        out.write(header_bytes(header, {**metadata, **change.metadata}))
        for begin, stop, name in spans:
            if name in change.new:
                file.seek(stop - begin, os.SEEK_CUR)
                out.write(change.new[name][1])
            elif name in change.orders:
                out.writelines(_reordered(exactly(file, stop - begin, source), change.orders[name]))
            else:
                for at in range(begin, stop, PIECE):
                    out.write(exactly(file, min(PIECE, stop - at), source))
            yield name


def header_bytes(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
    """Return the header of a safetensors file: the length of its JSON in 8 bytes, then the JSON."""
    # transformers 4 rejects a file whose metadata lack "format"
    marked = {"__metadata__": {"format": "pt", **metadata}, **tensors}
    text = json.dumps(marked, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _reordered(raw: bytes, order: list[int]) -> Iterator[memoryview]:
    # Row i of the copy is row order[i] of the original. Each number of a gain is a row.
    rows, size = memoryview(raw), len(raw) // len(order)
    return (rows[i * size : (i + 1) * size] for i in order)


def exactly(file: BufferedReader, count: int, path: Path) -> bytes:
    """Return the next `count` bytes of a file. Raises ModelError if the file ends earlier."""
    raw = file.read(count)
    if len(raw) < count:
        raise ModelError(path, "", "became shorter while it was read. Convert it again")
    return raw


def other_files(files: ModelFiles, shards: list[Path], out: Path) -> tuple[list[Path], list[str]]:
    """Return the files to copy besides weights (config, tokenizer), and names of the others."""
    copied, left = [], []
    for path in sorted(files.root.iterdir()):
        if path in shards or os.path.realpath(path) == str(out):
            continue
        foreign = path.name.endswith(".index.json") and path not in files.weights
        if path.is_dir() or path.suffix not in COPIED or foreign:
            left.append(path.name)
        else:
            copied.append(inside(files.root, path.name))
    return copied, left


def _declare(path: Path, config: Mapping[str, Any], model: str, to: Layout) -> str:
    """Set the config key of the RoPE pair layout, if there is one; return a note for the user."""
    family = families.family(model)
    if family is not None and family.layout_key:
        changed = deepcopy(dict(config))
        config_of(changed, model)[family.layout_key] = to == "interleaved"  # type: ignore[index]
        path.write_text(json.dumps(changed, ensure_ascii=False, indent=2) + "\n", "utf-8")
        return f"{path.name}:{family.layout_key} is {str(to == 'interleaved').lower()} now"
    if family is not None and family.layout == to:
        return f"transformers uses {to!r} for {model!r}, so it can load the copy"
    return (
        f"no key of {path.name} states the layout. The copy is for code that uses {to!r}, which"
        f" transformers does not for {printable(model)!r}"
    )
