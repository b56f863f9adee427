"""RoPE in longer contexts: every position can be computed, but slow pairs reach new angles.

Source 001 has RoPE "work everywhere in a 100,000-token document". The computation is right, but
training covers only some angles: of Llama 2's 128 channels a head, 92 complete a turn within 4,096
tokens, and the others meet new angles in longer texts. Each extension stretches them to avoid this.
"""

import sys
from dataclasses import replace
from pathlib import Path

from posenc import frequencies
from posenc.analysis.frequencies import extended
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.rotary import extensions

trained, factor = 4096, 8.0
found = extended(frequencies(128).tolist(), trained, factor)
print(f"{found.critical} of {found.channels} channels complete a turn within {trained:,} tokens")
new, slower = {}, {}
for name, method in found.methods.items():
    new[name] = sum(
        pair.turns < 1 and found.target / pair.wavelength > 1.001 * pair.turns
        for pair in method.pairs
    )
    slower[name] = [pair.slower for pair in method.pairs]
    print(f"{name}: {new[name]} pairs meet new angles at {found.target:,} tokens;", end=" ")
    print(f"the fastest is {slower[name][0]:.3g} times slower, the slowest {slower[name][-1]:.3g}")

figure = replace(
    extensions(found), title="Most pairs of Llama 2 never met what comes after 4,096 tokens"
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
