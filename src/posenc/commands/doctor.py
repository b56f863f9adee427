"""`posenc doctor`: versions, missing packages, and the attention implementations in use."""

import os
import platform
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from posenc.commands.app import HERE, command
from posenc.commands.options import AsJson, print_json
from posenc.compat import kernels, wait_policy
from posenc.support import extras, provenance
from posenc.support.version import __version__

TOKENS, WIDTH, HEADS = 4096, 64, 8
SHOWN = "rope", "alibi", "shaw", "cope"  # encodings with different paths of attention


@command(
    HERE,
    place=0,
    examples=(
        ("posenc doctor", "versions, extras, GPU and implementations of attention"),
        ("posenc doctor --json", "as JSON, for bug reports"),
    ),
)
def doctor(*, as_json: AsJson = False) -> None:
    """Print versions, missing packages with install commands, and implementations of attention.

    Parameters
    ----------
    as_json
        Print one JSON document instead of text.
    """
    found = installation()
    if as_json:
        return print_json(found)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, line in lines(found):
        table.add_row(Text(name), Text(line))
    Console().print(table)


def installation() -> dict[str, Any]:
    """Return the facts about this installation that `posenc doctor --json` prints."""
    where = {
        "posenc": {
            "version": __version__,
            "commit": provenance.commit(),
            "folder": str(provenance.HERE),
        },
        "python": {
            "version": platform.python_version(),
            "program": sys.executable,
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        },
    }
    return where | _torch() | {"extras": {name: _extra(name) for name in extras.requirements()}}


def _torch() -> dict[str, Any]:
    """Return the version of torch, the GPUs, and the kernels of attention and rotation."""
    try:
        import torch
    except (ImportError, OSError) as error:
        why = f"{type(error).__name__}: {error}"
        return {"torch": {"error": why}, "gpus": [], "numba": None, "attention": {}, "rotation": {}}
    version = {
        "version": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "waiting": os.environ.get(wait_policy.POLICY),
        "cuda": torch.version.cuda,
    }
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    device = "cuda" if gpus and torch.cuda.is_available() else "cpu"
    found = {"torch": version, "gpus": gpus, "numba": _numba()}
    for what, paths in (("attention", _attention), ("rotation", _rotation)):
        try:
            found[what] = paths(device)
        except RuntimeError as error:
            # For example a GPU that this build of torch does not support
            found[what] = {"error": str(error).partition("\n")[0]}
    return found


def _numba() -> dict[str, Any] | None:
    """Return Numba's version, and the error if its kernels fail; None if it is not installed."""
    if (version := extras.version("numba")) is None:
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        works = kernels.load("posenc.rotation.numba_kernel") is not None
    error = None if works else " ".join(str(warning.message) for warning in caught)
    return {"version": version, "error": error}


def _attention(device: str) -> dict[str, str]:
    """Return, for a few encodings, the attention implementation used with a causal mask."""
    import torch

    from posenc.attention.attend import explain
    from posenc.catalog import create
    from posenc.core import masks

    q = torch.empty(1, HEADS, TOKENS, WIDTH, device=device)
    pos = torch.arange(TOKENS, device=device)
    return {
        name: explain(q, q, q, create(name, WIDTH, HEADS).to(device), pos, mask=masks.causal()).path
        for name in SHOWN
    }


def _rotation(device: str) -> dict[str, str]:
    """Return for each RoPE layout (half, interleaved) the kernel that rotates queries and keys."""
    import torch

    from posenc.core.frequencies import LAYOUTS, frequencies
    from posenc.rotation import kernels, table

    x = torch.empty(1, HEADS, TOKENS, WIDTH, device=device)
    by = table.turn(torch.arange(TOKENS, device=device), frequencies(WIDTH))
    return {layout: kernels.kernel_for(x, by, layout) for layout in LAYOUTS}  # type: ignore[arg-type]


def _extra(name: str) -> dict[str, Any]:
    """Return the installed and missing packages of an extra, and the command that installs it."""
    versions = {package: extras.version(package) for package in extras.requirements()[name]}
    missing = [package for package, version in versions.items() if version is None]
    return {
        "installed": {extras.name(package): v for package, v in versions.items() if v},
        "missing": missing,
        "install": extras.how_to_install(name) if missing and name else None,
    }


def lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the printed report as pairs: a name and its description."""
    posenc, python, torch, numba = (found[name] for name in ("posenc", "python", "torch", "numba"))
    commit = f", commit {posenc['commit']}" if posenc["commit"] else ""
    yield "posenc", f"{posenc['version']}{commit}, in {posenc['folder']}"
    yield "python", f"{python['version']}, {python['program']}; {python['machine']}"
    if "error" in torch:
        yield "torch", f"✗ cannot be imported: {torch['error']}"
    else:
        build = f"CUDA {torch['cuda']}" if torch["cuda"] else "a build without CUDA"
        yield "torch", f"{torch['version']}, {build}; {_threads(torch)}"
        yield "GPU", ", ".join(found["gpus"]) or "none found by torch"
        yield "Numba", _numba_status(numba)
        yield "attention", " · ".join(f"{n}: {path}" for n, path in found["attention"].items())
        yield "rotation", " · ".join(f"{n}: {path}" for n, path in found["rotation"].items())
    for name, extra in found["extras"].items():
        there = "✓ " + ", ".join(" ".join(item) for item in extra["installed"].items())
        if extra["missing"]:
            how = f": {extra['install']}" if extra["install"] else ""
            there = f"✗ without {', '.join(extra['missing'])}{how}"
        yield f"[{name}]" if name else "needs", there


def _threads(torch: dict[str, Any]) -> str:
    count = "1 thread" if torch["threads"] == 1 else f"{torch['threads']} threads"
    return f"{count}, {wait_policy.POLICY}={torch['waiting'] or '(not set)'}"


def _numba_status(numba: dict[str, Any] | None) -> str:
    if numba is None:
        return f"not installed, some paths are slower: {extras.how_to_install('fast')}"
    return f"{numba['version']}, kernels work" if not numba["error"] else f"✗ {numba['error']}"
