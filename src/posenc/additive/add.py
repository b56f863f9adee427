"""x + rows, for all additive encodings: checked, and rounded once to the dtype of x."""

from torch import Tensor

from posenc.shapes import Embeddings


def add(x: Embeddings, rows: Tensor) -> Embeddings:
    """`rows` (token, channel) or (batch, token, channel), one for each token of `x`."""
    if x.shape[-2:] != rows.shape[-2:]:
        raise ValueError(
            f"the rows are (token, channel) = {tuple(rows.shape[-2:])}, `x` has"
            f" {tuple(x.shape[-2:])}: give a position for each token, and the encoding the width of"
            " the embeddings."
        )
    return (x + rows).to(x.dtype)
