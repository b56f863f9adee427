"""Checkpoints of a training run: written whole or not at all, and verified when they are read.

A checkpoint is one file of safetensors, `step-00000500-<digest>.safetensors`. The digest in its
name is the SHA-256 of all its bytes, so a flipped bit or a missing end shows. The newest two are
kept: if the newest is damaged, the one before it serves.
"""

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posenc.lab.study import regular
from posenc.support.arguments import brief
from posenc.support.version import __version__
from posenc.support.writing import write_whole

KEPT = 2
NAME = re.compile(r"step-(\d{8,})-([0-9a-f]{16})\.safetensors")
# One key of the metadata of safetensors, which does not keep the order of several
KEY = "posenc"


@dataclass(frozen=True)
class Checkpoint:
    """A training run after `step` steps."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    path: Path


class Refused(ValueError):
    """A run cannot go on from its checkpoints; the message says why."""


class Damaged(Refused):
    """No checkpoint of a folder can be read, though it has some."""


def save(
    directory: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> Path:
    """Write a checkpoint, wait until it is on the disk, and remove all but the newest two.

    `state` is what JSON can hold: states of generators, losses, and as "cell" the settings of the
    run, which `latest` compares. Raises OSError where it cannot be
    written, with the bytes that are needed and free; earlier checkpoints stay as they are.
    """
    from safetensors.torch import save as serialized

    kept = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    about = {"step": step, "state": state, "made_by": _versions()}
    data = serialized(kept, {KEY: json.dumps(about)})
    path = directory / f"step-{step:08}-{sha256(data).hexdigest()[:16]}.safetensors"
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)
    earlier = [other for other in _paths(directory) if other != path and _step(other) <= step]
    for other in {*_paths(directory), *directory.glob(".*.part")} - {path, *earlier[-(KEPT - 1) :]}:
        other.unlink(missing_ok=True)
    return path


def latest(directory: Path, settings: Mapping[str, Any] | None = None) -> Checkpoint | None:
    """Read the newest checkpoint that is whole; None in a folder without any.

    Warns of damaged ones by name. Raises Damaged if all are, and Refused for a checkpoint of
    a run with other settings, or made by other versions, with the difference.
    """
    damaged: list[str] = []
    for path in reversed(_paths(directory)):
        try:
            checkpoint = _read_file(path, settings)
        except FileNotFoundError:
            # Another process has just removed it, for it has newer ones
            continue
        if checkpoint is not None:
            if damaged:
                warnings.warn(
                    f"{', '.join(damaged)} in {directory} is damaged: training goes on from"
                    f" {path.name}.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return checkpoint
        damaged.append(path.name)
    if damaged:
        raise Damaged(
            f"all checkpoints in {directory} are damaged ({', '.join(damaged)}): delete the folder"
            " to train from the beginning."
        )
    return None


def _paths(directory: Path) -> list[Path]:
    """Checkpoints of a folder, the oldest first."""
    if not directory.is_dir():
        return []
    named = (path for path in directory.iterdir() if NAME.fullmatch(path.name))
    return sorted(path for path in named if regular.is_file(path))


def _step(path: Path) -> int:
    named = NAME.fullmatch(path.name)
    assert named is not None
    return int(named[1])


def _read_file(path: Path, settings: Mapping[str, Any] | None) -> Checkpoint | None:
    """Read a file of a checkpoint; None if it is damaged."""
    from safetensors.torch import load

    data = path.read_bytes()
    if sha256(data).hexdigest()[:16] != path.stem.rpartition("-")[2]:
        return None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about = json.loads(header["__metadata__"][KEY])
    there = about["made_by"] | flat(about["state"].get("cell") if settings else None)
    if differing := differences(there, _versions() | flat(settings)):
        raise Refused(
            f"{path.name} is the checkpoint of another run: {differing}. Delete {path.parent} to"
            " train from the beginning."
        )
    return Checkpoint(about["step"], load(data), about["state"], path)


def _versions() -> dict[str, str]:
    """Versions without which a run would not go on with the same bits."""
    return {"posenc": __version__, "torch": torch.__version__}


def differences(there: Mapping[str, Any], asked: Mapping[str, Any], most: int = 6) -> str:
    """Name the settings that differ, "`seed` is 1 there and 2 here, …"; empty where none does.

    >>> differences({"seed": 1, "task": "copy"}, {"seed": 2, "task": "copy"})
    '`seed` is 1 there and 2 here'
    """
    names = sorted(name for name in {**there, **asked} if there.get(name) != asked.get(name))
    lines = [
        f"`{name}` is {brief(there.get(name))} there and {brief(asked.get(name))} here"
        for name in names[:most]
    ]
    return ", ".join(lines) + (f" and {len(names) - most} more" if len(names) > most else "")


def flat(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings with those of the profile by their own names."""
    rest = dict(settings or {})
    profile = rest.pop("profile", {})
    return rest | {f"profile.{name}": value for name, value in profile.items()}
