"""Adding the position as an integer drowns what words mean (seed 000's two scatter plots).

A sentence of the packaged novel, in the plane in which its word vectors vary most. With integers
added, that plane shows little but the order; sinusoids leave most words beside the same neighbour.
"""

import sys
from dataclasses import replace
from pathlib import Path

from posenc import Integer, Sinusoidal
from posenc.analysis.geometry import project
from posenc.analysis.text import novel
from posenc.report.figures import projection
from posenc.report.paper import save

text = novel()
span = text.sentences(shortest=20)[3]
words, x = text.words[span], text.vectors(128)[text.ids[span]]
found = {
    "integers": project(words, x, Integer(128)),
    "sinusoids": project(words, x, Sinusoidal(128)),
}
print(" ".join(words))
for name, plane in found.items():
    print(
        f"{name}: {plane.kept:.0%} of the words keep their nearest neighbour; the first axis"
        f" follows their order with a correlation of {plane.ordered[1]:.2f}"
        f" ({plane.ordered[0]:.2f} before)"
    )

figure = replace(projection(found), title="Integers drown what words mean, sinusoids do not")
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
