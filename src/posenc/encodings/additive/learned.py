"""Learned: add a trained row for each position, read from a table.

    PE(p) = table[p],  p = 0 … length − 1

The rows can represent any function of position, but training must learn that rows 3 and 4 are
neighbours, and there is no row past the end of the table. Some libraries read undefined memory
there, or silently repeat the last row; here it is an error unless `beyond="clamp"` is set.

Gehring et al. 2017, arXiv:1705.03122, §3.1; used by BERT and GPT-2, which initialise with 0.02.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from posenc.compat.tracing import has_values
from posenc.core.encoding import Encoding
from posenc.core.positions import exact_copy, whole
from posenc.core.prepared import Prepared
from posenc.core.shapes import Embeddings, Positions
from posenc.encodings.additive.add import add
from posenc.encodings.additive.resampling import along_a_line, on_a_grid
from posenc.properties import (
    bounded,
    learned,
    length_independent,
    order_sensitive,
    unique_positions,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import brief, channels, room, whole_number

Beyond = Literal["refuse", "clamp"]


class Numbers(Prepared, NamedTuple("Numbers", [("rows", Tensor)])):
    """Prepared positions of `Learned`: the index of the table row for each position."""

    shape = "token"


class Learned(Encoding):
    """Table with a trained row for each position: `Learned(1024, 768)` as in GPT-2.

    - `length`: rows of the table; positions are 0 … length − 1
    - `width`: channels of the embeddings
    - `beyond`: behaviour past the end: "refuse", the default, raises IndexError; "clamp" repeats
      the last row

    >>> Learned(1024, 768).table.shape
    torch.Size([1024, 768])

    Gehring et al. 2017, arXiv:1705.03122, §3.1.
    """

    prepared = Numbers

    def __init__(self, length: int, width: int, beyond: Beyond = "refuse"):
        super().__init__()
        if not isinstance(beyond, str) or beyond not in ("refuse", "clamp"):
            raise ValueError(f"`beyond` must be 'refuse' or 'clamp', got {brief(beyond)}.")
        if whole_number(length, "length") < 1:
            raise ValueError(f"`length` must be at least 1 position, got {length}.")
        self.width, self.length = channels(width, "width"), length
        self.beyond: Beyond = beyond
        self.table = nn.Parameter(torch.randn(room("a table", length, width)) * 0.02)

    def resized(
        self,
        to: int | tuple[int, int],
        grid: tuple[int, int] | None = None,
        kept: int = 0,
        antialias: bool = False,
    ) -> "Learned":
        """Return a copy whose rows are interpolated to another length, or from one grid to another.

        - `to`: rows of the new table, or (rows, columns) of the new grid
        - `grid`: (rows, columns) of the present grid; None: a square
        - `kept`: number of first rows to copy unchanged, for class tokens and registers; 0 by
          default
        - `antialias`: True interpolates a grid as timm does, False as transformers does for ViT

        Lengths are interpolated linearly, grids by cubic splines. Train on the new size
        afterwards. Raises ValueError if the `grid` does not have one cell for each other row.

        >>> Learned(1 + 14 * 14, 8).resized((24, 24), kept=1).length
        577
        """
        table, kept = self.table.detach(), whole_number(kept, "kept")
        if isinstance(to, int):
            new = along_a_line(table[kept:], whole_number(to, "to") - kept)
        else:
            new = on_a_grid(table[kept:], to, grid, antialias)
        resized = Learned(kept + len(new), self.width, self.beyond)
        resized.table = nn.Parameter(torch.cat((table[:kept], new)))
        return resized

    def prepare(self, pos: Positions) -> Numbers:
        """Return the table's row index of each position.

        Raises IndexError for positions beyond the table, and TypeError for fractions.
        """
        pos, last = whole(exact_copy(pos), "Learned"), len(self.table) - 1
        if self.beyond == "clamp":
            pos = pos.clamp(0, last)
        elif has_values(pos) and ((pos < 0) | (pos > last)).any():
            raise IndexError(
                f"`pos` must be from 0 to {last}, the rows of the table, got {pos.min()} …"
                f" {pos.max()}. Train with a larger `length`, pass"
                ' `beyond="clamp"` to repeat the last row, or use an encoding without a maximum'
                " length (RoPE, ALiBi, Sinusoidal)."
            )
        return Numbers(pos)

    def on_embeddings(self, x: Embeddings, at: Numbers) -> Embeddings:
        return add(x, self.table[at.rows])


CARD = Card(
    name="Learned",
    paper=paper("gehring2017convolutional"),
    used_by="BERT, GPT-2, RoBERTa, ViT, CLIP",
    make=lambda dim, heads, length=512, **options: Learned(length, dim * heads, **options),
    holds=frozenset({unique_positions, bounded, length_independent, order_sensitive, learned}),
)
