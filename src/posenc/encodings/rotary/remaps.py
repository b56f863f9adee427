"""Maps that replace the offset of a query and a key before the rotation, for `Remapped`.

Each map divides pairs of positions into regions. Within a region, the offset is a difference of a
number for the query and a number for the key, so that both can be rotated separately.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.support.arguments import brief, count

Remap = tuple[str, *tuple[int, ...]]  # the name of a map, and its arguments
Map = Callable[[Tensor], Tensor]


class Regions(NamedTuple):
    """Ranges of offsets, each with a rule for the new positions of queries and keys.

    `of` returns the index of the range for a query and a key position.
    """

    of: Callable[[Tensor, Tensor], Tensor]  # positions, which broadcast -> index of the region
    places: tuple[tuple[Map, Map], ...]  # new positions of queries and of keys, per region


def rerope(window: int) -> Remap:
    """Return the map that limits offsets to `window`.

    - `window`: largest offset, in tokens; keys farther away get this offset

    >>> rerope(512)
    ('rerope', 512)
    """
    return "rerope", count(window, "window")


def self_extend(group: int, window: int) -> Remap:
    """Return the map that rounds offsets of `window` or more to groups of positions.

    - `group`: positions in a group
    - `window`: tokens; nearer keys keep their offsets

    >>> self_extend(8, window=1024)
    ('self_extend', 8, 1024)
    """
    return "self_extend", count(group, "group"), count(window, "window")


def dual_chunk(chunk: int, local: int) -> Remap:
    """Return the map of dual chunk attention, with chunks of `chunk` − `local` tokens.

    - `chunk`: largest offset, in tokens
    - `local`: tokens at the end of the previous chunk with exact offsets, fewer than `chunk`

    >>> dual_chunk(3072, local=512)
    ('dual_chunk', 3072, 512)
    """
    local = count(local, "local")
    return "dual_chunk", count(chunk, "chunk", local + 1), local


def checked(remap: Remap) -> Remap:
    kinds = "rerope", "self_extend", "dual_chunk"
    if not isinstance(remap, tuple) or remap[:1] not in [(kind,) for kind in kinds]:
        raise TypeError(
            f"`remap` must be a map of offsets, got {brief(remap)}. Pass `rerope(window)`,"
            " `self_extend(group, window)` or `dual_chunk(chunk, local)`."
        )
    return remap


def regions(remap: Remap) -> Regions:
    """Return the ranges of offsets of a map, each with its rule for new positions."""
    kind, *sizes = remap
    if kind == "dual_chunk":
        return _chunks(*sizes)
    w = sizes[-1]
    far: tuple[Map, Map] = (lambda p: torch.full_like(p, w)), torch.zeros_like
    if kind == "self_extend":
        g = sizes[0]
        far = (lambda p: p // g + w - w // g), (lambda p: p // g)
    return Regions(lambda i, j: i - j >= w, ((_same, _same), far))


def _chunks(chunk: int, local: int) -> Regions:
    c = chunk - local
    own: Map = lambda p: p % c  # noqa: E731
    queries: tuple[Map, ...] = (
        own,
        lambda p: (p % c + c).clamp(max=chunk),
        lambda p: torch.full_like(p, min(2 * c - 1, chunk)),
    )
    places = tuple([(query, own) for query in queries])
    return Regions(lambda i, j: (i // c - j // c).clamp(0, 2), places)


def _same(pos: Tensor) -> Tensor:
    return pos
