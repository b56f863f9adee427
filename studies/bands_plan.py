"""Write the plan of studies/bands-copy: bands of pairs alone and left out, and aliasing.

none            NoPE
all             θⱼ = 10,000^(−j/16), j = 0 … 15                  RoPE
pairs-4-7       these pairs alone turn, as in `all`
without-4-7     all but these
period-P        four pairs turn once in P tokens, θ = 2π/P; the others stand still
"""

import sys
from math import pi
from pathlib import Path

PAIRS, BASE = 16, 10_000.0
PLAN = Path(__file__).parent / "bands-copy" / "plan.toml"
ALONE, WITHOUT, PERIODS = ((0, 3), (4, 7), (8, 11)), ((0, 3), (4, 7)), (7, 11, 16, 23)
HYPOTHESIS = (
    "Pairs 0 to 3, which turn fastest, are those that keep a RoPE from copying texts longer than"
    " those of training, from L to 2 L: pairs 4 to 7 alone do not, and a RoPE without pairs 0 to 3"
    " copies more than one with all. And aliasing says which lengths are copied: four pairs of one"
    " period P, a whole number of tokens, copy a text of n > L words better where n − P is a"
    " trained length, 1 to 10, so that the word to be read lies in the same phase as in training."
    " Foretold: period 7 copies n = 11 to 17, period 11 n = 12 to 21, period 16 n = 17 to 26,"
    " period 23 n = 24 to 33, each more than the other n from 11 to 34. The test: the share of"
    " texts copied, the mean over the foretold n minus the mean over the others, paired by seed,"
    " sign flip, Holm over the four. Period 7 decides little, for its foretold lengths are the"
    " shortest; 16 and 23 decide, for there longer texts have to be copied better than shorter"
    " ones. The rival: position alone says which word to read, and then nothing is copied where"
    " P > L, for the words n and n − P back look alike, which training never met."
)
HEAD = """\
# Written by studies/bands_plan.py. What was known when it was written: studies/pairs-copy, in which
# four pairs of θ = 1 (period 6.28) copy 10, 16, 65, 0 and 0 % at n = 12, 14, 16, 18 and 20; pairs
# 4 to 7 alone, four seeds of 2,000 steps in a pilot, 62 % at n = 12; `none`, one seed of 6,000
# steps in a pilot, 87 % at n = 12. No pilot turned any of the four periods.
hypothesis = "{hypothesis}"
tasks = ["copy"]
metric = "area"
trained = 10
tested = {tested}
told = false
seeds = 10
contrast = [
    ["pairs-4-7", "none"],
    ["without-0-3", "all"],
    ["pairs-4-7", "all"],
]

[profile]
base = "smoke"
heads = 2
layers = 4
batch = 32
steps = 6000
"""


def frequencies() -> dict[str, list[float]]:
    """θ of each label, a number for each of 16 pairs; 0 does not turn."""
    full = [BASE ** (-j / PAIRS) for j in range(PAIRS)]
    rows = {"all": full}
    for first, last in ALONE:
        band = [theta if first <= j <= last else 0.0 for j, theta in enumerate(full)]
        rows[f"pairs-{first}-{last}"] = band
    for first, last in WITHOUT:
        band = [0.0 if first <= j <= last else theta for j, theta in enumerate(full)]
        rows[f"without-{first}-{last}"] = band
    for period in PERIODS:
        rows[f"period-{period}"] = [2 * pi / period] * 4 + [0.0] * (PAIRS - 4)
    return rows


def plan() -> str:
    """Every length from 6 to 34, the last of those that aliasing foretells and one more."""
    lines = [HEAD.format(hypothesis=HYPOTHESIS, tested=list(range(6, 35)))]
    lines.append('[[encodings]]\nname = "none"\nencoding = "nope"\n')
    for name, theta in frequencies().items():
        numbers = ", ".join(map(repr, theta))
        lines.append(f'[[encodings]]\nname = "{name}"\nencoding = "rope"\ntheta = [{numbers}]\n')
    return "\n".join(lines)


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PLAN.parent.mkdir(exist_ok=True)
        PLAN.write_text(plan(), "utf-8")
    elif PLAN.read_text("utf-8") != plan():
        sys.exit(f"{PLAN} is stale: run {sys.argv[0]}")
