"""Pages made from cards, examples, notebooks and studies, some of them complete in themselves."""

import ast
import contextlib
import io
import json
import os
import re
import sys
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import FileSystemLoader

from posenc import plot
from posenc.catalog import CATALOG, ENCODINGS
from posenc.lab.study import analysis, store
from posenc.lab.study.summary import summarise
from posenc.properties.card import findings
from posenc.show.explorer.explore import explore
from posenc.show.report import page, phrases
from posenc.show.report.drawing.figure import COLOURS
from posenc.show.report.terminal.catalog import FAMILIES

NOTEBOOKS = ("examples/first_steps.ipynb", "examples/class/*.ipynb")
SHARED = Path(page.__file__).parent / "templates"
ASSETS = (SHARED / "figure.css", SHARED / "page.js")  # of figures
PICTURES = (plot.clocks, plot.bias, plot.rows, plot.similarity, plot.attention)


class Page(NamedTuple):
    """A page in Markdown; `source` is the file of the repository that "edit this page" opens."""

    place: str
    text: str
    source: str
    description: str = ""  # "": the first paragraph
    image: str = ""


def pages(root: Path) -> Iterator[Page]:
    yield from _encodings(root)
    for path in sorted(root.glob("examples/*.py")):
        yield _example(path, path.relative_to(root).as_posix())
    for path in sorted(path for pattern in NOTEBOOKS for path in root.glob(pattern)):
        source = path.relative_to(root).as_posix()
        yield Page(_md(source), "\n\n".join(_cells(path)), source)
    for path in sorted(root.glob("studies/*/README.md")):
        text, source = path.read_text("utf-8"), path.relative_to(root).as_posix()
        if (path.parent / "results.db").exists():
            text = text.replace("[plan]", "[figures and tables](results.html) · [plan]", 1)
        title = text.partition("\n")[0].lstrip("# ")
        yield Page(source, text, source, f"What a study of small transformers found. {title}")


def whole(root: Path) -> dict[str, str]:
    """Return the pages that are complete in themselves: the explorer, and studies' figures."""
    made = {"explorer.html": explore().html}
    for path in sorted(root.glob("studies/*/results.db")):
        result = summarise(read := store.read(path.parent), analysis.analyse(read))
        place = f"studies/{path.parent.name}/results"
        made[f"{place}.html"] = page.render(result)
        made[f"{place}.json"] = json.dumps(result.to_json(), ensure_ascii=False)
    return made


def first(text: str) -> str:
    """Return the first paragraph of prose without its marks, at most 200 characters."""
    plain = re.sub(r"<!--.*?-->|<[^>]+>", "", text, flags=re.DOTALL)
    plain = re.sub(r"!?\[([^\[\]]*)\]\([^)]*\)|[`*]", r"\1", plain)
    blocks = [" ".join(block.split()) for block in plain.split("\n\n")]
    found = next((one for one in blocks if one and one[0] not in "#|-:"), "")
    return found if len(found) <= 200 else found[:200].rpartition(" ")[0] + " …"


def _encodings(root: Path) -> Iterator[Page]:
    """Yield the list of encodings, and a page for each."""
    template = page.environment(FileSystemLoader(Path(__file__).parent)).get_template("encoding.md")
    lines = ["# Encodings", "Each encoding is one short file that reads like its formula."]
    for family, title in FAMILIES.items():
        cards = [card for card in CATALOG if card.family == family]
        rows = [f"- [{card.name}]({card.slug}.md): {card.summary}" for card in cards]
        lines += [f"## {title}", "\n".join(rows)]
    yield Page("encodings/README.md", "\n\n".join(lines), "src/posenc/catalog.py")
    for card in CATALOG:
        reference: dict[str, list[str]] = {}
        for name, one in ENCODINGS.items():
            if one.__module__ == card.make.__module__:
                reference.setdefault(f"{one.__module__}.{one.__qualname__}", []).append(name)
        path = Path(sys.modules[card.make.__module__].__file__ or "")
        text = template.render(
            card=card,
            family=FAMILIES[card.family],
            blocks=phrases.blocks(card.text),
            figures={make.__name__: page.shown(figure) for make, figure in _pictures(card.slug)},
            found=findings(card)["properties"],
            reference=reference,
            code=path.read_text("utf-8"),
            colours=COLOURS,
        )
        source = os.path.relpath(path, root)
        yield Page(f"encodings/{card.slug}.md", text, source, f"{card.name}: {card.summary}")


def _pictures(slug: str) -> Iterator[tuple[Any, Any]]:
    for make in PICTURES:
        with contextlib.suppress(ValueError):  # some encodings have no such picture
            yield make, make(slug).figure


def _example(path: Path, source: str) -> Page:
    code = path.read_text("utf-8")
    summary, _, more = (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")
    picture = f"pictures/{path.stem}.png"
    shown = f"![{path.stem}]({picture})" if (path.parent / picture).exists() else ""
    title = path.stem.replace("_", " ").capitalize()
    text = f"# {title}\n\n{summary}\n\n{shown}\n\n{more}\n\n## Code\n\n```python\n{code}\n```\n"
    return Page(_md(source), text, source, image=f"examples/{picture}" if shown else "")


def _md(source: str) -> str:
    return str(Path(source).with_suffix(".md"))


def _cells(path: Path) -> Iterator[str]:
    """Yield the cells of a notebook as Markdown, each with what it prints and shows."""
    names: dict[str, Any] = {}
    sys.path.insert(0, str(path.parent))
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code":
            yield text
            continue
        yield f"```python\n{text}\n```"
        *before, last = ast.parse(text).body
        printed = io.StringIO()
        value: Any = None
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(before, []), path.name, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            else:
                exec(compile(ast.Module([last], []), path.name, "exec"), names)
        if printed.getvalue():
            yield f"<pre>{escape(printed.getvalue())}</pre>"
        if hasattr(value, "savefig"):  # a figure of Matplotlib
            value.savefig(drawn := io.BytesIO(), format="png")
            image = b64encode(drawn.getvalue()).decode()
            yield f'<img alt="{escape(text)}" src="data:image/png;base64,{image}">'
        elif text.endswith(";"):  # as in a notebook
            continue
        elif hasattr(value, "_repr_html_"):
            yield f'<div class="shown" data-search-exclude>\n{value._repr_html_()}\n</div>'
        elif value is not None:
            yield f"<pre>{escape(repr(value))}</pre>"
