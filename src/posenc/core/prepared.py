"""`Prepared`, the named tuple of per-token tensors that hooks receive as `at`.

The default `prepare` returns positions, a tensor. An encoding whose hooks need more (cosines, rows,
gates) returns a `Prepared`: a named tuple of tensors, each with an axis of tokens. A `Prepared` can
be moved to a device, sliced by tokens, and appended to when a cache receives further tokens.

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
    """Return (index of the token axis, number of axes) of a shape; the index is negative.

    The index is 0 if there is no such axis.

    >>> token_axis("head token channel"), token_axis("row column")
    ((-2, 3), (0, 2))
    """
    names = shape.split()
    return names.index("token") - len(names) if "token" in names else 0, len(names)


class Prepared:
    """Base class of named tuples whose fields are tensors with an axis of tokens."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]]
    # The axes of the tensors without the optional batch axis; a tuple if the fields differ. A field
    # may also be a `Prepared`, or a tensor without an axis of tokens ("row column").
    shape: ClassVar[str | tuple[str, ...]] = "head token channel"
    # The axis of tokens and the number of axes of each field
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
        """The number of texts; 1 if all texts share the same positions."""
        return batch(self[0], self.places[0])  # type: ignore[index]

    def to(self: P, device: torch.device | str) -> P:
        return self.with_fields(field.to(device) for field in self._each())

    def slice_tokens(self: P, some: slice) -> P:
        """Return a copy of the prepared positions with a slice of the tokens."""
        fields = zip(self._each(), self.places, strict=True)
        return self.with_fields([slice_tokens(field, some, place) for field, place in fields])

    def append(self: P, more: Any) -> P:
        """Return these prepared positions with those of the next tokens, `more`, appended.

        If `on_hidden` sums over tokens, its class overrides this method to continue the sums.
        """
        if not (isinstance(more, type(self)) or isinstance(self, type(more))):
            raise TypeError(
                f"`more` must be prepared by the same encoding as {brief(self)}, got {brief(more)}."
                " Pass a result of the same `prepare`."
            )
        return self.with_fields(map(appended, self._each(), more._each(), self.places))

    def precomputed(self: P, k: Tensor) -> P:
        """Return a copy that stores the tensors that an encoding has computed from cached keys.

        Later queries use these tensors again.

        `k` are the keys of these tokens after `on_keys`.
        """
        return self

    def with_fields(self: P, fields: Iterable[Any]) -> P:
        """Return prepared positions of the same class with other field values."""
        return type(self)(*fields)

    def _each(self) -> Iterable[Any]:
        return iter(self)  # type: ignore[call-overload]


class Parts(Prepared, NamedTuple("Parts", [("parts", tuple[Any, ...])])):
    """Prepared positions of a `Sum` of encodings, one entry per encoding."""

    shape = "token"

    @property
    def tokens(self) -> int:
        """The number of tokens; −1 if the sum has no encodings."""
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
    """Prepared positions of a `Sum` of encodings, if positions have several axes: (row, column)."""

    shape = "token axis"


def tokens(at: Any, where: tuple[int, int]) -> int:
    return at.tokens if isinstance(at, Prepared) else at.shape[where[0]]


def batch(at: Any, where: tuple[int, int]) -> int:
    if isinstance(at, Prepared):
        return at.batch
    return at.shape[0] if at.ndim > where[1] else 1


def slice_tokens(at: Any, some: slice, where: tuple[int, int]) -> Any:
    """Return the positions, or the prepared positions, of a slice of the tokens.

    If a cache holds no positions, `at` is None, and so is the result.
    """
    if isinstance(at, Prepared):
        return at.slice_tokens(some)
    if at is None or not where[0]:
        return at
    return at[(..., some, *[slice(None)] * (-1 - where[0]))]


def select_batch(at: Any, texts: Tensor, where: tuple[int, int]) -> Any:
    """Select texts of a batch from prepared positions; tensors without a batch, and None, stay."""
    if isinstance(at, Prepared):
        fields = zip(at._each(), at.places, strict=True)
        return at.with_fields([select_batch(field, texts, place) for field, place in fields])
    if at is None or at.ndim <= where[1] or len(at) == 1:
        return at
    return at.index_select(0, texts.to(at.device))


def appended(at: Any, more: Any, where: tuple[int, int]) -> Any:
    """Append the positions, or the prepared positions, of the next tokens."""
    if isinstance(at, Prepared):
        return at.append(more)
    axis = where[0]
    if not axis:
        return at
    if not isinstance(at, Tensor):
        raise TypeError(
            f"`at` must be positions or a `Prepared`, got {brief(at)}. Return one from `prepare` or"
            " `on_hidden`."
        )
    # Shared positions may be followed by positions of each text, so the other axes are broadcast.
    shape, more_shape = ([*x.shape[:axis], *x.shape[x.ndim + axis + 1 :]] for x in (at, more))
    if shape == more_shape:
        return torch.cat((at, more), axis)
    rest = torch.broadcast_shapes(shape, more_shape)
    both = [x.movedim(axis, -1).expand(*rest, -1).movedim(-1, axis) for x in (at, more)]
    return torch.cat(both, axis)


def where_tokens(axes: int) -> tuple[int, int]:
    """Return (index of the token axis, number of axes) of positions; the index is negative."""
    return (-1, 1) if axes == 1 else (-2, 2)


def describe(at: Any) -> str:
    """Format positions, or prepared positions, for an error message."""
    if not isinstance(at, Prepared):
        return brief(at)
    return f"{brief(at)} of {at.tokens} tokens in a batch of {at.batch}"
