"""RoPE as a block-diagonal matrix per position, and as two elementwise products (source 003).

The texts print a block-diagonal matrix R(m), and advise against computing with it: it "can get
quite large". For 128 channels it has 16,384 numbers for each position, 98.4 % of them zero, where
the fast form x ⊗ cos + x' ⊗ sin reads 128. Both rotate in the same way. The ratio of times depends
on the machine.
"""

import sys
from pathlib import Path
from time import process_time
from timeit import timeit

import torch

from posenc import frequencies, rotate, turn
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save

TOKENS, DIM, HEADS = 512, 128, 8
theta, pos = frequencies(DIM), torch.arange(TOKENS)
x = torch.randn(1, HEADS, TOKENS, DIM, dtype=torch.float64)

angle = pos[:, None] * theta
cos, sin = angle.cos(), angle.sin()
matrix = torch.zeros(TOKENS, DIM, DIM, dtype=torch.float64)
even = torch.arange(0, DIM, 2)
matrix[:, even, even] = matrix[:, even + 1, even + 1] = cos
matrix[:, even, even + 1], matrix[:, even + 1, even] = -sin, sin


def by_matrix():
    return torch.einsum("tij,bhtj->bhti", matrix, x)


def by_vectors():
    swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)  # (−x₂, x₁, −x₄, x₃, …)
    return x * cos.repeat_interleave(2, -1) + swapped * sin.repeat_interleave(2, -1)


apart = float((by_matrix() - by_vectors()).abs().max())
table = rotate(x, turn(pos, theta), "interleaved")
zero = float((matrix[1] == 0).double().mean())
print(f"the two forms differ by {apart:.0e}, from posenc.rotate by", end=" ")
print(f"{float((table - by_vectors()).abs().max()):.0e}")
print(f"numbers for each position: {matrix[0].numel():,}, of which {zero:.1%} are zero; or {DIM}")
seconds = [timeit(form, timer=process_time, number=5) for form in (by_matrix, by_vectors)]
print(f"the matrix takes {seconds[0] / seconds[1]:.1f} times as long here")

block = [row[:24] for row in matrix[5, :24].tolist()]
figure = Figure(
    "Of RoPE's matrix for a position almost all is zero",
    [Panel("", [heat(block, signed=True)], "channel", "channel", y_down=True, square=True)],
    f"The first 24 of {DIM} channels at position 5: two numbers in each row are not zero.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
