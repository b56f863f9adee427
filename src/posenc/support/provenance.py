"""The provenance of a result: what was typed, with which versions, on what machine and when."""

import os
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]
# As it was typed; `cli.main` sets it
command_line: ContextVar[str] = ContextVar("command_line", default="")


@dataclass(frozen=True)
class Provenance:
    """The command, versions and machine that it takes to make a result again, and to doubt it."""

    command: str  # the command as typed; empty if posenc was called from Python
    versions: dict[str, str]
    commit: str | None  # commit of posenc in a checkout: "7a3af10, changed since"
    machine: str
    device: str
    threads: int
    seed: int | None
    started: str  # local time, ISO 8601
    seconds: float


def since(begun: float, seed: int | None = None, device: str = "cpu") -> Provenance:
    """The provenance of a run that began at `begun`, a `time.time()`, and has ended now."""
    # Imported here, as most commands never ask for the machine.
    import platform
    from datetime import datetime

    from posenc.support.version import __version__

    known = {name: sys.modules.get(name) for name in ("torch", "transformers")}
    loaded = {name: str(module.__version__) for name, module in known.items() if module is not None}
    return Provenance(
        command=command_line.get(),
        versions={"posenc": __version__, "python": platform.python_version(), **loaded},
        commit=commit(),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        device=device,
        threads=sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 1,
        seed=seed,
        started=datetime.fromtimestamp(begun).astimezone().isoformat(" ", "minutes"),
        seconds=time.time() - begun,
    )


def commit(folder: Path = HERE) -> str | None:
    """The commit that a checkout stands at; None if its files are not under git's care."""
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    head = tracked and _git(folder, "rev-parse", "--short", "HEAD")
    if not head:
        return None
    return f"{head}, changed since" if _git(folder, "status", "--porcelain", ".") else head


def _git(folder: Path, *words: str) -> str:
    """Ask git, and run no program that the repository's config names; empty where there is none."""
    import subprocess

    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
