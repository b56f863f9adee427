"""RoPE's "long-term decay" (source 003) is an upper bound, and it levels off.

|q · R(δ) k| ≤ maxⱼ |hⱼ₊₁ − hⱼ| Σⱼ |Sⱼ₊₁| (RoFormer, eq. 37). The mean of |Sⱼ| falls from 32.5 to
about 5 within a thousand tokens and then stays; it rises at half of all steps; and the score of a
real query and key lies far below it, near or far.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import frequencies
from posenc.analysis.similarity import bound
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures import positions

torch.manual_seed(0)
q, k = torch.randn(2, 128)
found = bound(frequencies(128), q, k, 4001)
for distance in (0, 5, 50, 256, 1000, 4000):
    print(f"at distance {distance:,}: mean |S| {found.mean[distance]:.1f},", end=" ")
    print(f"bound {found.bound[distance]:,.0f}, score {found.score[distance]:.1f}")
steps = list(zip(found.mean, found.mean[1:], strict=False))
rising = sum(b > a for a, b in steps) / len(steps)
near = max(abs(score) for score in found.score[:100])
far = max(abs(score) for score in found.score[3900:])
print(f"the bound rises at {rising:.0%} of all steps")
print(f"the largest score is {near:.0f} within 100 tokens,", end=" ")
print(f"and {far:.0f} between 3,900 and 4,000")

figure = replace(
    positions.bound(found), title="“Long-term decay” is an upper bound: scores need not fall"
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
