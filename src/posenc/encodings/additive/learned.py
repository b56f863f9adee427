"""Learned: add a trained row for each position, looked up in a table.

    PE(p) = table[p],  p = 0 … length − 1

Free to become whatever the data wants; but row 3 knows nothing of row 4 before training has told
it, and past the end of the table there is no row. Some libraries read garbage there, or repeat the
last row in silence; here that is an error, or `beyond="clamp"` asks for the last row.

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
from posenc.properties.card import Card, Paper
from posenc.support.arguments import brief, channels, room, whole_number

Beyond = Literal["refuse", "clamp"]


class Numbers(Prepared, NamedTuple("Numbers", [("rows", Tensor)])):
    """The numbers of rows, looked up when they are added: training may change them until then."""

    shape = "token"


class Learned(Encoding):
    """Table with a trained row for each position: `Learned(1024, 768)` as in GPT-2.

    - `length`: rows of the table; positions are 0 … length − 1
    - `width`: channels of the embeddings
    - `beyond`: past the end "refuse", the default, raises IndexError, "clamp" repeats the last row

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
            raise ValueError(f"a table has rows: `length` must be at least 1, got {length}.")
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
        - `kept`: first rows, of class tokens and registers, that stay; 0 by default
        - `antialias`: True interpolates a grid as timm does, False as transformers does for ViT

        Lengths are interpolated linearly, grids by cubic splines. Train it on the new size
        afterwards. Raises ValueError for a `grid` with other than as many cells as other rows.

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
        """Raises IndexError past the end of the table, TypeError for fractions."""
        pos, last = whole(exact_copy(pos), "Learned"), len(self.table) - 1
        if self.beyond == "clamp":
            pos = pos.clamp(0, last)
        elif has_values(pos) and ((pos < 0) | (pos > last)).any():
            raise IndexError(
                f"the table has rows 0 … {last}, `pos` asks for {pos.min()} … {pos.max()}: make"
                ' `length` larger and train on it, pass `beyond="clamp"` to repeat the last row, or'
                " take an encoding without an end (RoPE, ALiBi, Sinusoidal)."
            )
        return Numbers(pos)

    def on_embeddings(self, x: Embeddings, at: Numbers) -> Embeddings:
        return add(x, self.table[at.rows])


CARD = Card(
    name="Learned",
    paper=Paper(
        key="gehring2017convolutional",
        title="Convolutional Sequence to Sequence Learning",
        authors="Gehring, Jonas and Auli, Michael and Grangier, David and Yarats, Denis"
        " and Dauphin, Yann N.",
        year=2017,
        arxiv="1705.03122",
    ),
    used_by="BERT, GPT-2, RoBERTa, ViT, CLIP",
    make=lambda dim, heads, length=512, **options: Learned(length, dim * heads, **options),
    holds=frozenset({unique_positions, bounded, length_independent, order_sensitive, learned}),
)
