"""Positional encodings for transformers, with attention layers that apply the encodings.

Public names are imported on first use, so that `posenc --help` does not wait for torch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from posenc.support import names as _names
from posenc.support.version import __version__ as __version__

if TYPE_CHECKING:
    from posenc import positions as positions
    from posenc import properties as properties
    from posenc.attention.attend import attend as attend
    from posenc.attention.attend import explain as explain
    from posenc.attention.block import Block as Block
    from posenc.attention.cache import Cache as Cache
    from posenc.attention.decoding import Decoding as Decoding
    from posenc.attention.layer import SelfAttention as SelfAttention
    from posenc.catalog import *  # noqa: F403  every encoding
    from posenc.catalog import CATALOG as CATALOG
    from posenc.catalog import create as create
    from posenc.core import masks as masks
    from posenc.core.encoding import Encoding as Encoding
    from posenc.core.encoding import Sum as Sum
    from posenc.core.frequencies import frequencies as frequencies
    from posenc.lab import study as study
    from posenc.lab.compare.comparison import compare as compare
    from posenc.models.inspection import inspect as inspect
    from posenc.models.model import Model as Model
    from posenc.properties.card import Card as Card
    from posenc.rotation.rotate import rotate as rotate
    from posenc.rotation.table import turn as turn
    from posenc.show import plot as plot
    from posenc.show.explorer.explore import explore as explore
    from posenc.show.report.guide import guide as guide

# Layers accept the name of an encoding, which they create from the catalogue
_names.CATALOG = "posenc.catalog"

# Public names and their modules, except for encodings, which are in `posenc.catalog`
_HOME = {
    "Block": "attention.block",
    "CATALOG": "catalog",
    "Cache": "attention.cache",
    "Card": "properties.card",
    "Decoding": "attention.decoding",
    "Encoding": "core.encoding",
    "Model": "models.model",
    "SelfAttention": "attention.layer",
    "Sum": "core.encoding",
    "attend": "attention.attend",
    "compare": "lab.compare.comparison",
    "create": "catalog",
    "explain": "attention.attend",
    "explore": "show.explorer.explore",
    "frequencies": "core.frequencies",
    "guide": "show.report.guide",
    "inspect": "models.inspection",
    "rotate": "rotation.rotate",
    "turn": "rotation.table",
}
_MODULES = {
    "masks": "core.masks",
    "plot": "show.plot",
    "positions": "positions",
    "properties": "properties",
    "study": "lab.study",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        public = {*_HOME, *_MODULES, *_encodings()}
        # `import *` must not import `plot`, which needs the extra `report`
        return sorted(public - {"plot"})
    if name in _MODULES:
        value: Any = import_module(f"posenc.{_MODULES[name]}")
    elif name in _HOME:
        value = getattr(import_module(f"posenc.{_HOME[name]}"), name)
    else:
        encodings = {} if name.startswith("__") or find_spec(f"posenc.{name}") else _encodings()
        if name not in encodings:
            raise AttributeError(f"module 'posenc' has no attribute {name!r}")
        value = encodings[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), "plot", "__version__"])


def _encodings() -> dict[str, Any]:
    return import_module("posenc.catalog").ENCODINGS
