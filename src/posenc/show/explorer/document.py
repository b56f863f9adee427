"""Write the explorer's page as one offline HTML file, from the sources in the folder `page`.

The JavaScript modules become one script, each in its own function scope and after the modules that
it imports. So there is no build step, and modules may use the same names.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from posenc.show.explorer import packing
from posenc.show.report.output_folder import MARK, has_mark
from posenc.support.text import printable
from posenc.support.writing import write_whole

HERE = files("posenc.show.explorer")
MAIN, TEMPLATE, STYLE = "page/main.js", "page/page.html", "page/page.css"
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
PART = re.compile(r"/\* \{(style|data|script)\} \*/")  # a placeholder in the template
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const|let) (\w+))", re.MULTILINE)


def render(page: Mapping[str, Any]) -> str:
    """Insert the style, data and script of the page into its template, and return the HTML.

    Each `<` in the data is escaped, so that the data cannot end its script element.
    """
    parts = {
        "style": _text(STYLE),
        "data": packing.to_json(packing.packed(page)).replace("<", "\\u003c"),
        "script": script(),
    }
    template = _text(TEMPLATE).replace("<head>", f"<head>\n{MARK}", 1)
    return PART.sub(lambda match: parts[match[1]], template)


@cache
def script(main: str = MAIN) -> str:
    """Join the JavaScript module `main` and all its imports into one script, with `main` last."""
    return "\n".join(_scope(name) for name in _order(main))


def _order(main: str) -> list[str]:
    """List `main` and the JavaScript modules that it imports, each after its own imports."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(
                f"modules must not import each other in a circle, got {' → '.join((*above, name))}."
            )
        for other in _imported(name):
            visit(other, (*above, name))
        if name not in order:
            order.append(name)

    visit(main, ())
    return order


def _imported(name: str) -> Iterable[str]:
    return [_beside(name, match[2]) for match in IMPORT.finditer(_text(name))]


def _beside(name: str, path: str) -> str:
    """Return the path of an imported module, such as "../interpreter.js" in "page/main.js"."""
    return os.path.normpath(PurePosixPath(name).parent / path).replace(os.sep, "/")


def _scope(name: str) -> str:
    """Wrap a JavaScript module in a function that returns its exports."""
    code = _text(name)
    exports = [match[1] for match in EXPORT.finditer(code)]
    for line in re.findall(r"^export const .*;$", code, re.MULTILINE):
        # One statement can export several constants: `export const MOST_ROWS = 1, MOST_KEYS = 2`
        exports += re.findall(r", ([A-Z_]+) = ", line)
    code = IMPORT.sub(lambda match: _import_statement(match[1], _beside(name, match[2])), code)
    if re.search(r"^(import|export)\b", EXPORT.sub("", code), re.MULTILINE):
        raise ValueError(
            f"{name} imports or exports in a way that document.py cannot rewrite. Write it as in"
            " the other modules."
        )
    code = EXPORT.sub("", code)
    return f"const {_object(name)} = (() => {{\n{code}\nreturn {{ {', '.join(exports)} }};\n}})();"


def _import_statement(names: str, module: str) -> str:
    return f"const {{{names.replace(' as ', ': ')}}} = {_object(module)};\n"


def _object(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))


@cache
def _text(name: str) -> str:
    return HERE.joinpath(name).read_text("utf-8")


def write(page: str, out: Path) -> None:
    """Write the page atomically; an earlier page in this file is replaced."""
    write_whole(out, page.encode("utf-8", "backslashreplace"))


def check_place(out: Path, force: bool = False) -> None:
    """Raise OSError if the page must not, or cannot, be written to the file `out`."""
    name = printable(str(out), 4_000)
    if out.is_dir():
        raise IsADirectoryError(
            f"{name} is a folder. Name a file in this folder, {out.name}/explore.html."
        )
    if os.path.lexists(out) and not force and not has_mark(out, MARK):
        raise FileExistsError(
            f"{name} exists and is not a page of posenc. Use another file, or pass --force."
        )
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"{printable(str(out.parent), 4_000)} is not a folder. Create this folder."
        )
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(f"{printable(str(out.parent), 4_000)} cannot be written to.")


class Explorer:
    """The explorer's page. A notebook displays it; `save` writes it to a file."""

    def __init__(self, page: Mapping[str, Any]):
        self.data = page
        self.html = render(page)

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write the page. Raises OSError if the file exists and is not a page of posenc."""
        out = Path(path)
        check_place(out, force)
        write(self.html, out)
        return out

    def _repr_html_(self) -> str:
        frame = 'title="posenc explorer" style="width: 100%; height: 46rem; border: 0"'
        return f'<iframe {frame} srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        shown, models = len(self.data["encodings"]), len(self.data["models"])
        return (
            f"Explorer({shown} encodings, {models} models, {len(self.html) / 2**20:.1f} MiB):"
            " a notebook shows it, and save('explore.html') writes it"
        )
