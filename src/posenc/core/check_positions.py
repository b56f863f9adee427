"""Check that positions, or the result of `prepare`, fit the encoding and the tensors of a call."""

from typing import Any

import torch
from torch import Tensor

from posenc.core.encoding import Encoding, Sum, on_meta
from posenc.core.frequencies import not_positions
from posenc.core.positions import exact, per_head
from posenc.core.prepared import Parts, Prepared, describe
from posenc.core.shapes import Heads


def check_sizes(
    encoding: Encoding,
    heads: int,
    dim: int,
    width: int | None = None,
    needs_values: bool = False,
) -> None:
    """Raise ValueError if the encoding's sizes, such as heads, differ from those of q or a layer.

    `width` is the width of a layer; None: the sizes are those of q. With `needs_values`, learned
    weights on the meta device raise ValueError too.
    """
    if isinstance(encoding, Sum):
        for part in encoding:
            check_sizes(part, heads, dim, width, needs_values)
        return
    if encoding.heads and encoding.heads != heads:
        raise ValueError(_wrong_size(encoding, "heads", heads, width))
    if encoding.dim and encoding.dim != dim:
        raise ValueError(_wrong_size(encoding, "dim", dim, width))
    if width is not None and encoding.width and encoding.width != width:
        raise ValueError(_wrong_size(encoding, "width", width, width))
    if needs_values:
        for weight in encoding._parameters.values():
            if weight is not None and weight.is_meta:
                raise ValueError(on_meta(encoding))


def _wrong_size(leaf: Encoding, size: str, has: int, width: int | None) -> str:
    name, wants = type(leaf).__name__, getattr(leaf, size)
    if width is not None:
        return (
            f"`encoding` must be made for `{size}`={has} of this layer, got {wants}. Make its"
            f" {name} for `width`={width}, and `width` / `heads` channels per head."
        )
    if size == "heads":
        return (
            f"`encoding` must be made for the {has} heads of `q`, got {name} for {wants} heads."
            f" Make it with `heads`={has}."
        )
    return (
        f"`encoding` must be made for the {has} channels of `q`, got {name} for {wants} channels."
        f" Make it with `dim`={has}, the channels of a head."
    )


def checked_at(encoding: Encoding, at: Any, x: Heads, name: str) -> Any:
    """Check positions or the result of `prepare`, and return the argument `at` for the hooks.

    The number of positions is checked, because hooks would silently use wrong ones.
    """
    if isinstance(encoding, Sum):
        at = prepared(encoding, at, name) if isinstance(at, Tensor) else at
        if not isinstance(at, Parts) or len(at.parts) != len(encoding.parts):
            raise TypeError(_not_of_this_encoding(encoding, at, name))
        parts = zip(encoding.parts, at.parts, strict=True)
        checked = [checked_at(part, part_at, x, name) for part, part_at in parts]  # type: ignore
        same = all([standing is before for standing, before in zip(checked, at.parts, strict=True)])
        return at if same else type(at)(tuple(checked))
    if isinstance(at, Prepared):
        if not isinstance(at, encoding.prepared):
            raise TypeError(_not_of_this_encoding(encoding, at, name))
        if at.tokens != x.shape[-2] or at.batch not in (1, x.shape[0]):
            raise ValueError(
                f"{name} must be prepared for {x.shape[-2]} tokens in a batch of {x.shape[0]}, got"
                f" {at.tokens} tokens in a batch of {at.batch}, prepared by"
                f" {type(encoding).__name__}. Prepare the positions of these tokens, and pass both"
                " `at` and `k_at` if keys have other positions than queries."
            )
        return at
    if type(encoding).on_hidden is not Encoding.on_hidden:
        raise TypeError(_needs_hidden(encoding, at, name))
    if type(encoding).prepare is Encoding.prepare:
        if not isinstance(at, Tensor):
            raise TypeError(_not_of_this_encoding(encoding, at, name))
        if at.dtype is not torch.int64 or type(encoding).on_scores is not Encoding.on_scores:
            # Offsets of integers that are too far apart would wrap around
            at = exact(at)
        # `prepare` returns this shape for the positions of one text
        if encoding.axes == 1 and at.shape == (1, 1, x.shape[2]) and at.device == x.device:
            return at
        _check_positions(encoding, at, x, name)
        return per_head(at, encoding.axes)
    if encoding.prepared is not Tensor:
        if not isinstance(at, Tensor):
            raise TypeError(_not_of_this_encoding(encoding, at, name))
        return checked_at(encoding, prepared(encoding, at, name), x, name)
    # The class of the result is unknown for an encoding outside of this library
    if not isinstance(at, Tensor) and _are_positions(at):
        raise TypeError(_not_of_this_encoding(encoding, at, name))
    return at


def prepared(encoding: Encoding, pos: Tensor, name: str) -> Any:
    """Return `encoding.prepare(pos)`; raise an error if the encoding needs more than positions."""
    acts_on, of = encoding.acts_on, type(encoding).__name__
    if "on_embeddings" in acts_on:
        raise ValueError(
            f"{of} must be applied to embeddings before q, k and v are projected. Call `at ="
            f" encoding.prepare(pos)` and `x = encoding.on_embeddings(x, at)`, and pass `at` to"
            f" `attend` as {name}; or use `SelfAttention`."
        )
    if "on_hidden" in acts_on:
        raise TypeError(_needs_hidden(encoding, pos, name))
    return encoding.prepare(pos)


def _are_positions(at: Any) -> bool:
    """Test whether positions were passed as a list or NumPy array, instead of as a tensor."""
    first = at[0] if isinstance(at, list) and at else at
    return isinstance(first, int | float | str | range) or hasattr(first, "__array__")


def _not_of_this_encoding(encoding: Encoding, at: Any, name: str) -> str:
    return (
        f"{name} must be a tensor of positions, or the result of `prepare` of this"
        f" {type(encoding).__name__}, got {describe(at)}. Pass `torch.tensor(…)` or"
        " `encoding.prepare(pos)`."
    )


def _needs_hidden(encoding: Encoding, at: Any, name: str) -> str:
    return (
        f"{name} must be computed from the input of the layer for {type(encoding).__name__}, got"
        f" {describe(at)}. Pass `at = encoding.on_hidden(x, encoding.prepare(pos))` with x of shape"
        " (batch, token, width), or use `SelfAttention`."
    )


def _check_positions(encoding: Encoding, pos: Tensor, x: Heads, name: str) -> None:
    if pos.device != x.device:
        raise ValueError(
            f"{name} must be on the device of `x`, {x.device}, got {pos.device}. Move the positions"
            " there."
        )
    shape = pos.shape[: pos.ndim - (encoding.axes > 1)]
    if not shape or len(shape) > 3:
        raise ValueError(not_positions(pos.shape))
    if encoding.axes > 1 and pos.shape[-1] != encoding.axes:
        raise ValueError(
            f"{name} must be points (…, token, {encoding.axes}) for this {type(encoding).__name__},"
            f" got shape {tuple(pos.shape)}. Pass one coordinate for each axis."
        )
    if len(shape) == 3:
        # Several query heads may share one key head
        if shape[1] != 1 and shape[1] % x.shape[1]:
            raise ValueError(
                f"{name} must have positions for 1 head or for {x.shape[1]} heads, got {shape[1]}."
                " Pass positions (token,) for all heads."
            )
    if shape[-1] != x.shape[-2]:
        raise ValueError(
            f"{name} must have {x.shape[-2]} positions, one per token, got {shape[-1]}. Pass both"
            " `at` and `k_at` if keys have other positions than queries."
        )
    if len(shape) > 1 and shape[0] not in (1, x.shape[0]):
        raise ValueError(
            f"{name} must be for a batch of {x.shape[0]}, like q, k and v, got {shape[0]}. Pass"
            " positions (token,) for all texts, or (batch, token) for different positions in each"
            " text."
        )
