"""x + rows, for all additive encodings: checked, and rounded once to the dtype of x."""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.core.prepared import Prepared
from posenc.core.shapes import Embeddings
from posenc.support.arguments import brief


class TokenRows(Prepared, NamedTuple("TokenRows", [("rows", Tensor)])):
    """A row for each token, (*batch, token, channel)."""

    shape = "token channel"


def add(x: Embeddings, rows: Tensor) -> Embeddings:
    """`rows` (token, channel) or (*batch, token, channel), one for each token of `x`."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else brief(x)
        raise TypeError(f"`x` must be embeddings (…, token, channel), real numbers, got {got}.")
    if rows.is_meta and not x.is_meta:
        raise ValueError("the table is on the meta device and has no values: load it first.")
    if rows.device != x.device:
        raise ValueError(
            f"`x` is on {x.device}, the rows on {rows.device}: move positions and encoding there."
        )
    if x.shape[-2:] != rows.shape[-2:]:
        raise ValueError(
            f"the rows are (token, channel) = {tuple(rows.shape[-2:])}, `x` has"
            f" {tuple(x.shape[-2:])}: give a position for each token, and the encoding the width of"
            " the embeddings."
        )
    batch, given = x.shape[:-2], rows.shape[:-2]
    if len(given) > max(1, len(batch)):
        raise ValueError(
            f"positions for each head mean nothing to embeddings, which all heads read, got"
            f" {tuple(rows.shape[:-1])}: pass positions (token,) or (batch, token)."
        )
    if given not in ((), (1,), batch):
        raise ValueError(
            f"the positions are for a batch of {tuple(given)}, `x` is one of {tuple(batch)}: give"
            " one row of positions for all, or one for each."
        )
    # 16 bits would round whole numbers beyond 256
    exact = torch.promote_types(x.dtype, torch.float32)
    return (x.to(exact) + rows).to(x.dtype)
