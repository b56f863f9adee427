"""One HTML page that opens offline, and the numbers beside it as JSON."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from posenc.analysis.comparison import Comparison
from posenc.bench.run import Benchmark
from posenc.models.errors import printable
from posenc.models.inspection import Inspection
from posenc.models.weighing import Weighing
from posenc.properties import ALL
from posenc.report import mathml, paper, pictures, screen, weights_words, words
from posenc.report.drawing import Figure, Table
from posenc.report.pictures import Result

PAGE, NUMBERS, FIGURES = "index.html", "results.json", "figures"
PROPERTIES = [(one.__name__, (one.__doc__ or "").splitlines()[0]) for one in ALL]
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


def write(result: Result, out: Path, figures: str | None = None) -> None:
    """`results.json` and `index.html`, each complete or not there at all.

    `figures` is png, svg or pdf: each figure as a file of that kind as well. `results.json` lists
    them, so that the next report knows them for its own, and takes away those that it has not.
    """
    drawn = pictures.for_paper(result) if figures else {}
    names = {f"{name}.{figures}": figure for name, figure in drawn.items()}
    earlier = _listed(out)
    if names:
        (out / FIGURES).mkdir(exist_ok=True)
    for name, figure in names.items():
        with _unfinished(out / FIGURES / name) as path:
            paper.save(figure, path)
    tree = result.to_json() | {"figures": list(names)}
    numbers = json.dumps(tree, ensure_ascii=False, allow_nan=False, indent=1)
    for name, text in ((NUMBERS, numbers), (PAGE, render(result))):
        with _unfinished(out / name) as path:
            path.write_text(text, encoding="utf-8")
    for name in earlier - set(names):
        (out / FIGURES / name).unlink()


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
    rest = [*say.layout(found), *say.broken(found)]
    return told | ({"layout": ["Layout", *rest]} if rest else {})


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
        figure.table(),
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


def _ours(out: Path, name: str) -> bool:
    """Whether an earlier report made it."""
    try:
        if name == PAGE:
            with (out / name).open(encoding="utf-8") as file:
                return MARK in file.read(2_000)
        if name == FIGURES:
            return {one.name for one in (out / name).iterdir()} == _listed(out)
        return name == NUMBERS and _earlier(out) is not None
    except (OSError, ValueError):
        return False


def _listed(out: Path) -> set[str]:
    """Files in the folder of figures that an earlier report says it made."""
    known, folder = _earlier(out), out / FIGURES
    if known is None or not folder.is_dir():
        return set()
    return {one.name for one in folder.iterdir()} & set(known)


def _earlier(out: Path) -> list[str] | None:
    """The figures of the report that stands there; None if what stands there is none."""
    try:
        tree = json.loads((out / NUMBERS).read_text(encoding="utf-8"))
        known = "posenc" in tree["provenance"]["versions"]
        return [str(name) for name in tree["figures"]] if known else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A place to write to, which takes the place of `path` when all is written."""
    other = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        yield other
        os.replace(other, path)
    finally:
        other.unlink(missing_ok=True)
