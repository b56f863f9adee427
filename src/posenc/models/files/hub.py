"""Find a model's files on this machine, or fetch them by an id of the Hugging Face hub.

Only an id such as "Qwen/Qwen3-8B", where no such folder exists, makes a connection;
`HF_HUB_OFFLINE` forbids it, and then the cache is used. No code is fetched, and no pickle.
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
FILES = {".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth"}  # ends of paths
PATIENCE = 3.0  # seconds
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


def local(name: str, weights: bool = False) -> Path:
    """Find the config of `name`, or with `weights` a folder with those too; return its path.

    Raises ModelError where there is no such path, or the hub does not give it.
    """
    path = Path(name)
    if path.exists():
        return path
    if not ID.fullmatch(name) or path.suffix in FILES:
        raise ModelError(name, "", f"does not exist{_nearest(path)}")
    if near := _nearest(path):
        raise ModelError(name, "", f"is no path here{near}")
    return _fetched(name, weights)


def is_model(name: str | Path) -> bool:
    """Test whether a name means a model, not an encoding: a folder, a file, or an id of the hub.

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
    """Write a similar path here, as the end of a sentence; "" where there is none."""
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
            "is no path here, and to ask the hub for it takes the extra `models`:"
            f" {how_to_install('models')}",
        ) from None
    forbidden = constants.HF_HUB_OFFLINE
    # Offline the cache answers at once, and nothing is retried
    constants.HF_HUB_OFFLINE = forbidden or not _reachable(constants.ENDPOINT)
    try:
        if weights:
            return Path(snapshot_download(name, allow_patterns=["config.json", *WEIGHTS]))
        return Path(hf_hub_download(name, "config.json"))
    except LocalEntryNotFoundError:
        why = "neither in the cache nor could the hub be asked (HF_HUB_OFFLINE, or no connection)"
    except HfHubHTTPError as error:
        why = f"the hub does not give it: {printable(str(error).splitlines()[0])}"
    finally:
        constants.HF_HUB_OFFLINE = forbidden
    raise ModelError(name, "", f"is no path here, and {why}")


def _reachable(endpoint: str) -> bool:
    """Test within seconds whether the hub can be asked; through a proxy it may be."""
    where = urlsplit(endpoint)
    if getproxies():
        return True
    try:
        socket.create_connection((where.hostname, where.port or 443), PATIENCE).close()
    except OSError:
        return False
    return True
