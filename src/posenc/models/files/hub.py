"""Find a model's files on this machine, or download them from the Hugging Face hub.

A connection is made only for an id such as "Qwen/Qwen3-8B" that is not a local path. With
`HF_HUB_OFFLINE` set, only the cache is used. Code and pickles are never downloaded.
"""

import re
import socket
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from posenc.models.files.errors import ModelError
from posenc.support import names
from posenc.support.extras import how_to_install
from posenc.support.text import printable

ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
FILES = {".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth"}  # suffixes of paths, never of ids
PATIENCE = 3.0  # seconds
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


def local(name: str, weights: bool = False) -> Path:
    """Return the local path of a model's config, or of a folder with config and weights.

    Raises ModelError if the path does not exist and the hub does not provide it.
    """
    path = Path(name)
    if path.exists():
        return path
    if not ID.fullmatch(name) or path.suffix in FILES:
        raise ModelError(name, "", f"does not exist{_nearest(path)}")
    if near := _nearest(path):
        raise ModelError(name, "", f"is not a local path{near}")
    return _fetched(name, weights)


def is_model(name: str | Path) -> bool:
    """Test whether a name means a model (a folder, a file, or a hub id) and not an encoding.

    >>> is_model("rope"), is_model("model/config.json"), is_model("mine.py:Mine")
    (False, True, False)
    """
    if isinstance(name, Path):
        return True
    if names.is_own(name):
        return False
    path = Path(name)
    known = names.normalise(name) in map(names.normalise, names.cards())
    return "/" in name or path.suffix in FILES or (path.exists() and not known)


def _nearest(path: Path) -> str:
    """Return a hint such as ": did you mean models/a?"; "" if no existing path is similar."""
    here = Path(path.anchor)
    for part in path.relative_to(here).parts if path.is_absolute() else path.parts:
        if not (here / part).exists():
            try:
                there = [entry.name for entry in here.iterdir()]
            except OSError:
                return ""
            near = get_close_matches(part, there, n=1, cutoff=0.75)
            if not near:
                return ""
            part = near[0]
        here /= part
    return f": did you mean {printable(str(here))}?"


def _fetched(name: str, weights: bool) -> Path:
    try:
        from huggingface_hub import constants, hf_hub_download, snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise ModelError(
            name,
            "",
            "is not a local path, and the hub can be used only with the extra `models`."
            f" Install it: {how_to_install('models')}",
        ) from None
    forbidden = constants.HF_HUB_OFFLINE
    # Without a connection, use the cache at once instead of waiting for retries
    constants.HF_HUB_OFFLINE = forbidden or not _reachable(constants.ENDPOINT)
    try:
        if weights:
            return Path(snapshot_download(name, allow_patterns=["config.json", *WEIGHTS]))
        return Path(hf_hub_download(name, "config.json"))
    except LocalEntryNotFoundError:
        why = "nor in the cache, and the hub is unreachable (HF_HUB_OFFLINE, or no connection)"
    except HfHubHTTPError as error:
        why = f"and the hub does not provide it: {printable(str(error).splitlines()[0])}"
    finally:
        constants.HF_HUB_OFFLINE = forbidden
    raise ModelError(name, "", f"is not a local path, {why}")


def _reachable(endpoint: str) -> bool:
    """Test within 3 seconds whether the hub can be reached; with a proxy, assume that it can."""
    where = urlsplit(endpoint)
    if getproxies():
        return True
    try:
        socket.create_connection((where.hostname, where.port or 443), PATIENCE).close()
    except OSError:
        return False
    return True
