"""Checkpoints of a training run, written atomically and verified when they are read.

A checkpoint is one safetensors file, `step-00000500-<digest>.safetensors`. The digest in its name
is the first 16 digits of the SHA-256 of all its bytes, so a flipped bit or a missing end is
detected. The newest two are kept: if the newest is damaged, training resumes from the other.
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

from posenc.lab.study import safe_files
from posenc.support.arguments import brief
from posenc.support.version import __version__
from posenc.support.writing import write_whole

KEPT = 2
NAME = re.compile(r"step-(\d{8,})-([0-9a-f]{16})\.safetensors")
# All metadata is stored under one key, because safetensors does not keep the order of several
KEY = "posenc"


@dataclass(frozen=True)
class Checkpoint:
    """The saved state of a training run after `step` steps."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    path: Path


class Refused(ValueError):
    """Raised if a run cannot resume from its checkpoints; the message gives the reason."""


class Damaged(Refused):
    """Raised if all checkpoints in a folder are damaged."""


def save(
    directory: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> Path:
    """Write a checkpoint to disk durably, then remove all checkpoints but the newest two.

    - `directory`: folder of the checkpoints of one run
    - `step`: number of training steps that are done
    - `tensors`: tensors by name
    - `state`: JSON values, such as losses; "cell" has the settings of the run, which `latest`
      compares

    Returns the path of the checkpoint. Raises OSError, with the bytes that are needed and free, if
    the file cannot be written; earlier checkpoints are left unchanged.
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
    """Read the newest undamaged checkpoint; return None if the folder has no checkpoint.

    Warns of damaged checkpoints by name. Raises Damaged if all are damaged, and Refused, with the
    differences, for a checkpoint made with other settings or by other versions.
    """
    damaged: list[str] = []
    for path in reversed(_paths(directory)):
        try:
            checkpoint = _read_file(path, settings)
        except FileNotFoundError:
            # Another process has written newer checkpoints and removed this one
            continue
        if checkpoint is not None:
            if damaged:
                warnings.warn(
                    f"damaged checkpoints in {directory}: {', '.join(damaged)}. Training resumes"
                    f" from {path.name}.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return checkpoint
        damaged.append(path.name)
    if damaged:
        raise Damaged(
            f"all checkpoints in {directory} are damaged ({', '.join(damaged)}). Delete the folder"
            " to train from the beginning."
        )
    return None


def _paths(directory: Path) -> list[Path]:
    """Return the paths of a folder's checkpoint files, oldest first."""
    if not directory.is_dir():
        return []
    named = (path for path in directory.iterdir() if NAME.fullmatch(path.name))
    return sorted(path for path in named if safe_files.is_file(path))


def _step(path: Path) -> int:
    named = NAME.fullmatch(path.name)
    assert named is not None
    return int(named[1])


def _read_file(path: Path, settings: Mapping[str, Any] | None) -> Checkpoint | None:
    """Read a checkpoint file; return None if it is damaged."""
    from safetensors.torch import load

    data = path.read_bytes()
    if sha256(data).hexdigest()[:16] != path.stem.rpartition("-")[2]:
        return None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about = json.loads(header["__metadata__"][KEY])
    there = about["made_by"] | flat(about["state"].get("cell") if settings else None)
    if differing := differences(there, _versions() | flat(settings)):
        raise Refused(
            f"{path.name} is the checkpoint of another training run: {differing}. Delete"
            f" {path.parent} to train from the beginning."
        )
    return Checkpoint(about["step"], load(data), about["state"], path)


def _versions() -> dict[str, str]:
    """Return the versions that must match for a resumed run to equal an uninterrupted one."""
    return {"posenc": __version__, "torch": torch.__version__}


def differences(there: Mapping[str, Any], asked: Mapping[str, Any], most: int = 6) -> str:
    """Describe the settings in which two runs differ, such as "`seed` is 1 there and 2 here".

    Returns "" if all settings are equal.

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
    """Return a training run's settings as one flat dict, with keys such as "profile.width"."""
    rest = dict(settings or {})
    profile = rest.pop("profile", {})
    return rest | {f"profile.{name}": value for name, value in profile.items()}
