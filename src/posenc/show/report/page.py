"""One HTML page that opens offline, and the numbers beside it as JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from posenc.lab.bench.run import Benchmark
from posenc.lab.compare.comparison import Comparison
from posenc.lab.study.summary import Summary
from posenc.models.files.errors import printable
from posenc.models.inspection import Inspection
from posenc.models.weighing import Weighing
from posenc.properties import ALL
from posenc.show.report import contents, mathml, paper, screen, words
from posenc.show.report.contents import Result
from posenc.show.report.drawing.data_table import data_table
from posenc.show.report.drawing.figure import COLOURS, Figure, Table
from posenc.show.report.figures.studies import in_order
from posenc.show.report.saving import folder
from posenc.show.report.saving.folder import EXPLORER, FIGURES, MARK, NUMBERS, PAGE, reserve
from posenc.show.report.words import studies as study_words
from posenc.show.report.words import weights as weights_words
from posenc.show.report.words.guide import GUIDE

__all__ = ["render", "reserve", "write"]

PROPERTIES = [(measure.__name__, (measure.__doc__ or "").splitlines()[0]) for measure in ALL]


def write(
    result: Result,
    out: Path,
    figures: str | None = None,
    views: Mapping[str, str] | None = None,
    width: float = paper.WIDE,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
) -> None:
    """Write `results.json` and `index.html`, which replace an earlier report as a whole.

    `views` are the names of encodings in the explorer beside it, by slug; without them the page
    names the command that makes one. `figures` is png, svg or pdf: each figure as a file of that
    kind as well, `width` millimetres across. `results.json` lists them, so that the next report
    recognises them and removes them.
    """
    drawn = contents.figures_for_paper(result) if figures else {}
    with folder.replacing(out) as new:
        if drawn:
            (new / FIGURES).mkdir()
        for n, (name, figure) in enumerate(drawn.items()):
            progress(f"drawing {name}", n, len(drawn) + 1)
            paper.save(figure, new / FIGURES / f"{name}.{figures}", width)
        progress("drawing the page", len(drawn), len(drawn) + 1)
        tree = result.to_json() | {"figures": [f"{name}.{figures}" for name in drawn]}
        numbers = json.dumps(tree, ensure_ascii=False, allow_nan=False, indent=1)
        for name, text in ((NUMBERS, numbers), (PAGE, render(result, views))):
            # names of files may hold half of a surrogate pair, for a byte that is no text
            (new / name).write_text(text, "utf-8", "backslashreplace")


def render(result: Result, views: Mapping[str, str] | None = None) -> str:
    """Render the page; text of users and models is escaped."""
    shown = {name: _shown(figure) for name, figure in contents.figures_of(result).items()}
    if isinstance(result, Inspection):
        stacks = {"": result, **result.parts}
        sections = _weight_sections(result.weighing) if result.weighing else {}
        return _filled("inspect.html", shown, inspection=result, stacks=stacks, sections=sections)
    if isinstance(result, Comparison):
        return _filled("compare.html", shown, result=result, views=views, guide=GUIDE)
    if isinstance(result, Benchmark):
        return _filled("bench.html", shown, result=result)
    if isinstance(result, Summary):
        rows = in_order(result.analysis.rows)
        bits = {row.task: row.bits for row in rows}
        return _filled("study.html", shown, result=result, rows=rows, bits=bits, say=study_words)
    return _filled("portrait.html", shown, portrait=result, views=views)


def _weight_sections(weighing: Weighing) -> dict[str, list[str]]:
    """A heading and sentences on each tensor that was measured, by the name of its figure."""
    say = weights_words
    sections = {
        f"table-{n}": [printable(part.tensor), *say.table(part)]
        for n, part in enumerate(weighing.tables)
    } | {
        f"bias-{n}": [printable(part.tensor), *say.bias(part)]
        for n, part in enumerate(weighing.biases)
    }
    if weighing.relative:
        sections["relative"] = ["Vectors for distances", *say.relative(weighing.relative)]
    if weighing.bands:
        lines = [line for part in weighing.bands for line in say.bands(part)]
        sections["strength"] = ["Strength of each pair", *lines]
    others = {"Layout": [*say.layout(weighing)], "Not measured": [*say.unmeasured(weighing)]}
    return sections | {name: [name, *lines] for name, lines in others.items() if lines}


@dataclass(frozen=True)
class Shown:
    """A figure as a template needs it."""

    title: str
    alt: str
    html: str
    json: str  # what the script adds: its numbers, and its states if it moves


def _shown(figure: Figure) -> Shown:
    drawn = screen.draw(figure)
    title, table = printable(figure.title, 200), data_table(figure)
    more: dict[str, Any] = {"title": title, "table": _printable_table(table)}
    if drawn.frames:
        more["frames"] = {
            "names": drawn.frames,
            "start": drawn.start,
            "states": drawn.states,
        }
    return Shown(title, figure.alt, drawn.html, _embedded(json.dumps(more, ensure_ascii=False)))


def _printable_table(table: Table) -> dict[str, Any]:
    heading, *rows = ([_visible(cell) for cell in row] for row in (table.heading, *table.rows))
    return {"heading": heading, "rows": rows, "note": _visible(table.note)}


def _filled(template: str, shown: dict[str, Shown], **values: Any) -> str:
    loader = PackageLoader("posenc.show.report")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    environment.globals |= {"words": words, "mathml": mathml, "explorer": EXPLORER}
    environment.filters |= {"code": _code, "visible": _visible}
    return environment.get_template(template).render(
        mark=MARK, colours=COLOURS, figures=shown, properties=PROPERTIES, **values
    )


def _visible(value: Any) -> Any:
    """Remove invisible characters from text, such as marks that reverse its direction."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "\n".join(printable(line, len(line)) for line in value.split("\n"))


def _code(text: str) -> Markup:
    """Set text in back-quotes as code."""
    parts = _visible(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 and n < len(parts) - 1 else part
        for n, part in enumerate(parts)
    )


def _embedded(document: str) -> str:
    """Escape JSON for a script element, so that nothing in it can end the element."""
    return "".join(f"\\u{ord(c):04x}" if c in "<>&\u2028\u2029" else c for c in document)
