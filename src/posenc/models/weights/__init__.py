"""Open the weights of a model, safetensors or GGUF, as one mapping from names to tensors.

    weights = open_weights(find_files(Path("model")))
    weights["model.layers.0.self_attn.q_proj.weight"]     reads this tensor only

Headers are read first, without torch, and checked against limits before any tensor is read.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.models.files.errors import Broken, ModelError
from posenc.models.files.folder import NO_PICKLE, ModelFiles, inside
from posenc.models.files.strict import MOST_INDEX, opened, read_json
from posenc.models.weights.gguf import read_gguf
from posenc.models.weights.info import BITS, Info, Part
from posenc.models.weights.memory import check_memory
from posenc.models.weights.safetensors import read_safetensors

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]
else:
    # A run-time type checker that tests the values of a Mapping would read a tensor from disk
    Tensors = Mapping

__all__ = ["Info", "Tensors", "Weights", "open_weights"]

READERS = {"safetensors": read_safetensors, "gguf": read_gguf}
MOST_SHARDS = 2000
MOST_IN_SHARDS = 500_000  # tensors


class Weights(Tensors):
    """Mapping from name to tensor in its stored dtype; block-quantised tensors become float32.

    `infos` and `metadata` come from the headers; if files disagree, metadata of the first one are
    used. A missing name raises KeyError, an unreadable tensor ModelError.
    """

    def __init__(self, parts: list[Part]):
        self._ends = {
            next(iter(part.infos.values())).file: part.end for part in parts if part.infos
        }
        self._load = {name: part.load for part in parts for name in part.infos}
        self.infos: Mapping[str, Info] = {k: v for part in parts for k, v in part.infos.items()}
        self.metadata: Mapping[str, Any] = {
            k: v for part in reversed(parts) for k, v in part.metadata.items()
        }

    def __getitem__(self, name: str) -> "torch.Tensor":
        info = self.infos[name]
        check_memory(info.elements * BITS.get(info.dtype, 32) // 8, info.file, name, of="of memory")
        return self._load[name](name)

    def check_whole(self) -> None:
        """Raise Broken if a file is shorter than its header requires."""
        for path, end in self._ends.items():
            size = path.stat().st_size
            if size < end:
                raise Broken(path, "", f"is cut off: it has {size:,} bytes of {end:,}")

    def __contains__(self, name: object) -> bool:
        return name in self.infos

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)


def open_weights(files: ModelFiles) -> Weights:
    """Open the weights of a model: read the headers now, and each tensor on its first use."""
    if files.format is None:
        if not files.weights:
            raise ModelError(
                files.root.resolve(), "", "contains a config but no weights. Add the weights files"
            )
        raise ModelError(files.weights[0], "", NO_PICKLE)
    if files.weights[0].name.endswith(".index.json"):
        return Weights(_sharded(files.root, files.weights[0], files.format))
    parts = [_part(path, files.format) for path in files.weights]
    owner: dict[str, Path] = {}
    for path, part in zip(files.weights, parts, strict=True):
        for name in part.infos:
            if name in owner:
                twice = f"is in {owner[name].name} too. Pass one of the files, not the folder"
                raise ModelError(path, name, twice)
            owner[name] = path
    return Weights(parts)


def _part(path: Path, kind: str) -> Part:
    with opened(path) as file:
        if file.read(20).startswith(b"version https://git"):
            raise Broken(
                path, "", "is a Git LFS pointer instead of the weights. Run `git lfs pull`"
            )
    return READERS[kind](path)


def _shard(root: Path, at: str, index: Path, name: str) -> Path:
    """Return the path of a shard. Raises Broken if missing, ModelError if outside the folder."""
    try:
        return inside(root, at, index, name)
    except ModelError as error:
        if isinstance(error.__context__, FileNotFoundError):
            raise Broken(root / at, "", "cannot be read: No such file or directory") from None
        raise


def _sharded(root: Path, index: Path, kind: str) -> list[Part]:
    """Read the headers of the shards that an index file lists, for the tensors in the index."""
    places = read_json(index, most=MOST_INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(at, str) for at in places.values()):
        raise Broken(index, "weight_map", "must map each tensor to a file name", got=places)
    shards: dict[str, Part] = {}
    for name, at in places.items():
        if at not in shards:
            if not at.endswith(f".{kind}"):
                raise Broken(
                    index, name, "must name a file in the format of the index", at, f"*.{kind}"
                )
            shards[at] = _part(_shard(root, at, index, name), kind)
            total = sum(len(part.infos) for part in shards.values())
            if len(shards) > MOST_SHARDS or total > MOST_IN_SHARDS:
                big = f"names {len(shards)} files with {total} tensors"
                most = f"up to {MOST_SHARDS} and {MOST_IN_SHARDS}"
                raise ModelError(index, "weight_map", big, allowed=most)
        if name not in shards[at].infos:
            raise Broken(index, name, f"is not in {at!r}, the file that the index names")
    return [
        part._replace(infos={k: v for k, v in part.infos.items() if places.get(k) == at})
        for at, part in shards.items()
    ]
