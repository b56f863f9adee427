"""Check a rotation against posenc's test vectors: python check.py vectors/core.txt

Replace `rotate` by a call of yours. It turns the pairs of channels of one token of one head.
"""

import math
import sys


def rotate(x, position, theta, layout, start):
    y, pairs = list(x), len(theta)
    for j, turn in enumerate(theta):
        a, b = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + pairs)
        a, b = start + a, start + b
        cos, sin = math.cos(position * turn), math.sin(position * turn)
        y[a], y[b] = x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin
    return y


case, cases, wrong = {}, 0, 0
for line in open(sys.argv[1], encoding="utf-8"):
    name, *words = line.split()
    case[name] = words
    if name != "rotated_q":  # the last line of a case
        continue
    theta, q, right = ([float.fromhex(word) for word in case[key]] for key in ("theta", "q", name))
    dim, start = int(case["sizes"][3]), int(case["start"][0])
    off = 0.0
    for n, position in enumerate(case["positions"]):  # one for each text, head and token
        here = slice(n * dim, n * dim + dim)
        mine = rotate(q[here], int(position), theta, case["layout"][0], start)
        off = max(off, *(abs(a - b) for a, b in zip(mine, right[here], strict=True)))
    cases += 1
    if off > float.fromhex(case["tolerance"][0]):
        wrong += 1
        print(f"{case['case'][0]}: off by {off:.2g}")
print(f"{cases - wrong} of {cases} cases pass")
sys.exit(wrong > 0)
