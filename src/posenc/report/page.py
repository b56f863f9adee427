"""One HTML page that opens offline, and the numbers beside it as JSON."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from plotly.offline import get_plotlyjs

from posenc.analysis.comparison import Comparison
from posenc.models.errors import printable
from posenc.models.inspection import Inspection
from posenc.models.weighing import Weighing
from posenc.properties import ALL
from posenc.report import figures, screen, weights_figures, weights_words, words
from posenc.report.drawing import Figure

PAGE, NUMBERS = "index.html", "results.json"
MARK = '<meta name="generator" content="posenc">'


def reserve(out: Path, force: bool = False) -> None:
    """Make the folder, or raise OSError with a sentence if a report should not be put there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        held = sorted(entry.name for entry in out.iterdir())
        strange = [name for name in held if not _ours(out, name)]
        if strange and not force:
            named = ", ".join(strange[:3]) + (" …" if len(strange) > 3 else "")
            raise FileExistsError(
                f"{out} holds {named}, which is not an earlier report: name another folder, or pass"
                " --force to write beside it."
            )
        probe = out / f".{PAGE}.tmp"
        probe.touch()
        probe.unlink()
    except FileExistsError as error:
        raise error if error.errno is None else FileExistsError(f"{out} is not a folder.") from None
    except OSError as error:
        raise OSError(f"{out} cannot be written to: {error.strerror}.") from None


def write(result: Comparison | Inspection, out: Path) -> None:
    """`results.json` and `index.html`, each complete or not there at all."""
    numbers = json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False, indent=1)
    _replace(out / NUMBERS, numbers)
    _replace(out / PAGE, render(result))


def render(result: Comparison | Inspection) -> str:
    """The page; text of users and models is escaped."""
    return _compared(result) if isinstance(result, Comparison) else _inspected(result)


def _compared(result: Comparison) -> str:
    drawn = {
        "curves": figures.curves(result),
        "rows": figures.rows(result),
        "order": figures.order(result),
        "costs": figures.costs(result),
    }
    return _filled(
        "compare.html",
        drawn,
        result=result,
        properties=[(measure.__name__, measure.__doc__) for measure in ALL],
        verdict=words.verdict(result),
    )


def _inspected(found: Inspection) -> str:
    stacks = {"": found, **found.parts}
    drawn = {
        f"bands-{n}-{m}": figures.bands(group.turning)
        for n, one in enumerate(stacks.values())
        for m, group in enumerate(one.groups)
        if group.turning
    }
    weights = {} if found.weighing is None else _weighed(found.weighing)
    told = {name: lines for name, (_, lines) in weights.items()}
    drawn |= {name: figure for name, (figure, _) in weights.items() if figure}
    return _filled("inspect.html", drawn, found=found, stacks=stacks, told=told)


def _weighed(found: Weighing) -> dict[str, tuple[Figure | None, list[str]]]:
    """A figure and sentences for each thing that the weights say."""
    say, draw = weights_words, weights_figures
    shown: dict[str, tuple[Figure | None, list[str]]] = {
        f"table-{n}": (draw.table(one), [printable(one.tensor), *say.table(one)])
        for n, one in enumerate(found.tables)
    } | {
        f"bias-{n}": (draw.bias(one), [printable(one.tensor), *say.bias(one)])
        for n, one in enumerate(found.biases)
    }
    if found.relative:
        names = "Vectors for distances"
        shown["relative"] = (draw.relative(found.relative), [names, *say.relative(found.relative)])
    if found.bands:
        lines = [line for one in found.bands for line in say.bands(one)]
        shown["strength"] = (draw.bands(found.bands), ["Strength of each pair", *lines])
    rest = [*say.layout(found), *say.broken(found)]
    return shown | ({"layout": (None, ["Layout", *rest])} if rest else {})


def _filled(template: str, drawn: Mapping[str, Figure | None], **values: Any) -> str:
    loader = PackageLoader("posenc.report")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    embedded = {
        name: _embedded(screen.plotly(figure).to_json()) for name, figure in drawn.items() if figure
    }
    return environment.get_template(template).render(
        mark=MARK, words=words, plotly=get_plotlyjs(), figures=embedded, **values
    )


def _embedded(document: str | None) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = document or "null"
    return "".join(f"\\u{ord(c):04x}" if c in "<>&\u2028\u2029" else c for c in text)


def _ours(out: Path, name: str) -> bool:
    path = out / name
    try:
        if name == PAGE:
            with path.open(encoding="utf-8") as file:
                return MARK in file.read(2_000)
        return name == NUMBERS and "posenc" in json.loads(path.read_text())["versions"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
