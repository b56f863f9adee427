"""Pack the data of the explorer's page: equal long lists are written only once.

    {"lists": [[1.0, …], …], "page": {"theta": {"$list": 0}, …}}

Encodings share sliders and models share rotations, so this halves the page. A list may refer to
lists before it. `readData` in `page/data.js` is the same as `unpacked`.
"""

import json
from collections.abc import Mapping
from typing import Any

LEAST = 200  # characters of a list that is moved
REFERENCE = "$list"


def packed(page: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each long list of a page by a reference; equal lists are stored once."""
    places: dict[str, int] = {}
    lists: list[list[Any]] = []

    def pack(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: pack(inner) for name, inner in value.items()}
        if not isinstance(value, list | tuple):
            return value
        items = [pack(item) for item in value]
        text = to_json(items)
        if len(text) < LEAST:
            return items
        if text not in places:
            places[text] = len(lists)
            lists.append(items)
        return {REFERENCE: places[text]}

    return {"page": pack(page), "lists": lists}


def unpacked(data: Mapping[str, Any]) -> dict[str, Any]:
    """Restore a page that `packed` has packed."""
    lists: list[Any] = []

    def unpack(value: Any) -> Any:
        if isinstance(value, list):
            return [unpack(item) for item in value]
        if not isinstance(value, dict):
            return value
        if REFERENCE in value:
            return lists[value[REFERENCE]]
        return {name: unpack(inner) for name, inner in value.items()}

    for items in data["lists"]:
        lists.append(unpack(items))
    return unpack(data["page"])


def to_json(data: Any) -> str:
    """Write compact JSON. Raises ValueError for numbers that JSON lacks."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
