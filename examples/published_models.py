"""RoPE pairs of published models: most models have pairs that complete no turn in their context.

A pair that completes no turn within the context meets in a longer text angles that training never
showed. Larger bases made more of them, and extensions slow them further.
"""

import sys
from pathlib import Path

from posenc.models.published import models
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures import rotary

found = models()
for model in found:
    print(f"{model.name}: base {model.base:,.0f}, {model.context:,} tokens;", end=" ")
    print(f"{model.unfinished} of {len(model.wavelengths)} pairs complete no turn")
still = sum(model.unfinished > 0 for model in found)
print(f"{still} of {len(found)} models have such pairs")

figure = rotary.models(found)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
