"""Write the plans of studies/pairs-*: which pairs turn, everything else equal to the bit.

none        NoPE
all         θⱼ = 10,000^(−j/16), j = 0 … 15                      RoPE
base        500,000 instead of 10,000
highest-n   the n fastest of these 16 pairs turn                  p-RoPE
lowest-n    the n slowest
spread-n    n pairs turn, from 1 to 10,000^(−1 + 1/n)             partial rotation as in GPT-NeoX
equal-n     n pairs turn, all by 1 radian a token
"""

import sys
from pathlib import Path

PAIRS, BASE = 16, 10_000.0
STUDIES = Path(__file__).parent
TURNING = (4, 8)

HEAD = """\
# Written by studies/pairs_plan.py.
hypothesis = "Which pairs of a RoPE turn decides how well a model {does} texts longer than those \
of training, the slowest harming most: turning the fastest alone is better than turning all."
tasks = ["{task}"]
metric = "{metric}"
trained = {trained}
told = false
seeds = 10
contrast = [
    ["highest-8", "all"],
    ["highest-8", "lowest-8"],
    ["highest-4", "lowest-4"],
    ["highest-8", "spread-8"],
    ["highest-4", "spread-4"],
    ["equal-8", "highest-8"],
    ["base", "all"],
    ["none", "all"],
]

[profile]
base = "smoke"
heads = 2
layers = {layers}
batch = 32
steps = {steps}
"""
KINDS = {
    "pairs-text": {
        "does": "predicts", "task": "language", "metric": "area", "trained": 64, "layers": 2,
        "steps": 1500,
    },
    "pairs-copy": {
        "does": "copies", "task": "copy", "metric": "at 1.2", "trained": 10, "layers": 4,
        "steps": 2000,
    },
}  # fmt: skip


def frequencies() -> dict[str, list[float]]:
    """θ of each label, a number for each of 16 pairs; 0 does not turn."""
    full = [BASE ** (-j / PAIRS) for j in range(PAIRS)]
    rows = {"all": full, "base": [500_000.0 ** (-j / PAIRS) for j in range(PAIRS)]}
    for n in TURNING:
        still = [0.0] * (PAIRS - n)
        rows[f"highest-{n}"] = full[:n] + still
        rows[f"lowest-{n}"] = still + full[-n:]
        rows[f"spread-{n}"] = [BASE ** (-j / n) for j in range(n)] + still
        rows[f"equal-{n}"] = [1.0] * n + still
    return rows


def plan(kind: str) -> str:
    lines = [HEAD.format(**KINDS[kind]), '[[encodings]]\nname = "none"\nencoding = "nope"\n']
    for name, theta in frequencies().items():
        numbers = ", ".join(map(repr, theta))
        lines.append(f'[[encodings]]\nname = "{name}"\nencoding = "rope"\ntheta = [{numbers}]\n')
    return "\n".join(lines)


if __name__ == "__main__":
    for kind in KINDS:
        path = STUDIES / kind / "plan.toml"
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(plan(kind), "utf-8")
        elif path.read_text("utf-8") != plan(kind):
            sys.exit(f"{path} is stale: run {sys.argv[0]}")
