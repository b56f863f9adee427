"""The environment on which outcomes depend: versions, code, commit, processor and device.

Other versions or other code are a deviation from the registered study. A changed commit or
processor is listed and never rejected: a commit may change documentation only, and another
processor changes last digits, as another seed would.
"""

import platform
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import torch

from posenc.lab.study import safe_files, store, user_code_gate
from posenc.lab.study.checkpoints import differences
from posenc.lab.study.plan import Plan, PlanError
from posenc.support import provenance
from posenc.support.version import __version__

PILOT = store.PILOT
LISTED = ("commit", "processor", PILOT)
ABOVE = ("show", "commands")  # folders of the package that do not affect outcomes
PACKAGE = provenance.HERE


def describe(plan: Plan, also: Mapping[str, str]) -> dict[str, str]:
    """Return the versions, code and hardware that outcomes depend on, as {"torch": "2.13.0", …}.

    - `plan`: plan, whose own code and files are included by their SHA-256
    - `also`: further entries, such as the device
    """
    files = {name: Path(name) for name in (plan.texts, plan.images) if name}
    return {
        "posenc": __version__,
        "torch": torch.__version__,
        "code": code(),
        "commit": provenance.commit() or "none known",
        "processor": processor(),
        **also,
        **user_code_gate.digests(plan.code),
        **{name: safe_files.digest(path) for name, path in files.items() if path.is_file()},
    }


def code() -> str:
    """Return a SHA-256 of the package's Python files, except code that only displays results."""
    content = sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] not in ABOVE:
            content.update(f"{inside.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return content.hexdigest()


def processor() -> str:
    """Return the name of the processor and the instruction set that torch uses on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = next(iter(named), "") or platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def device(name: str) -> dict[str, str]:
    """Return the training device's name as {"device": "cuda, NVIDIA …"}, or {} for the CPU.

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
            f"`--device` must be a device that torch can use here, got {name!r:.60}:"
            f' {" ".join(str(error).split()):.200}. Pass "cpu", for example.'
        ) from None
    return {"device": f"{found.type}, {own}".removesuffix(", ")}


def changes(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Describe how the environment `here` differs from the one that the study began with.

    Returns "" if they are equal.

    An example is "`torch` is '2.12' there and '2.13' here". Commits and processors may differ.
    """
    before, now = ({n: x for n, x in one.items() if n not in LISTED} for one in (there, here))
    return differences(before, now) if there else ""


def merged(there: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """Combine two environments, with the commits and processors of both.

    Other entries of `here` replace those of `there`.
    """
    both = {**there, **here}
    for name in LISTED:
        parts = [part for one in (there, here) for part in one.get(name, "").split("; ") if part]
        if parts:
            both[name] = "; ".join(dict.fromkeys(parts))
    return both
