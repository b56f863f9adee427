"""The optional extras of posenc: their packages, installed versions, and install commands."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

# The folder that holds `src`, unless posenc was installed from a wheel
CHECKOUT = Path(__file__).parents[3]


def how_to_install(extra: str) -> str:
    """Return the pip command that installs an extra of posenc.

    The command has a path instead of `posenc`, because that name is not registered on the package
    index, where anybody could register other code under it.
    """
    if (CHECKOUT / "pyproject.toml").is_file():
        return f'python -m pip install -e ".[{extra}]" in {CHECKOUT}'
    return f'python -m pip install "PATH[{extra}]" with the path of posenc\'s wheel or checkout'


def requirements() -> dict[str, list[str]]:
    """Return the packages that each extra requires.

    The key "" has the packages that posenc itself requires.
    """
    if (CHECKOUT / "pyproject.toml").is_file():
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
        return _without_own({"": project["dependencies"], **project["optional-dependencies"]})
    required: dict[str, list[str]] = {"": []}
    for line in metadata.requires("posenc") or ():
        package, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"](.+?)['\"]", marker)
        required.setdefault(extra[1] if extra else "", []).append(package.strip())
    return _without_own(required)


def name(package: str) -> str:
    """Return the name of a package in a requirement such as "rich>=13"."""
    return re.split(r"[<>=!~ \[]", package)[0]


def version(package: str) -> str | None:
    """Return the installed version of a required package; None if it is missing or out of range.

    >>> version("torch>=1"), version("torch<1")
    ('...', None)
    """
    try:
        found = metadata.version(name(package))
    except metadata.PackageNotFoundError:
        return None
    bounds = re.findall(r"(>=|<|==)([\d.]+)", package)
    return found if all(_fits(found, *bound) for bound in bounds) else None


def _without_own(required: dict[str, list[str]]) -> dict[str, list[str]]:
    """Replace each requirement on an extra of posenc by the packages of the extra."""

    def packages(extra: str) -> list[str]:
        found: list[str] = []
        for package in required[extra]:
            own = re.match(r"posenc\[(.+?)\]", package)
            found += [p for name in own[1].split(",") for p in packages(name)] if own else [package]
        return found

    return {extra: [*dict.fromkeys(packages(extra))] for extra in required}


def _fits(found: str, how: str, bound: str) -> bool:
    there, wanted = ([int(part) for part in re.findall(r"\d+", x)[:3]] for x in (found, bound))
    there, wanted = ([*numbers, 0, 0][:3] for numbers in (there, wanted))
    return {">=": there >= wanted, "<": there < wanted, "==": there == wanted}[how]
