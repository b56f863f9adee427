"""Low precision: positions in 16 bits are rounded, so that near tokens are not distinguished.

Source 004 expects trouble from low precision. Cosines in bfloat16 are off by the same little
everywhere; positions in bfloat16 count 769 of the first 4,096; float32 angles are 0.3 off at ten
million; angles formed in float64 and rounded once are right to the last bit.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import frequencies
from posenc.analysis.precision import precision
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures import rotary

distinct = len(set(torch.arange(4096).bfloat16().tolist()))
print(
    f"the first 4,096 positions are {distinct} in bfloat16; 257 is {torch.tensor(257.0).bfloat16()}"
)
found = precision(frequencies(64))
last = {way: errors[-1] for way, errors in found.error.items()}
for way, errors in found.error.items():
    shown = {p: errors[found.position.index(p)] for p in (1000, 10**7)}
    told = ", ".join(f"{e:.0e} at {p:,}" for p, e in shown.items() if e is not None)
    print(f"{way}: cos and sin are off by up to {told}")

figure = replace(
    rotary.precision(found), title="Where positions are 16-bit numbers, near tokens change places"
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
