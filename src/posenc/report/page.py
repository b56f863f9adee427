"""One HTML page that opens offline, and the numbers beside it as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from posenc.bench.run import Benchmark
from posenc.models.files.errors import printable
from posenc.models.inspection import Inspection
from posenc.models.weighing import Weighing
from posenc.properties import ALL
from posenc.report import mathml, paper, pictures, screen, words
from posenc.report.drawing import listing
from posenc.report.drawing.figure import Figure, Table
from posenc.report.pictures import Result
from posenc.report.saving import folder
from posenc.report.saving.folder import FIGURES, MARK, NUMBERS, PAGE, reserve
from posenc.report.words import weights as weights_words
from posenc.studies.comparison import Comparison

__all__ = ["render", "reserve", "write"]

PROPERTIES = [(one.__name__, (one.__doc__ or "").splitlines()[0]) for one in ALL]


def write(result: Result, out: Path, figures: str | None = None) -> None:
    """`results.json` and `index.html`, which take the place of an earlier report as a whole.

    `figures` is png, svg or pdf: each figure as a file of that kind as well. `results.json` lists
    them, so that the next report knows them for its own, and takes them away.
    """
    drawn = pictures.for_paper(result) if figures else {}
    with folder.replacing(out) as new:
        if drawn:
            (new / FIGURES).mkdir()
        for name, figure in drawn.items():
            paper.save(figure, new / FIGURES / f"{name}.{figures}")
        tree = result.to_json() | {"figures": [f"{name}.{figures}" for name in drawn]}
        numbers = json.dumps(tree, ensure_ascii=False, allow_nan=False, indent=1)
        for name, text in ((NUMBERS, numbers), (PAGE, render(result))):
            # names of files may hold half of a surrogate pair, for a byte that is no text
            (new / name).write_text(text, "utf-8", "backslashreplace")


def render(result: Result) -> str:
    """The page; text of users and models is escaped."""
    shown = {name: _shown(figure) for name, figure in pictures.of(result).items()}
    if isinstance(result, Inspection):
        stacks = {"": result, **result.parts}
        told = _told(result.weighing) if result.weighing else {}
        return _filled("inspect.html", shown, found=result, stacks=stacks, told=told)
    if isinstance(result, Comparison):
        return _filled("compare.html", shown, result=result)
    if isinstance(result, Benchmark):
        return _filled("bench.html", shown, result=result)
    return _filled("portrait.html", shown, portrait=result)


def _told(found: Weighing) -> dict[str, list[str]]:
    """A heading and sentences for each thing that the weights say, by the name of its figure."""
    say = weights_words
    told = {
        f"table-{n}": [printable(one.tensor), *say.table(one)] for n, one in enumerate(found.tables)
    } | {f"bias-{n}": [printable(one.tensor), *say.bias(one)] for n, one in enumerate(found.biases)}
    if found.relative:
        told["relative"] = ["Vectors for distances", *say.relative(found.relative)]
    if found.bands:
        lines = [line for one in found.bands for line in say.bands(one)]
        told["strength"] = ["Strength of each pair", *lines]
    rest = {"Layout": [*say.layout(found)], "Not measured": [*say.unmeasured(found)]}
    return told | {name: [name, *lines] for name, lines in rest.items() if lines}


@dataclass(frozen=True)
class Shown:
    """A figure as a template needs it."""

    title: str
    alt: str
    table: Table
    json: str
    height: int  # in pixels, before it is drawn


def _shown(figure: Figure) -> Shown:
    drawn = screen.plotly(figure)
    return Shown(
        printable(figure.title, 200),
        figure.alt,
        listing.table(figure),
        _embedded(drawn.to_json()),
        drawn.layout.height,
    )


def _filled(template: str, shown: dict[str, Shown], **values: Any) -> str:
    loader = PackageLoader("posenc.report")
    made = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    made.globals |= {"words": words, "mathml": mathml}
    made.filters |= {"code": _code, "visible": _visible}
    return made.get_template(template).render(
        mark=MARK, plotly=get_plotlyjs(), figures=shown, properties=PROPERTIES, **values
    )


def _visible(value: Any) -> Any:
    """Text with nothing in it that cannot be seen, such as marks that turn its direction."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "\n".join(printable(line, len(line)) for line in value.split("\n"))


def _code(text: str) -> Markup:
    """What stands in back-quotes is code."""
    parts = _visible(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 and n < len(parts) - 1 else part
        for n, part in enumerate(parts)
    )


def _embedded(document: str | None) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = document or "null"
    return "".join(f"\\u{ord(c):04x}" if c in "<>&\u2028\u2029" else c for c in text)
