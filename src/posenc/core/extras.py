"""Say how an extra of posenc is installed, wherever one is missing."""

from pathlib import Path

CHECKOUT = Path(__file__).parents[3]  # where `src` lies, unless it was installed from a wheel


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra.

    It names a path and never `posenc` alone: that name is not registered on the package index, and
    who registers it would be installed by our own message.
    """
    if (CHECKOUT / "pyproject.toml").is_file():
        return f'python -m pip install -e ".[{extra}]" in {CHECKOUT}'
    return f'python -m pip install "PATH[{extra}]" with the path of posenc\'s wheel or checkout'
