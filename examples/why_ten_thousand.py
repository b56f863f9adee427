"""Effect of the base of sinusoids, 100, 10,000 or 1,000,000, on 128 channels (source 002).

The distance between the row of position p and the first row is √(2 Σ (1 − cos pθⱼ)), at most
√(4 · 64) = 16. With base 100 all pairs turn fast: 100 tokens away all rows are about equally far,
and no channel distinguishes far from farther. With 1,000,000 two thirds of the pairs do not
complete a turn in 512 tokens, and near rows differ less. 10,000 is between; it has no special
property, and models of longer texts use larger bases. Code often writes θⱼ = exp(−(2j/d) ln base)
for base^(−2j/d), which is the same number.
"""

import sys
from dataclasses import replace
from math import exp, log, pi
from pathlib import Path

from posenc import frequencies
from posenc.analysis.similarity import of_distance
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.positions import apart

WIDTH, TEXT = 128, 512
found, slowest, whole = {}, {}, {}
for base in (100, 10_000, 1_000_000):
    theta = frequencies(WIDTH, base)
    found[f"base {base:,}"] = of_distance(theta, 2_001)
    slowest[base] = 2 * pi / theta[-1].item()
    whole[base] = int((theta * TEXT >= 2 * pi).sum())
    print(f"base {base:,}: the slowest pair turns in {slowest[base]:,.0f} tokens,", end=" ")
    print(f"{whole[base]} of 64 pairs turn fully in {TEXT}; the first row is", end=" ")
    away = found[f"base {base:,}"].apart
    print(", ".join(f"{away[p]:.1f} from row {p:,}" for p in (1, 10, 100, 1_000)))

by_log = [exp(-(2 * j / WIDTH) * log(10_000)) for j in range(WIDTH // 2)]
off = max(abs(a / b - 1) for a, b in zip(by_log, frequencies(WIDTH).tolist(), strict=True))
print(f"exp(−(2j/d) ln base) and base^(−2j/d) differ by {off:.0e} at most, relatively")

figure = replace(
    apart(found),
    title="With base 100 all far rows are equally far; with 1,000,000 near ones differ less",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
