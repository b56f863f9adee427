"""RoPE does not favour near tokens: at any chosen distance, some key scores higher than elsewhere.

k = R(r) q, the query itself turned by r tokens beforehand, gives Σⱼ |qⱼ|² cos((δ − r) θⱼ): its peak
is at δ = r (Barbero et al., proposition 3.1). Source 003 draws "a long relative distance should
have less connection"; that holds for vectors of ones, for which r = 0.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import frequencies
from posenc.analysis.similarity import peak
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures import positions

torch.manual_seed(0)
q, theta = torch.randn(128), frequencies(128)
best = {target: peak(theta, q, target, 4000).best for target in (0, 10, 777, 3000)}
for target, at in best.items():
    print(f"made for {target:,} tokens: best at {at:,}")
ones = peak(frequencies(64), torch.ones(64), 0, 1001)
print(f"vectors of 64 ones: {ones.score[0]:.0f} at distance 0, {ones.score[1000]:.1f} at 1,000")

figure = replace(
    positions.peak(peak(theta, q, 777, 2000)),
    title="A key can be made that RoPE finds best at any distance",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
