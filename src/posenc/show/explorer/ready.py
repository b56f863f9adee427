"""Cache the explorer's page of the catalogue, so that it can be read without torch.

`data.py` makes the page and keeps it: in the user's cache, or in the wheel. It is made again when
any file of the package has changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posenc.show.explorer import packing
from posenc.support import made, provenance

KEY = "page", "catalog", ()  # the name of the page in the cache; it depends on all modules
BEGINNING = "rope", "sinusoidal", "alibi"  # the encodings shown first if none are named


def page(first: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the cached page of all encodings and published models, or None.

    - `first`: slugs of the encodings that are shown first
    """
    found = made.read(*KEY, given=made.package_digest())
    return None if found is None else begun(packing.unpacked(found), first)


def keep(page: Mapping[str, Any]) -> None:
    """Keep a page of the catalogue for later calls of any process."""
    made.keep(*KEY, packing.packed(page), given=made.package_digest())


def file_name() -> str:
    """Return the name of the page's file in the cache."""
    return made.file_name(*KEY, given=made.package_digest())


def begun(page: Mapping[str, Any], first: Sequence[str]) -> dict[str, Any]:
    """Return the page, set to open with the encodings `first` or, without any, with the story."""
    return {
        **page,
        "command": provenance.command_line.get(),
        "first": [*(first or BEGINNING)],
        "begin": "encoding" if first else "story",
    }
