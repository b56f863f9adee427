"""Check that positions, or what `prepare` returned, fit the encoding that attention is given."""

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
    """Refuse an encoding with a part that was made for other sizes than those of q, or of a layer.

    `width` is that of a layer. With `needs_values`, refuse learned weights that have none, too.
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
            f"`encoding` was made for `{size}`={wants}, this layer has {has}: make its {name} for"
            f" `width`={width}, and `width` / `heads` channels of a head."
        )
    if size == "heads":
        return f"this {name} was made for {wants} heads, `q` has {has}: make it for {has}."
    return (
        f"this {name} is for heads of {wants} channels, `q` has {has}: make it with `dim` as many"
        " as a head has."
    )


def checked_at(encoding: Encoding, at: Any, x: Heads, name: str) -> Any:
    """Return what the hooks are handed as `at`: prepared by the caller, or here from positions.

    Positions are looked up by token: too many would silently be the wrong ones.
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
                f"{name} was prepared by {type(encoding).__name__} for {at.tokens} tokens in a"
                f" batch of {at.batch}, where there are {x.shape[-2]} tokens in a batch of"
                f" {x.shape[0]}: prepare the positions of these; where keys stand elsewhere, pass"
                " both `at` and `k_at`."
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
        # As `prepare` returns the positions of one text for all texts and heads
        if encoding.axes == 1 and at.shape == (1, 1, x.shape[2]) and at.device == x.device:
            return at
        _check_positions(encoding, at, x, name)
        return per_head(at, encoding.axes)
    if encoding.prepared is not Tensor:
        if not isinstance(at, Tensor):
            raise TypeError(_not_of_this_encoding(encoding, at, name))
        return checked_at(encoding, prepared(encoding, at, name), x, name)
    # Else it is what `prepare` of a user's own encoding returned
    if not isinstance(at, Tensor) and _are_positions(at):
        raise TypeError(_not_of_this_encoding(encoding, at, name))
    return at


def prepared(encoding: Encoding, pos: Tensor, name: str) -> Any:
    """Call `prepare` on bare positions, unless the encoding acts on embeddings or on hidden x."""
    acts_on, of = encoding.acts_on, type(encoding).__name__
    if "on_embeddings" in acts_on:
        raise ValueError(
            f"{of} acts on embeddings, before q, k and v are projected: call `at ="
            f" encoding.prepare(pos)`, `x = encoding.on_embeddings(x, at)`, and give `attend` that"
            f" {name}; or use `SelfAttention`."
        )
    if "on_hidden" in acts_on:
        raise TypeError(_needs_hidden(encoding, pos, name))
    return encoding.prepare(pos)


def _are_positions(at: Any) -> bool:
    """Test whether these are positions, though not in a tensor."""
    first = at[0] if isinstance(at, list) and at else at
    return isinstance(first, int | float | str | range) or hasattr(first, "__array__")


def _not_of_this_encoding(encoding: Encoding, at: Any, name: str) -> str:
    return (
        f"{name} must be positions, as a tensor, or what `prepare` of this"
        f" {type(encoding).__name__} made of them, got {describe(at)}: pass `torch.tensor(…)`, or"
        " call `encoding.prepare(pos)`."
    )


def _needs_hidden(encoding: Encoding, at: Any, name: str) -> str:
    return (
        f"{type(encoding).__name__} reads the input of the layer, x of shape (batch, token, width),"
        f" and {name} has not seen it, got {describe(at)}: pass `at = encoding.on_hidden(x,"
        " encoding.prepare(pos))`, or use `SelfAttention`."
    )


def _check_positions(encoding: Encoding, pos: Tensor, x: Heads, name: str) -> None:
    if pos.device != x.device:
        raise ValueError(
            f"`x` is on {x.device}, the positions are on {pos.device}: move them to one device."
        )
    shape = pos.shape[: pos.ndim - (encoding.axes > 1)]
    if not shape or len(shape) > 3:
        raise ValueError(not_positions(pos.shape))
    if encoding.axes > 1 and pos.shape[-1] != encoding.axes:
        raise ValueError(
            f"{name} must be points of {encoding.axes} axes for this {type(encoding).__name__}, got"
            f" positions of shape {tuple(pos.shape)}."
        )
    if len(shape) == 3:
        # Several query heads may share one key head
        if shape[1] != 1 and shape[1] % x.shape[1]:
            raise ValueError(f"{name} is for {shape[1]} heads, there are {x.shape[1]}.")
    if shape[-1] != x.shape[-2]:
        what = f"{name} has {shape[-1]} positions for {x.shape[-2]} tokens"
        raise ValueError(f"{what}: where the keys stand elsewhere, pass both `at` and `k_at`.")
    if len(shape) > 1 and shape[0] not in (1, x.shape[0]):
        raise ValueError(f"{name} is for a batch of {shape[0]}, q, k and v for {x.shape[0]}.")
