"""Add a vector per token to embeddings, with checks of shape, dtype and device."""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.core.prepared import Prepared
from posenc.core.shapes import Embeddings
from posenc.support.arguments import brief


class TokenRows(Prepared, NamedTuple("TokenRows", [("rows", Tensor)])):
    """The vectors that are added to the embeddings, (*batch, token, channel)."""

    shape = "token channel"


def add(x: Embeddings, rows: Tensor) -> Embeddings:
    """Add one vector per token to the embeddings x, and round once to the dtype of x.

    `rows` are (token, channel) or (*batch, token, channel), one for each token of `x`.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else brief(x)
        raise TypeError(f"`x` must be floating-point embeddings (…, token, channel), got {got}.")
    if rows.is_meta and not x.is_meta:
        raise ValueError(
            "the position table is on the meta device and has no values. Load the weights first."
        )
    if rows.device != x.device:
        raise ValueError(
            f"the encoding and positions must be on the device of `x`, {x.device}, got"
            f" {rows.device}. Move them there."
        )
    if x.shape[-2:] != rows.shape[-2:]:
        raise ValueError(
            f"`x` must have the (token, channel) shape of the encoding,"
            f" {tuple(rows.shape[-2:])}, got {tuple(x.shape[-2:])}. Pass one position per token,"
            " and make the encoding for the width of the embeddings."
        )
    batch, given = x.shape[:-2], rows.shape[:-2]
    if len(given) > max(1, len(batch)):
        raise ValueError(
            f"positions must be (token,) or (batch, token) for embeddings, got"
            f" {tuple(rows.shape[:-1])}. Positions per head are not possible here, because all"
            " heads read the same embeddings."
        )
    if given not in ((), (1,), batch):
        raise ValueError(
            f"positions must have the batch of `x`, {tuple(batch)}, got {tuple(given)}. Pass"
            " positions (token,) for all texts, or (batch, token) for different positions in each"
            " text."
        )
    # bfloat16 would round whole numbers above 256
    exact = torch.promote_types(x.dtype, torch.float32)
    return (x.to(exact) + rows).to(x.dtype)
