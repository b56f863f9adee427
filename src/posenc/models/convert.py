"""A model in the other layout: a copy of its folder in which queries and keys have changed places.

    converted = convert(Path("model"), "interleaved", Path("model-interleaved"))

Bytes are moved and never computed with, so the way back gives the same bytes. One tensor at a time
is in memory. The copy grows in a folder beside `out` and gets its name once it is complete. Each
file of weights says in its metadata which layout it is in, and that is believed first.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.models import families
from posenc.models.config import specify
from posenc.models.errors import ModelError, printable
from posenc.models.files import ModelFiles, find, inside, read_json
from posenc.models.layouts import OTHER, own, plan
from posenc.models.reading import opened, parse_json
from posenc.models.spec import Spec
from posenc.models.weights import open_weights, safetensors

if TYPE_CHECKING:
    from posenc.theta import Layout

KEY = "posenc.layout"  # in the metadata of safetensors
COPIED = (".json", ".jsonl", ".txt", ".model", ".jinja", ".tiktoken", ".bpe", ".md", "")
PIECE = 2**24  # bytes copied at a time

Progress = Callable[[str, int, int], None]  # a tensor, how many are done, of how many


@dataclass(frozen=True)
class Converted:
    """What has been done. `moved` names the tensors that changed; `notes` say what to know."""

    out: Path
    was: Layout
    now: Layout
    tensors: int
    moved: tuple[str, ...]
    bytes: int
    notes: tuple[str, ...]


def convert(
    path: Path,
    to: Layout,
    out: Path,
    from_: Layout | None = None,
    progress: Progress = lambda doing, done, of: None,
) -> Converted:
    """Writes the model in `path` to the new folder `out`, in layout `to`.

    `from_` says in which layout it is, where neither its weights nor its config do. Raises
    ModelError for a model that cannot be converted with certainty, ValueError for an unknown
    layout, FileExistsError if `out` holds anything; nothing has been written then.
    """
    for name, layout in (("to", to), ("from_", from_)):
        if layout not in OTHER and not (name == "from_" and layout is None):
            known = " or ".join(map(repr, OTHER))
            raise ValueError(f"`{name}` is a layout: {known}, got {layout!r}.")
    out = Path(os.path.realpath(out))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists, and nothing is overwritten: name a new folder.")
    files = find(path)
    if files.config is None:
        raise ModelError(path, "", "holds no config.json, which says how its heads lie")
    weights = open_weights(files)
    if files.format != "safetensors":
        raise ModelError(files.weights[0], "", "cannot be converted", files.format, "safetensors")
    config = read_json(files.config)
    orders, notes = plan(weights.infos, config, to, files.config.name)
    shards = list(dict.fromkeys(info.file for info in weights.infos.values()))
    spec = specify(config, files.config.name).main
    _refuse_unless_other(to, from_, spec, files.config, shards)
    copied, left = _others(files, shards, out)

    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
        done = 0
        for shard in shards:
            target = part / shard.relative_to(files.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            for name in _write(shard, target, orders, to):
                done += 1
                progress(name, done, len(weights))
        for file in copied:
            with opened(file) as given, (part / file.name).open("xb") as copy:
                shutil.copyfileobj(given, copy)
        notes.append(_declare(part / files.config.name, config, spec.model, to))
        size = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        if out.exists():
            out.rmdir()  # raises if somebody has put something there meanwhile
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if left:
        notes.append(f"left behind: {', '.join(map(printable, left))}")
    notes = [*files.notes, *notes]
    return Converted(out, OTHER[to], to, done, tuple(orders), size, tuple(notes))


def layout_of(spec: Spec, metadata: Mapping[str, Any], file: Path) -> Layout | None:
    """The layout of a file of weights: what its metadata says, or else what is usual in its family.

    None: nothing says it.
    """
    mark = metadata.get(KEY)
    if mark is not None:
        if mark not in OTHER:
            raise ModelError(file, KEY, "is not known", mark, ", ".join(OTHER))
        return mark
    return spec.rotary[0].layout  # all layers of a family are alike


def _refuse_unless_other(
    to: Layout, from_: Layout | None, spec: Spec, config: Path, shards: list[Path]
) -> None:
    """Is the model in the other layout, by all that is said of it?"""
    said = {shard: layout_of(spec, safetensors.read(shard).metadata, shard) for shard in shards}
    if len(set(said.values())) > 1:
        raise ModelError(config, "", "its files of weights are in different layouts", "both")
    now, usual = next(iter(said.values())), layout_of(spec, {}, config)
    known = families.family(spec.model)
    if known is not None and known.layout_key and now != usual:
        contradicts = f"says {usual!r}, and the weights say {now!r}; set it right"
        raise ModelError(config, known.layout_key, contradicts)
    if now is None and from_ is None:
        unknown = "does not say where the channels of a pair sit; say which layout it is in now"
        raise ModelError(config, "model_type", unknown, spec.model, ", ".join(OTHER))
    if None not in (now, from_) and now != from_:
        raise ModelError(config, "", f"the model is in layout {now!r}, not {from_!r}")
    if (now or from_) == to:
        raise ModelError(config, "", f"the model is already in layout {to!r}")


def _write(
    source: Path, target: Path, orders: Mapping[str, list[int]], to: Layout
) -> Iterator[str]:
    """Copies one file of weights; yields the name of each tensor as it is written."""
    with opened(source) as file, target.open("xb") as out:
        length = int.from_bytes(file.read(8), "little")
        header = parse_json(_exactly(file, length, source), source)
        metadata = header.pop("__metadata__", {})
        # Without "format", transformers 4 refuses a file that has metadata at all.
        marked = {"__metadata__": {"format": "pt", **metadata, KEY: to}, **header}
        text = json.dumps(marked, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        out.write(len(text).to_bytes(8, "little") + text)
        for begin, end, name in sorted((*header[name]["data_offsets"], name) for name in header):
            if name in orders:
                out.writelines(_reordered(_exactly(file, end - begin, source), orders[name]))
            else:
                for at in range(begin, end, PIECE):
                    out.write(_exactly(file, min(PIECE, end - at), source))
            yield name


def _reordered(raw: bytes, order: list[int]) -> Iterator[memoryview]:
    rows, size = memoryview(raw), len(raw) // len(order)
    return (rows[i * size : (i + 1) * size] for i in order)


def _exactly(file: BufferedReader, count: int, path: Path) -> bytes:
    raw = file.read(count)
    if len(raw) < count:
        raise ModelError(path, "", "has become shorter while it was read")
    return raw


def _others(files: ModelFiles, shards: list[Path], out: Path) -> tuple[list[Path], list[str]]:
    """Besides the weights: files to copy (config, tokenizer), and names of what is left behind."""
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
    """Says the layout in the copied config, if this family has a key for it; what to know of it."""
    known = families.family(model)
    if known is not None and known.layout_key:
        changed = deepcopy(dict(config))
        own(changed, model)[known.layout_key] = to == "interleaved"  # type: ignore[index]
        path.write_text(json.dumps(changed, ensure_ascii=False, indent=2) + "\n", "utf-8")
        return f"{path.name}:{known.layout_key} is {str(to == 'interleaved').lower()} now"
    if known is not None and known.layout == to:
        return f"transformers turns {model!r} as {to!r}: this is for it"
    return (
        f"no key of {path.name} says the layout: this is for code that turns {to!r}, which"
        f" transformers does not do of {printable(model)!r}"
    )
