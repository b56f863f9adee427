"""Positions are data: the caller passes them, no encoding counts tokens by itself."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from posenc.shapes import Points, Positions

Side = Literal["left", "right"]


def sequence(length: int, start: int = 0, device: torch.device | str | None = None) -> Positions:
    """Tokens of a text; `start` is how many a key cache already holds.

    >>> sequence(3, start=5)
    tensor([5, 6, 7])
    """
    return torch.arange(start, start + length, device=device)


def packed(lengths: Sequence[int]) -> Positions:
    """Several documents in one row, each counted from 0; `masks.documents` keeps them apart.

    >>> packed([3, 2])
    tensor([0, 1, 2, 0, 1])
    """
    return torch.cat([torch.arange(n) for n in lengths])


def documents(lengths: Sequence[int]) -> Positions:
    """The document that each token of a packed row belongs to.

    >>> documents([3, 2])
    tensor([0, 0, 0, 1, 1])
    """
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def padded(lengths: Sequence[int], side: Side = "right", tokens: int | None = None) -> Positions:
    """A batch of texts filled up to `tokens`: each counted from 0, the filling stands at 0.

    Hide the filling with `masks.padding`, which takes the same arguments.

    >>> padded([3, 2], side="left")
    tensor([[0, 1, 2],
            [0, 0, 1]])
    """
    step = 1 if checked(side) == "right" else -1
    gaps = [torch.zeros(filling(n, lengths, tokens), dtype=torch.long) for n in lengths]
    texts = [torch.arange(n) for n in lengths]
    return torch.stack([torch.cat(row[::step]) for row in zip(texts, gaps, strict=True)])


def filling(length: int, lengths: Sequence[int], tokens: int | None) -> int:
    """How many tokens of filling a text of `length` needs."""
    tokens = max(lengths) if tokens is None else tokens
    if length > tokens:
        raise ValueError(f"a text of {length} tokens does not fit into `tokens`={tokens}.")
    return tokens - length


def checked(side: Side) -> Side:
    if side not in ("left", "right"):
        raise ValueError(f"`side` is where the filling goes: 'left' or 'right', got {side!r}.")
    return side


def grid(*sizes: int) -> Points:
    """Cells of an image or volume in row-major order, shape (∏ sizes, len(sizes)).

    >>> grid(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    return torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes))


def centred(*sizes: int) -> Points:
    """Centres of the cells of a `grid`, the image stretched to −1 … 1 along each axis; float64.

    However fine the patches, a place in the image keeps its coordinates. Tokens that stand nowhere
    in the image, a class token or registers, belong at the origin, where rotations do nothing.

    >>> centred(2, 4)[:2].tolist()
    [[-0.5, -0.75], [-0.5, -0.25]]
    """
    return (2 * grid(*sizes) + 1).double() / torch.tensor(sizes).double() - 1


def folded(tokens: int, axes: int) -> Positions | Points:
    """A sequence; with more axes, laid on a square page line by line, or into a cube.

    >>> folded(5, axes=2).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    """
    if axes == 1:
        return sequence(tokens)
    side = round(tokens ** (1 / axes))
    side += side**axes < tokens
    return grid(*[side] * axes)[:tokens]


def whole(values: Tensor, name: str) -> Tensor:
    """Whole numbers, to look something up by. Raises TypeError for any others."""
    if values.is_floating_point():
        raise TypeError(f"`{name}` goes by whole numbers; `pos` is {values.dtype}: pass integers.")
    return values


def exact(pos: Tensor) -> Tensor:
    """Positions that can be computed with: integers as int64, so that no offset wraps around.

    Raises TypeError for 16-bit floats, which cannot count past 256 or 2048, and for booleans.
    """
    if pos.dtype in (torch.bfloat16, torch.float16):
        most = 256 if pos.dtype == torch.bfloat16 else 2048
        raise TypeError(f"`pos` is {pos.dtype}, which cannot count past {most}; pass integers.")
    if pos.dtype == torch.bool:
        raise TypeError("`pos` is a boolean mask; pass positions, for instance `mask.cumsum(-1)`.")
    return pos if pos.is_floating_point() else pos.long()
