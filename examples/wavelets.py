"""Haar wavelets as positions encode blocks of tokens, so neighbours can have dissimilar vectors.

Source 004 suggests wavelets, waves of finite length, for future encodings. Haar's are +1 on the
first half of a block, −1 on the second and 0 outside, for blocks of 64, 32, … 2 tokens. The product
of two rows counts the blocks that both share, so similarity depends on the tree of blocks, not on
the distance. 31 and 32 are in different halves, so 32 has more in common with 63 than with 31.
"""

import sys
from pathlib import Path

import torch

from posenc import Encoding
from posenc.encodings.additive.add import TokenRows, add
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save


class Wavelets(Encoding):
    """An encoding that adds Haar wavelets for blocks of `length`, `length`/2, … 2 tokens."""

    prepared = TokenRows

    def __init__(self, length: int = 64):
        super().__init__()
        self.width = self.length = length

    def prepare(self, pos):
        channels = [torch.ones_like(pos, dtype=torch.float32)]
        for level in range(self.length.bit_length() - 1):
            block = self.length >> level
            for start in range(0, self.length, block):
                inside = (pos >= start) & (pos < start + block)
                channels.append(inside * torch.where(pos - start < block // 2, 1.0, -1.0))
        return TokenRows(torch.stack(channels, -1))

    def on_embeddings(self, x, at):
        return add(x, at.rows)


rows = Wavelets()(torch.zeros(1, 64, 64))[0]
dots = rows @ rows.T
print(f"32 with 31, its neighbour: {dots[32, 31]:.0f}; with 63, 31 tokens away: {dots[32, 63]:.0f}")
beyond = Wavelets().prepare(torch.tensor([64, 100])).rows
print(f"beyond its length all positions are alike: {torch.equal(*beyond)}")

panels = [
    Panel("rows", [heat(rows.tolist(), signed=True)], "channel", "position", y_down=True),
    Panel("products", [heat(dots.tolist(), signed=True)], "position", "position", y_down=True),
]
says = (
    "Rows of 64 positions in Haar wavelets, and their products: squares in squares, no diagonals."
)
figure = Figure("Wavelets: likeness goes by blocks, not by distance", panels, says, columns=2)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
