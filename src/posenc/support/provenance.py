"""The provenance of a result: command, versions, machine and time."""

import os
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]
# The command as typed, set by `cli.main`
command_line: ContextVar[str] = ContextVar("command_line", default="")


@dataclass(frozen=True)
class Provenance:
    """The command, versions, machine and time of a run, with which others can reproduce it."""

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
    """Return the provenance of a run that began at `begun`, a value of `time.time()`."""
    # Imported here, because most commands do not need them
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
    """Return the commit of a checkout; None if its files are not tracked by git."""
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    head = tracked and _git(folder, "rev-parse", "--short", "HEAD")
    if not head:
        return None
    return f"{head}, changed since" if _git(folder, "status", "--porcelain", ".") else head


def _git(folder: Path, *words: str) -> str:
    """Return the output of a git command, or "" if the command fails.

    The file monitor that a repository's config may name is not started.
    """
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
