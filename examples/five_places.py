"""The five steps of attention at which encodings act, and which encoding acts at which step.

At embeddings, at the input of a layer, at queries and keys, at scores, and at the values: an
encoding acts where it overrides a hook of `posenc.Encoding`.
"""

import sys
from pathlib import Path

from posenc import plot
from posenc.show.report.drawing.matplotlib import save

figure = plot.places().figure
listed = figure.listed
assert listed is not None
where = {row[0]: sum(cell == "✓" for cell in row[1:]) for row in listed.rows}
print(f"{sum(count > 1 for count in where.values())} of {len(where)} act at more than one place")
print(figure.says)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
