"""The extras of posenc: what each brings, what of it is missing, and how it is installed."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

# The folder that holds `src`, unless posenc was installed from a wheel
CHECKOUT = Path(__file__).parents[3]


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra.

    It names a path and never `posenc` alone: that name is not registered on the package index, and
    who registers it would be installed by our own message.
    """
    if (CHECKOUT / "pyproject.toml").is_file():
        return f'python -m pip install -e ".[{extra}]" in {CHECKOUT}'
    return f'python -m pip install "PATH[{extra}]" with the path of posenc\'s wheel or checkout'


def requirements() -> dict[str, list[str]]:
    """Map each extra to the packages that it asks for, such as "rich>=13"; "" is posenc alone."""
    if (CHECKOUT / "pyproject.toml").is_file():
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
        return _without_own({"": project["dependencies"], **project["optional-dependencies"]})
    asked: dict[str, list[str]] = {"": []}
    for line in metadata.requires("posenc") or ():
        package, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"](.+?)['\"]", marker)
        asked.setdefault(extra[1] if extra else "", []).append(package.strip())
    return _without_own(asked)


def name(package: str) -> str:
    """The name of a package, of "rich>=13"."""
    return re.split(r"[<>=!~ \[]", package)[0]


def version(package: str) -> str | None:
    """The installed version of what "rich>=13" names; None where there is none that serves.

    >>> version("torch>=1"), version("torch<1")
    ('...', None)
    """
    try:
        found = metadata.version(name(package))
    except metadata.PackageNotFoundError:
        return None
    bounds = re.findall(r"(>=|<|==)([\d.]+)", package)
    return found if all(_serves(found, *bound) for bound in bounds) else None


def _without_own(asked: dict[str, list[str]]) -> dict[str, list[str]]:
    """Put the packages of other extras in the place of these, which are asked for as our own."""

    def packages(extra: str) -> list[str]:
        found: list[str] = []
        for package in asked[extra]:
            own = re.match(r"posenc\[(.+?)\]", package)
            found += [p for name in own[1].split(",") for p in packages(name)] if own else [package]
        return found

    return {extra: [*dict.fromkeys(packages(extra))] for extra in asked}


def _serves(found: str, how: str, bound: str) -> bool:
    there, wanted = ([int(part) for part in re.findall(r"\d+", x)[:3]] for x in (found, bound))
    there, wanted = ([*numbers, 0, 0][:3] for numbers in (there, wanted))
    return {">=": there >= wanted, "<": there < wanted, "==": there == wanted}[how]
