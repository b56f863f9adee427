"""Write the pages of the site."""

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader
from markupsafe import Markup

from posenc.catalog import CATALOG
from posenc.lab.study import analysis, store
from posenc.lab.study.summary import summarise
from posenc.models import published
from posenc.properties import ALL
from posenc.show import plot
from posenc.show.explorer import explore
from posenc.show.report import page, words
from posenc.show.report.drawing.figure import COLOURS
from posenc.show.report.kinds.study import words as verdicts
from posenc.show.report.terminal.catalog import FAMILIES
from website import code, encodings, links, places, reference, writing

HERE = Path(__file__).parent
ROOT = places.ROOT
SHARED = ROOT / "src/posenc/show/report/templates"
STYLES = (SHARED / "page.css", HERE / "templates/site.css")
SCRIPTS = {"site.js": HERE / "templates/site.js", "figures.js": SHARED / "page.js"}
INDEX = "search-index.js"  # also what an earlier site is known by
MENU = {  # the doors of every page
    "Explorer": "index.html",
    "Start": "start.html",
    "Use": "using.html",
    "Guide": "guide.html",
    "Encodings": "encodings/index.html",
    "Gallery": "gallery/index.html",
    "Models": "models/index.html",
    "Studies": "studies/index.html",
    "Questions": "faq.html",
    "Glossary": "glossary.html",
    "Reference": "api/index.html",
}
TWENTY_MEGABYTES = 20 * 2**20


class Site:
    """A folder of pages; files of the repository that they link to become pages, too."""

    def __init__(self, out: Path):
        self.out = out
        self.templates = page.environment(FileSystemLoader(HERE / "templates"))
        self.wanted: dict[str, None] = {}  # places that pages link to
        self.count = 0

    def want(self, place: str) -> None:
        self.wanted[place] = None

    def write(self, place: str, template: str, **values: Any) -> None:
        """Write a page from a template; `to` makes links from it."""

        def to(target: str) -> str:
            return places.relative(target, place)

        html = self.templates.get_template(template).render(
            to=to, here=place, menu=MENU, colours=COLOURS, encoding_at=places.encoding, **values
        )
        self.write_text(place, html)
        self.count += 1

    def write_text(self, place: str, text: str) -> None:
        path = self.out / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def text(self, source: str, place: str, *changes: tuple[str, str]) -> None:
        """Write a text of the repository as a page, with some strings replaced."""
        written = (ROOT / source).read_text("utf-8")
        for old, new in changes:
            written = written.replace(old, new)
        title, html = writing.render(written, source, place, self.want)
        self.write(place, "text.html", title=title, html=html)

    def bar(self, html: str, place: str) -> str:
        """Put the doors of the site above a page that is complete in itself."""
        bar = self.templates.get_template("bar.html").render(
            to=lambda target: places.relative(target, place), here=place, menu=MENU
        )
        return re.sub(r"(<a class=\"skip\".*?</a>)", lambda m: f"{m[1]}\n{bar}", html, count=1)


def everything(out: Path, left_out: Sequence[str] = ()) -> int:
    """Write the site in place of an earlier one, and return the number of its pages.

    `left_out` are names of parts, for tests; links to them lead nowhere then.
    """
    check_place(out)
    shutil.rmtree(out, ignore_errors=True)
    site = Site(out)
    for part in PARTS:
        if part.__name__ not in left_out:
            part(site)
    finish(site)
    return site.count


def check_place(out: Path) -> None:
    if out.exists() and any(out.iterdir()) and not (out / INDEX).exists():
        raise SystemExit(f"{out} holds other things than an earlier site: name another folder.")


def finish(site: Site) -> None:
    """Write what pages link to, and what they all share; the index of the search comes last."""
    files(site)
    for name, path in SCRIPTS.items():
        site.write_text(name, path.read_text("utf-8"))
    site.write_text("site.css", "\n".join(path.read_text("utf-8") for path in STYLES))
    site.write("search.html", "search.html", title="Search")
    site.write_text(".nojekyll", "")
    site.write_text(INDEX, links.index(links.read(site.out)))


# ---- The parts


def explorer(site: Site) -> None:
    site.write_text("index.html", site.bar(explore.explore().html, "index.html"))
    site.count += 1


def texts(site: Site) -> None:
    made = ("examples/README.md", "studies/README.md", "benchmarks/README.md")
    for source, place in places.TEXTS.items():
        if source not in made and (ROOT / source).exists():
            site.text(source, place)
    for source in ("docs/pictures", "examples/pictures"):
        shutil.copytree(ROOT / source, site.out / "files" / source, dirs_exist_ok=True)


def all_encodings(site: Site) -> None:
    measured = {card.slug: encodings.described(card) for card in CATALOG}
    families = {
        title: [card for card in CATALOG if card.family == family]
        for family, title in FAMILIES.items()
    }
    heads = [words.label(measure.__name__) for measure in ALL]
    site.write(
        "encodings/index.html",
        "encodings.html",
        title="Encodings",
        families=families,
        heads=heads,
        means=dict(page.PROPERTIES),
        properties={slug: encodings.properties(one) for slug, one in measured.items()},
    )
    trained = trained_in()
    for n, card in enumerate(CATALOG):
        one, place = measured[card.slug], places.encoding(card.slug)
        path = encodings.source(card)
        site.write(
            place,
            "encoding.html",
            title=card.name,
            card=card,
            family=FAMILIES[card.family],
            blocks=words.blocks(card.text),
            figures={k: page.shown(figure) for k, figure in encodings.pictures(card).items()},
            properties=encodings.properties(one),
            limits=[*encodings.limits(card, one)],
            trained=trained.get(card.slug, {}),
            path=path,
            code=code.coloured((ROOT / path).read_text("utf-8"), "python"),
            reference=places.module(encodings.module(card)),
            before=CATALOG[n - 1] if n else None,
            after=CATALOG[n + 1] if n + 1 < len(CATALOG) else None,
        )


def gallery(site: Site) -> None:
    """The list of the examples, and a page for each: its claim, its picture, its code."""
    source = "examples/README.md"
    text = (ROOT / source).read_text("utf-8")
    claims = dict(re.findall(r"^\| \[\w+\]\((\w+)\.py\) \| (.*?) \|", text, re.M))
    there = {path.stem for path in (ROOT / "examples/pictures").glob("*.png")}
    sections = re.split(r"^(?=## )", text, flags=re.M)[1:]  # what follows the tables of scripts
    place = places.TEXTS[source]
    more = [writing.render(one, source, place, site.want)[1] for one in sections]
    site.write(
        place,
        "gallery.html",
        title="Gallery",
        shown={name: writing.line(claim) for name, claim in claims.items() if name in there},
        others={name: writing.line(claim) for name, claim in claims.items() if name not in there},
        more=Markup().join(more),
    )
    for name, claim in claims.items():
        path = ROOT / "examples" / f"{name}.py"
        site.write(
            f"gallery/{name}.html",
            "example.html",
            title=name.replace("_", " "),
            claim=writing.line(claim),
            name=name,
            picture=f"files/examples/pictures/{name}.png" if name in there else "",
            code=code.coloured(path.read_text("utf-8"), "python"),
        )
    notebook = json.loads((ROOT / "examples/first_steps.ipynb").read_text("utf-8"))
    site.write(
        "gallery/first_steps.html",
        "notebook.html",
        title="First steps",
        cells=[*_cells(notebook, site)],
        file="files/examples/first_steps.ipynb",
    )
    site.want("files/examples/first_steps.ipynb")


def _cells(notebook: Mapping[str, Any], site: Site) -> Iterable[tuple[str, Markup]]:
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            yield "code", code.coloured(text, "python")
        else:
            place = "gallery/first_steps.html"
            _, html = writing.render(text, "examples/first_steps.ipynb", place, site.want)
            yield "text", html


def models(site: Site) -> None:
    """What published models do, by the rotation of the layers that see farthest."""
    figure = page.shown(plot.models().figure)
    site.write(
        "models/index.html",
        "models.html",
        title="Published models",
        models=published.models(),
        methods=words.METHODS | {"default": "as trained", "linear": "PI", "longrope": "LongRoPE"},
        figures={"models": figure},
    )


def studies(site: Site) -> None:
    """The page of each study, and for one with outcomes its figures and tables."""
    headlines = dict[str, tuple[str, str]]()
    for folder in stores():
        result = summarise(contents := store.read(folder), analysis.analyse(contents))
        place = f"studies/{folder.name}/index.html"
        (site.out / place).parent.mkdir(parents=True, exist_ok=True)
        page.write(result, (site.out / place).parent)
        html = (site.out / place).read_text("utf-8")
        site.write_text(place, site.bar(html, place))
        site.count += 1
        headlines[folder.name] = titled(folder), verdicts.headline(result.analysis)
    for path in sorted(ROOT.glob("studies/*/README.md")):
        study, plan = path.parent.name, "[plan](plan.toml)"
        more = f"[**figures and tables**](../{study}) · {plan}" if study in headlines else plan
        site.text(f"studies/{study}/README.md", places.finding(study), (plan, more))
    source = "studies/README.md"
    place, text = places.TEXTS[source], (ROOT / source).read_text("utf-8")
    html = writing.render(text, source, place, site.want)[1]
    site.write(place, "studies.html", title="Studies", studies=headlines, html=html)


def stores() -> list[Path]:
    return sorted(path.parent for path in ROOT.glob("studies/*/results.db"))


def trained_in() -> dict[str, dict[str, str]]:
    """By encoding the studies that trained it, each with its title."""
    found: dict[str, dict[str, str]] = {}
    for folder in stores():
        contents = store.read(folder)
        for row in analysis.analyse(contents).rows:
            found.setdefault(row.encoding, {})[folder.name] = titled(folder)
    return found


def titled(folder: Path) -> str:
    """The title of a study's finding."""
    return (folder / "finding.md").read_text("utf-8").splitlines()[0].lstrip("# ")


def benchmarks(site: Site) -> None:
    site.text("benchmarks/README.md", places.TEXTS["benchmarks/README.md"])


def api(site: Site) -> None:
    package = reference.load()
    rooms, doors = reference.rooms(package), reference.doors(package)
    anchors = {room.name: room for room in rooms}
    site.write(
        "api/index.html",
        "reference.html",
        title="Reference",
        rooms=rooms,
        doors={name: places.module(where) for name, where in sorted(doors.items())},
        summaries=reference.summaries(package, doors),
    )
    for name, room in anchors.items():
        site.write(f"api/{name}.html", "room.html", title=f"posenc.{name}", room=room)


def files(site: Site) -> None:
    """Files and folders of the repository that pages link to, as pages, or as they are."""
    done: set[str] = set()
    while todo := [place for place in site.wanted if place not in done]:
        for place in todo:
            done.add(place)
            kind, _, path = place.partition("/")
            if kind == "source":
                _source(site, place, path.removesuffix(".html"))
            elif kind == "files" and path.endswith("/index.html"):
                _folder(site, place, path.removesuffix("/index.html"))
            elif kind == "files":
                (site.out / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, site.out / place)


def _source(site: Site, place: str, path: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    shown = code.coloured(text, code.language(path))
    site.write(place, "source.html", title=path, code=shown)


def _folder(site: Site, place: str, path: str) -> None:
    inside = [p for p in sorted((ROOT / path).iterdir()) if not p.name.startswith((".", "__"))]
    small = [p for p in inside if p.is_dir() or p.stat().st_size < TWENTY_MEGABYTES]
    rows = {p.name: str(places.of(p.relative_to(ROOT).as_posix())) for p in small}
    for target in rows.values():
        site.want(target)
    site.write(place, "folder.html", title=path, rows=rows)


PARTS = (
    explorer, texts, all_encodings, gallery, models, studies, benchmarks, api,
)  # fmt: skip
