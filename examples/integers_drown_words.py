"""Adding the position as an integer hides what words mean (scatter plots of source 000).

With integers added, the plane in which the words of a sentence vary most shows little but their
order; sinusoids leave most words beside the same neighbour. The picture: forty words, five groups.
"""

import sys
from dataclasses import replace
from pathlib import Path

from posenc import Integer, Sinusoidal
from posenc.analysis.clouds import clouds
from posenc.analysis.geometry import project
from posenc.analysis.text import novel
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures import plane as figures

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

grouped = {
    name: clouds(text, text.vectors(128), encoding)
    for name, encoding in (("integers", Integer(128)), ("sinusoids", Sinusoidal(128)))
}
figure = replace(figures.clouds(grouped), title="Integers drown what words mean, sinusoids do not")
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
