"""Find a model's files on this machine, or fetch them by an id of the Hugging Face hub.

Only an id such as "Qwen/Qwen3-8B", where no such folder exists, makes a connection;
`HF_HUB_OFFLINE` forbids it, and then the cache is used. No code is fetched, and no pickle.
"""

import re
from pathlib import Path

from posenc.models.files.errors import ModelError, printable

ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


def local(name: str, weights: bool = False) -> Path:
    """The path of the config of `name`, or with `weights` of a folder with those too.

    Raises ModelError where there is no such path, or the hub does not give it.
    """
    path = Path(name)
    if path.exists():
        return path
    if not ID.fullmatch(name):
        raise ModelError(name, "", "does not exist")
    return _fetched(name, weights)


def _fetched(name: str, weights: bool) -> Path:
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise ModelError(
            name, "", "is no path here, and to ask the hub for it takes the extra `models`"
        ) from None
    try:
        if weights:
            return Path(snapshot_download(name, allow_patterns=["config.json", *WEIGHTS]))
        return Path(hf_hub_download(name, "config.json"))
    except LocalEntryNotFoundError:
        why = "neither in the cache nor could the hub be asked (HF_HUB_OFFLINE, or no connection)"
    except HfHubHTTPError as error:
        why = f"the hub does not give it: {printable(str(error).splitlines()[0])}"
    raise ModelError(name, "", f"is no path here, and {why}")
