"""x + rows, for all additive encodings: checked, and rounded once to the dtype of x."""

import torch
from torch import Tensor

from posenc.shapes import Embeddings


def add(x: Embeddings, rows: Tensor) -> Embeddings:
    """`rows` (token, channel) or (*batch, token, channel), one for each token of `x`."""
    batch, given = x.shape[:-2], rows.shape[:-2]
    if x.shape[-2:] != rows.shape[-2:]:
        raise ValueError(
            f"the rows are (token, channel) = {tuple(rows.shape[-2:])}, `x` has"
            f" {tuple(x.shape[-2:])}: give a position for each token, and the encoding the width of"
            " the embeddings."
        )
    if given not in ((), (1,), batch):
        raise ValueError(
            f"the positions are for a batch of {tuple(given)}, `x` is one of {tuple(batch)}: give"
            " one row of positions for all, or one for each."
        )
    exact = torch.promote_types(x.dtype, torch.float32)  # or 16 bits would round whole numbers
    return (x.to(exact) + rows).to(x.dtype)
