"""The facts about tokens that hooks are handed as `at`: positions, or a `Prepared`.

The default `prepare` returns positions, a tensor. An encoding whose hooks need more (cosines, rows,
gates) returns a `Prepared`: a named tuple of tensors, each with an axis of tokens. It can be moved,
cut, and continued by what was prepared of the tokens that follow, as a cache of keys needs.

    class Gates(Prepared, NamedTuple("Gates", [("sums", Tensor)])):
        shape = "head token"
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from posenc.compat.private_torch import make_pytree
from posenc.support.arguments import brief

P = TypeVar("P", bound="Prepared")


def token_axis(shape: str) -> tuple[int, int]:
    """The axis of tokens, counted from the last, and the number of axes; 0: it has no such axis.

    >>> token_axis("head token channel"), token_axis("row column")
    ((-2, 3), (0, 2))
    """
    names = shape.split()
    return names.index("token") - len(names) if "token" in names else 0, len(names)


class Prepared:
    """The first base of a named tuple, which adds its tensors as fields."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]]
    # The axes of the tensors, after one of texts that they may have; of each field, where these
    # differ. A field may also be a `Prepared` itself, or say the same of all tokens ("row column").
    shape: ClassVar[str | tuple[str, ...]] = "head token channel"
    # For each field the axis of tokens, and the number of axes
    places: ClassVar[tuple[tuple[int, int], ...]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        shapes = (cls.shape,) * len(cls._fields) if isinstance(cls.shape, str) else cls.shape
        cls.places = tuple([token_axis(shape) for shape in shapes])
        make_pytree(cls)

    @property
    def tokens(self) -> int:
        return tokens(self[0], self.places[0])  # type: ignore[index]

    @property
    def batch(self) -> int:
        """The number of texts; 1: the same for all."""
        return batch(self[0], self.places[0])  # type: ignore[index]

    def to(self: P, device: torch.device | str) -> P:
        return self.with_fields(field.to(device) for field in self._each())

    def slice_tokens(self: P, some: slice) -> P:
        """Cut out some of the tokens."""
        fields = zip(self._each(), self.places, strict=True)
        return self.with_fields([slice_tokens(field, some, place) for field, place in fields])

    def append(self: P, more: Any) -> P:
        """Append the tokens that follow, as if all had been prepared at once.

        An encoding whose `on_hidden` sums over the tokens overrides it, to go on from the last.
        """
        if not (isinstance(more, type(self)) or isinstance(self, type(more))):
            raise TypeError(
                f"{brief(self)} is continued by what the same encoding prepared of the tokens that"
                f" follow, got {brief(more)}."
            )
        return self.with_fields(map(appended, self._each(), more._each(), self.places))

    def precomputed(self: P, k: Tensor) -> P:
        """Add what each later query would else compute of all keys again; a cache asks for it.

        `k` are the keys of these tokens, as they enter the dot product.
        """
        return self

    def with_fields(self: P, fields: Iterable[Any]) -> P:
        """Build one of the same class from other tensors."""
        return type(self)(*fields)

    def _each(self) -> Iterable[Any]:
        return iter(self)  # type: ignore[call-overload]


class Parts(Prepared, NamedTuple("Parts", [("parts", tuple[Any, ...])])):
    """The positions or the `Prepared` of each part of a `Sum`."""

    shape = "token"

    @property
    def tokens(self) -> int:
        """The tokens of the first part; -1: there is no part."""
        return next((tokens(part, self.places[0]) for part in self.parts), -1)

    @property
    def batch(self) -> int:
        return max((batch(part, self.places[0]) for part in self.parts), default=1)

    def to(self, device: torch.device | str) -> "Parts":
        return type(self)(tuple([part.to(device) for part in self.parts]))

    def slice_tokens(self, some: slice) -> "Parts":
        return type(self)(tuple([slice_tokens(part, some, self.places[0]) for part in self.parts]))

    def append(self, more: Any) -> "Parts":
        both = zip(self.parts, more.parts, strict=True)
        return type(self)(tuple([appended(*each, self.places[0]) for each in both]))


class PartsAtPoints(Parts):
    """The `Parts` of a `Sum` whose positions are points."""

    shape = "token axis"


def tokens(at: Any, where: tuple[int, int]) -> int:
    return at.tokens if isinstance(at, Prepared) else at.shape[where[0]]


def batch(at: Any, where: tuple[int, int]) -> int:
    if isinstance(at, Prepared):
        return at.batch
    return at.shape[0] if at.ndim > where[1] else 1


def slice_tokens(at: Any, some: slice, where: tuple[int, int]) -> Any:
    """Take some of the tokens, of positions or of a `Prepared`."""
    if isinstance(at, Prepared):
        return at.slice_tokens(some)
    return at if not where[0] else at[(..., some, *[slice(None)] * (-1 - where[0]))]


def select_batch(at: Any, texts: Tensor, where: tuple[int, int]) -> Any:
    """Take these texts of the batch, of positions or of a `Prepared`; what all share stays."""
    if isinstance(at, Prepared):
        fields = zip(at._each(), at.places, strict=True)
        return at.with_fields([select_batch(field, texts, place) for field, place in fields])
    shared = at.ndim <= where[1] or len(at) == 1
    return at if shared else at.index_select(0, texts.to(at.device))


def appended(at: Any, more: Any, where: tuple[int, int]) -> Any:
    """Append the tokens that follow to positions or to a `Prepared`."""
    if isinstance(at, Prepared):
        return at.append(more)
    axis = where[0]
    if not axis:
        return at
    if not isinstance(at, Tensor):
        raise TypeError(
            f"what is continued must be positions or a `Prepared`, got {brief(at)}: let `prepare`"
            " or `on_hidden` return one."
        )
    # Other axes are broadcast: positions that all texts share may be followed by each its own.
    shape, more_shape = ([*x.shape[:axis], *x.shape[x.ndim + axis + 1 :]] for x in (at, more))
    if shape == more_shape:
        return torch.cat((at, more), axis)
    rest = torch.broadcast_shapes(shape, more_shape)
    both = [x.movedim(axis, -1).expand(*rest, -1).movedim(-1, axis) for x in (at, more)]
    return torch.cat(both, axis)


def where_tokens(axes: int) -> tuple[int, int]:
    """The axis of tokens and the number of axes of bare positions: numbers, or points of `axes`."""
    return (-1, 1) if axes == 1 else (-2, 2)


def describe(at: Any) -> str:
    """A `Prepared` as a message shows it."""
    if not isinstance(at, Prepared):
        return brief(at)
    return f"{brief(at)} of {at.tokens} tokens in a batch of {at.batch}"
