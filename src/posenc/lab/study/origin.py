"""The origin of outcomes: versions, the code that they come of, its commit, and the processors.

Another version or other code is a deviation from what was registered. A commit may change pages
alone, and a processor changes last digits, so that a seed elsewhere is a new seed: all of them are
listed, and none is refused.
"""

import platform
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import torch

from posenc.lab.study import own_code, regular, store
from posenc.lab.study.checkpoints import differences
from posenc.lab.study.plan import Plan, PlanError
from posenc.support import provenance
from posenc.support.version import __version__

PILOT = store.PILOT
LISTED = ("commit", "processor", PILOT)
ABOVE = ("show", "commands")  # folders of the package that no outcome comes of
PACKAGE = provenance.HERE


def of(plan: Plan, also: Mapping[str, str]) -> dict[str, str]:
    """What the cells of a plan depend on here, by name; `also` is what the caller knows of it."""
    files = {name: Path(name) for name in (plan.texts, plan.images) if name}
    return {
        "posenc": __version__,
        "torch": torch.__version__,
        "code": code(),
        "commit": provenance.commit() or "none known",
        "processor": processor(),
        **also,
        **own_code.digests(plan.code),
        **{name: regular.digest(path) for name, path in files.items() if path.is_file()},
    }


def code() -> str:
    """The SHA-256 of the package's own files, but for those that only show outcomes."""
    content = sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] not in ABOVE:
            content.update(f"{inside.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return content.hexdigest()


def processor() -> str:
    """The name of the processor, and which of its instructions torch uses."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = next(iter(named), "") or platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def device(name: str) -> dict[str, str]:
    """Return the device that cells are trained on by torch's name and its own; {} for the CPU.

    Raises PlanError for a device that torch does not have.
    """
    if name == "cpu":
        return {}
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
        own = torch.cuda.get_device_name(found) if found.type == "cuda" else ""
    except (RuntimeError, AssertionError) as error:
        raise PlanError(
            f"device: {name!r:.60} cannot be used here: {' '.join(str(error).split()):.200}"
        ) from None
    return {"device": f"{found.type}, {own}".removesuffix(", ")}


def changed(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Name what departs from what was registered: "`torch` is '2.12' there and '2.13' here"."""
    before, now = ({n: x for n, x in one.items() if n not in LISTED} for one in (there, here))
    return differences(before, now) if there else ""


def joined(there: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """What holds here, and the commits and processors of both."""
    both = {**there, **here}
    for name in LISTED:
        parts = [part for one in (there, here) for part in one.get(name, "").split("; ") if part]
        if parts:
            both[name] = "; ".join(dict.fromkeys(parts))
    return both
