"""Write a result as one HTML page that opens offline, with its numbers beside it as JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, Template
from markupsafe import Markup

from posenc.properties import ALL
from posenc.show.report import mathml, output_folder, phrases
from posenc.show.report.drawing import html, matplotlib
from posenc.show.report.drawing.data_table import data_table
from posenc.show.report.drawing.figure import COLOURS, Figure, FigureNumbers
from posenc.show.report.kinds import FILES_ONLY, figures_of, kind_of, sections_of
from posenc.show.report.output_folder import EXPLORER, FIGURES, MARK, NUMBERS, PAGE, reserve
from posenc.support.text import printable

__all__ = ["environment", "render", "reserve", "shown", "write"]

PROPERTIES = [(measure.__name__, (measure.__doc__ or "").splitlines()[0]) for measure in ALL]


def write(
    result: Any,
    out: Path,
    figures: str | None = None,
    views: Mapping[str, str] | None = None,
    width: float = matplotlib.WIDE,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
) -> None:
    """Write `results.json` and `index.html`, and replace an earlier report in the folder.

    - `views`: names of the encodings in the explorer beside the page, by slug; without them the
      page names the command that writes an explorer
    - `figures`: "png", "svg" or "pdf" writes each figure also as a file, `width` millimetres wide;
      `results.json` lists these files, so that the next report can remove them
    """
    drawn = figures_of(result) if figures else {}
    with output_folder.replacing(out) as new:
        if drawn:
            (new / FIGURES).mkdir()
        for n, (name, figure) in enumerate(drawn.items()):
            progress(f"drawing {name}", n, len(drawn) + 1)
            matplotlib.save(figure, new / FIGURES / f"{name}.{figures}", width)
        progress("drawing the page", len(drawn), len(drawn) + 1)
        tree = result.to_json() | {"figures": [f"{name}.{figures}" for name in drawn]}
        numbers = json.dumps(tree, ensure_ascii=False, allow_nan=False, indent=1)
        for name, text in ((NUMBERS, numbers), (PAGE, render(result, views))):
            # Names of files may contain lone surrogates for bytes that are not UTF-8
            (new / name).write_text(text, "utf-8", "backslashreplace")


def render(result: Any, views: Mapping[str, str] | None = None) -> str:
    """Render the page, with the text of users and models escaped."""
    kind = kind_of(result)
    sections = {
        section: {name: shown(figure) for name, figure in figures.items()}
        for section, figures in sections_of(result).items()
        if section != FILES_ONLY
    }
    return _template(f"{kind.__name__.rpartition('.')[2]}.html").render(
        mark=MARK,
        colours=COLOURS,
        properties=PROPERTIES,
        kind=kind,
        result=result,
        views=views,
        figures=sections,
    )


@dataclass(frozen=True)
class Shown:
    """A figure as HTML and JSON, with its title and alternative text, for use in a template."""

    title: str
    alt: str
    html: str
    json: str  # the numbers, which the script shows as a table


def shown(figure: Figure) -> Shown:
    """Draw a figure for the template macro `figure`."""
    title = printable(figure.title, 200)
    numbers = {"title": title, "table": _printable_table(data_table(figure))}
    embedded = _embedded(json.dumps(numbers, ensure_ascii=False))
    return Shown(title, figure.alt, html.to_html(figure), embedded)


def _printable_table(table: FigureNumbers) -> dict[str, Any]:
    heading, *rows = ([_visible(cell) for cell in row] for row in (table.heading, *table.rows))
    return {"heading": heading, "rows": rows, "note": _visible(table.note)}


def _template(name: str) -> Template:
    """Return the Jinja template with this file name."""
    return environment().get_template(name)


def environment(*places: BaseLoader) -> Environment:
    """Make the Jinja environment of report pages.

    Templates are found in `places` first, then in the package.
    """
    own = PackageLoader("posenc.show.report", "kinds"), PackageLoader("posenc.show.report")
    made = Environment(
        loader=ChoiceLoader([*places, *own]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    made.globals |= {"phrases": phrases, "mathml": mathml, "explorer": EXPLORER}
    made.filters |= {"code": _code, "visible": _visible}
    return made


def _visible(value: Any) -> Any:
    """Remove invisible characters from text, such as marks that reverse its direction."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "\n".join(printable(line, len(line)) for line in value.split("\n"))


def _code(text: str) -> Markup:
    """Mark text in back-quotes as code elements."""
    parts = _visible(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 and n < len(parts) - 1 else part
        for n, part in enumerate(parts)
    )


def _embedded(document: str) -> str:
    """Escape JSON so that its text cannot end the script element around it."""
    return "".join(f"\\u{ord(c):04x}" if c in "<>&\u2028\u2029" else c for c in document)
