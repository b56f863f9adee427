"""The figure object that `posenc.plot` returns: displayed in a notebook, or saved as a file."""

import json
from base64 import b64encode
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path

from posenc.show.report.drawing import figure_json, matplotlib
from posenc.show.report.drawing.data_table import data_table
from posenc.show.report.drawing.figure import Figure, FigureNumbers
from posenc.show.report.kinds import figures_of
from posenc.support.arguments import brief

KINDS = ".png", ".svg", ".pdf", ".json"


@dataclass(frozen=True, repr=False)
class Picture:
    """A figure. A notebook draws it at the end of a cell; `save` writes it to a file."""

    figure: Figure

    @property
    def title(self) -> str:
        return self.figure.title

    @property
    def says(self) -> str:
        """A description of the figure in one or two sentences, made from its numbers."""
        return self.figure.alt

    @property
    def numbers(self) -> FigureNumbers:
        """The numbers behind the figure."""
        return data_table(self.figure)

    def save(self, path: str | Path, width: float = matplotlib.WIDE) -> Path:
        """Write the figure to a file and return its path.

        - `path`: a name that ends in .png, .svg, .pdf or .json; `posenc.plot.load` reads the last
        - `width`: in millimetres, 183 for a page, 85 for a column

        Raises ValueError for another ending or an impossible width.
        """
        path = Path(path)
        if path.suffix not in KINDS:
            raise ValueError(
                f"`path` must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}, got"
                f" {brief(path.name)}. Add one of these endings."
            )
        if path.suffix == ".json":
            path.write_text(json.dumps(figure_json.to_json(self.figure), allow_nan=False), "utf-8")
        else:
            matplotlib.save(self.figure, path, width)
        return path

    def _repr_png_(self) -> bytes:
        return self._drawn("png")

    def _repr_html_(self) -> str:
        image = b64encode(self._drawn("svg")).decode()
        return (
            f'<figure style="margin:0"><img alt="{escape(self.says)}" style="max-width:100%"'
            f' src="data:image/svg+xml;base64,{image}">'
            f"<figcaption>{escape(self.says)}</figcaption></figure>"
        )

    def _drawn(self, kind: str) -> bytes:
        drawn = BytesIO()
        matplotlib.write(self.figure, drawn, kind)
        return drawn.getvalue()

    def __repr__(self) -> str:
        return f"{self.title}: {self.says} (`.save('figure.svg')` writes it to a file)"


def pictures(result: object) -> dict[str, Picture]:
    """Return the figures of a result by their names.

    - `result`: the result of `posenc.compare`, `posenc.inspect` or another report

    >>> from posenc import inspect
    >>> [*pictures(inspect({"model_type": "llama"}))]
    ['bands-0-0']
    """
    return {name: Picture(figure) for name, figure in figures_of(result).items()}
