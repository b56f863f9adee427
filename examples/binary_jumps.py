"""Binary numbers jump where sinusoids walk (seed 004's animations of 252 and of the path).

The least significant bit changes every token. The most significant of n bits changes every 2^(n−1)
tokens: that is half its period, which is 2^n. From 127 to 128 all eight bits flip at once.
"""

import sys
from pathlib import Path

import torch

from posenc import Binary, Sinusoidal
from posenc.analysis.trajectory import advance
from posenc.report.figures import paths
from posenc.report.paper import save

bits = Binary(8)(torch.zeros(1, 256, 8))[0].int()
print(f"252 is {''.join(map(str, bits[252].tolist()))}")
changes = [int((bits[1:, channel] != bits[:-1, channel]).sum()) for channel in (0, 7)]
print(
    f"within 256 tokens the most significant bit changes {changes[0]} time, the least {changes[1]}"
)
flips = int((bits[128] != bits[127]).sum())
print(f"from 127 to 128 {flips} bits flip")
found = {
    name: advance(encoding, torch.zeros(8), range(64))
    for name, encoding in (("binary", Binary(8)), ("sinusoids", Sinusoidal(8)))
}
for name, one in found.items():
    print(f"{name}: the largest step is {one.largest_step:.2f} of the mean distance of positions")

figure = paths(found)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
