"""Write the test vectors as JSON with exact numbers, and check such files against posenc.

Floats are hexadecimal ("0x1.8p-1"), so that reading and writing changes no bit. `index.json` names
the files with their SHA-256; `schema.json` is the JSON Schema of all others. The core set is in
`core.json` and, for programs without a JSON reader, its rotations are in `core.txt`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posenc.lab.vectors.cases import VectorCase, cases, own_error
from posenc.support.version import __version__
from posenc.support.writing import written_beside

FORMAT = "posenc.vectors/1"
LICENSE = "CC0-1.0"
INDEX, CORE, PLAIN, SCHEMA = "index.json", "core.json", "core.txt", "schema.json"


def encoded(x: Tensor) -> dict[str, Any]:
    """Convert a tensor to plain data: shape, dtype, and its numbers in row-major order.

    >>> encoded(torch.tensor([1.5, -2.0]))
    {'dtype': 'float32', 'shape': [2], 'data': ['0x1.8p+0', '-0x1p+1']}
    """
    numbers = x.detach().flatten().tolist()
    if x.is_floating_point():
        numbers = [_hex(number) for number in numbers]
    elif x.dtype == torch.bool:
        numbers = [int(number) for number in numbers]
    return {"dtype": str(x.dtype).removeprefix("torch."), "shape": [*x.shape], "data": numbers}


def decoded(data: Mapping[str, Any]) -> Tensor:
    """Convert plain data, as returned by `encoded`, to a tensor."""
    dtype = getattr(torch, data["dtype"])
    numbers = [float.fromhex(n) for n in data["data"]] if dtype.is_floating_point else data["data"]
    return (
        torch.tensor(numbers, dtype=torch.float64 if dtype.is_floating_point else None)
        .to(dtype)
        .view(data["shape"])
    )


def _hex(number: float) -> str:
    """Format a float in hexadecimal, without trailing zeros."""
    head, _, exponent = number.hex().partition("p")
    return f"{head.rstrip('0').rstrip('.')}p{exponent}" if "." in head else number.hex()


def document(case: VectorCase) -> dict[str, Any]:
    """Convert a test vector to a dict of plain data for JSON."""
    return {
        "name": case.name,
        "kind": case.kind,
        "settings": case.settings,
        "inputs": {name: encoded(x) for name, x in case.inputs.items()},
        "outputs": {name: encoded(x) for name, x in case.outputs.items()},
        "tolerance": case.tolerance,
    }


def has_gain(case: VectorCase) -> bool:
    """Test whether a test vector's rotation also scales queries and keys, as YaRN does."""
    return case.settings.get("gain", 1.0) != 1.0


def plain(case: VectorCase) -> str:
    """Format a test vector of a rotation as plain text, with one line for each field.

    case, layout, start, precision, tolerance, sizes (batch, heads, tokens, channels), theta,
    positions (for each text, head and token), q, rotated_q
    """
    q, pos = case.inputs["q"], case.inputs["positions"]
    batch, heads, tokens, _ = q.shape
    pos = pos.view(*[1] * (3 - pos.ndim), *pos.shape) if pos.ndim != 2 else pos[:, None]
    pos = pos.expand(batch, heads, tokens)
    lines = {
        "case": [case.name.replace(" ", "_")],
        "layout": [case.settings["layout"]],
        "start": [str(case.settings["start"])],
        "precision": [case.settings["precision"]],
        "tolerance": [_hex(case.tolerance)],
        "sizes": [str(n) for n in q.shape],
        "theta": encoded(case.inputs["theta"])["data"],
        "positions": [str(n) for n in pos.flatten().tolist()],
        "q": encoded(q)["data"],
        "rotated_q": encoded(case.outputs["rotated_q"])["data"],
    }
    return "".join(f"{name} {' '.join(words)}\n" for name, words in lines.items())


def write(out: Path) -> int:
    """Write all test vectors into a new folder, and return their number.

    Raises FileExistsError if there is anything at `out`.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(
            f"`out` must be an empty or new folder, got {out}. Choose a new name."
        )
    made = [*cases()]
    texts = {f"{kind}.json": _text(kind, chosen) for kind, chosen in _by_kind(made).items()}
    core = [case for case in made if case.core]
    texts[CORE] = _text("core", core)
    # Checkers that read this file support only rotations
    rotations = [case for case in core if case.kind == "rotation" and not has_gain(case)]
    texts[PLAIN] = "".join(map(plain, rotations))
    texts[SCHEMA] = (files("posenc.lab.vectors") / SCHEMA).read_text("utf-8")
    index = {
        "format": FORMAT,
        "posenc": __version__,
        "license": LICENSE,
        "cases": len(made),
        "files": {name: _digest(text) for name, text in texts.items()},
    }
    texts[INDEX] = json.dumps(index, indent=1) + "\n"
    with written_beside(out) as part:
        part.mkdir()
        for name, text in texts.items():
            (part / name).write_text(text, encoding="utf-8")
    return len(made)


def _by_kind(made: Iterable[VectorCase]) -> dict[str, list[VectorCase]]:
    kinds: dict[str, list[VectorCase]] = {}
    for case in made:
        kinds.setdefault(case.kind, []).append(case)
    return kinds


def _text(kind: str, chosen: Iterable[VectorCase]) -> str:
    """Return test vectors as the text of a JSON file, with one vector on each line."""
    head = json.dumps({"format": FORMAT, "license": LICENSE, "set": kind})[:-1]
    lines = ",\n".join(json.dumps(document(case), separators=(",", ":")) for case in chosen)
    return f'{head}, "cases": [\n{lines}\n]}}\n'


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Checked:
    """The result of `check_folder`: the number of correct test vectors, and a list of errors."""

    equal: int
    wrong: tuple[str, ...]


def check_folder(folder: Path) -> Checked:
    """Check the files of a folder against their digests, and its test vectors against posenc.

    Raises ValueError for a folder without a readable index, or of another format.
    """
    index = _index(folder)
    wrong, equal, found = [], 0, set()
    expected = {case.name: case for case in cases()}
    for name, digest in index["files"].items():
        text = (folder / name).read_text("utf-8") if (folder / name).is_file() else None
        if text is None or _digest(text) != digest:
            wrong.append(
                f"{name} is {'missing' if text is None else 'changed since it was written'}."
            )
        elif name not in (CORE, PLAIN, SCHEMA):
            for data in json.loads(text)["cases"]:
                found.add(data["name"])
                found_here = [*differences(data, expected.get(data["name"]))]
                wrong += found_here
                equal += not found_here
    missing = len(expected.keys() - found)
    wrong += [f"{missing} cases of this version are missing."] if missing else []
    return Checked(equal, tuple(wrong))


def _index(folder: Path) -> dict[str, Any]:
    try:
        index = json.loads((folder / INDEX).read_text("utf-8"))
        if index["format"] == FORMAT and isinstance(index["files"], dict):
            return index
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise ValueError(
        f"{folder} must be a folder that `posenc vectors --out` wrote, got a folder without an"
        f" {INDEX} of format {FORMAT}. Run `posenc vectors --out FOLDER` to write one."
    )


def differences(data: Mapping[str, Any], case: VectorCase | None) -> Iterator[str]:
    """Yield a sentence for each value of a test vector that differs from posenc's result.

    - `data`: a case of a file, as `document` returns it
    - `case`: the case of that name that this version of posenc computes; None: it has none
    """
    if case is None:
        yield f"{data['name']} is not a case of this version."
        return
    # Lists and tuples are equal in JSON
    if data["settings"] != json.loads(json.dumps(case.settings)):
        yield f"{case.name}: the settings differ."
    for part in ("inputs", "outputs"):
        for name, x in getattr(case, part).items():
            other = decoded(data[part][name])
            if other.shape != x.shape or not other.equal(x):
                far = (
                    f" by {float((other - x).abs().max()):.3g}"
                    if other.shape == x.shape and prod(x.shape) and x.dtype != torch.bool
                    else ""
                )
                yield f"{case.name}: {name} differs{far}."
    if case.kind == "rotation" and (error := own_error(case)) > case.tolerance:
        yield f"{case.name}: `posenc.rotate` is off by {error:.3g}."
