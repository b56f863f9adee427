"""The site: every link leads somewhere, every encoding and public name has its place, and pages are
readable on a phone, in the dark and by a screen reader. It is built once, as `make site` builds it.
"""

import http.server
import os
import re
import subprocess
import sys
import threading
from functools import partial
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest

import posenc
from posenc.catalog import CATALOG, ENCODINGS
from posenc.properties.card import findings

ROOT = Path(__file__).parent.parent
BUILD = [sys.executable, str(ROOT / "docs/site/build.py")]
FAULTS = """
import sys
sys.path.insert(0, "docs/site")
from pathlib import Path
import check
print(*check.faults(Path(sys.argv[1])), sep="\\n")
"""
HEAD = (
    '<meta name="description" content="d"><meta property="og:title" content="t">'
    '<meta property="og:description" content="d"><meta property="og:image" content="i.png">'
)
PUBLISHED = {"GITHUB_REPOSITORY": "some/where", "GITHUB_SERVER_URL": "https://github.example"}
pytestmark = [pytest.mark.slow, pytest.mark.repository]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built without faults as GitHub builds it."""
    out = tmp_path_factory.mktemp("of posenc") / "where"  # the path in its address
    done = subprocess.run(
        [*BUILD, str(out)], cwd=ROOT, env=os.environ | PUBLISHED, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def address(site):
    """The address of a server of the folder on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=site.parent)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/where/"
        server.shutdown()


def words(html):
    return " ".join(unescape(re.sub("<[^>]+>", " ", html)).split())


def heads(site):
    """The head of each page, by its path."""
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    return {
        path.relative_to(site).as_posix(): html.partition("</head>")[0]
        for path, html in pages.items()
    }


def test_faults_of_a_page_are_named(tmp_path):
    pages = {
        "a.html": f'{HEAD}<a href="b.html#here"></a> <a href="b.html#gone"></a> <img src="no.png">',
        "b.html": f'{HEAD}<h1 id="here">b</h1> <a href="x.html">x</a> <i id="here">x</b></i>',
        "c.html": '<a href="https://x.y">x</a>',
    }
    for name, html in pages.items():
        (tmp_path / name).write_text(html)
    command = [sys.executable, "-c", FAULTS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert done.stdout.splitlines() == [
        "a.html: no.png has no alternative text",
        "a.html: b.html#gone",
        "a.html: no.png",
        "b.html: two elements have the id here",
        "b.html: </b> at line 1 closes nothing",
        "b.html: x.html",
        "c.html: no description",
        "c.html: no og:title",
        "c.html: no og:description",
        "c.html: no og:image",
    ]


def test_every_page_has_a_title_and_a_description_of_its_own(site):
    """Figures of studies are pages of the package, and two studies may have one title there."""
    found = {}
    for path, head in heads(site).items():
        title = re.search("<title>(.*?)</title>", head)[1]
        says = re.search(r'<meta name="description" content="(.*?)"', head)[1]
        assert len(says) > 20, path
        for text in (title, says) if not path.endswith("results.html") else ():
            found.setdefault(text, []).append(path)
        assert 'property="og:image" content="https://some.github.io/where/' in head, path
        assert 'rel="icon"' in head, path
    assert [pages for pages in found.values() if len(pages) > 1] == []


def test_the_link_for_edits_leads_to_a_file_of_the_repository(site):
    edit = re.compile(r'href="https://github\.example/some/where/edit/main/([^"]+)"')
    found = {path: edit.findall(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(found) > 100
    for path, files in found.items():
        complete = path.name in ("404.html", "explorer.html", "results.html")
        assert len(files) == (0 if complete else 1), path
        assert [file for file in files if not (ROOT / file).is_file()] == [], path


def test_pages_of_the_package_lead_back_to_the_site(site):
    results = [*site.glob("studies/*/results.html")]
    assert len(results) > 5
    for path in (site / "explorer.html", *results):
        assert 'index.html">posenc</a></nav>' in path.read_text("utf-8"), path


def test_notebooks_show_what_their_cells_return(site):
    exercise = (site / "examples/class/3_rope.html").read_text("utf-8")
    assert exercise.count("data:image/png;base64,") == 2
    assert exercise.count("<pre>✕ Nothing is written yet.") == 2
    first = (site / "examples/first_steps.html").read_text("utf-8")
    assert first.count("data:image/svg+xml;base64,") >= 5
    assert "torch.Size([1, 16, 512])" in first


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_each_encoding_has_a_page_with_its_formula_pictures_properties_code_and_paper(site, card):
    html = (site / f"encodings/{card.slug}.html").read_text("utf-8")
    text = words(html)
    assert html.count("<math>") >= 1
    assert html.count('<div class="figure"') >= 1
    for found in findings(card)["properties"].values():
        assert "".join(found["why"].replace("`", "").split()) in text.replace(" ", "")
    assert card.paper.bibtex.splitlines()[0] in re.sub("<[^>]+>", "", html)
    source = Path(sys.modules[card.make.__module__].__file__).read_text("utf-8")
    assert "".join(source.split()[-8:]) in text.replace(" ", "")
    assert card.used_by in text
    assert f"explorer.html#v1/encoding/{card.slug}" in html


OF_MODULE = "multimodal", "patches"  # functions whose modules have their names


def public():
    """The names that the reference must have: those of posenc, and of modules with `__all__`.

    Encodings are looked up where they are defined, because each has a page of its own.
    """
    for name in {*dir(posenc)} - {"CATALOG", "__version__", "properties", "study"}:
        value = getattr(posenc, name)
        if isinstance(value, ModuleType):
            yield from (f"{name}.{one}" for one in value.__all__ if one not in OF_MODULE)
        elif name in ENCODINGS and not value.__module__.endswith("remaps"):
            yield f"{value.__module__}.{value.__qualname__}".removeprefix("posenc.")
        else:
            yield name
    yield from (f"positions.{name}.{name}" for name in OF_MODULE)
    yield from (f"properties.{measure.__name__}" for measure in posenc.properties.ALL)


def test_the_reference_has_every_public_name_with_types_and_source(site):
    html = "".join(
        path.read_text("utf-8")
        for place in ("reference", "encodings")
        for path in (site / place).iterdir()
    )
    assert sorted({*public()} - {*re.findall(r'<h\d id="posenc\.([^"]+)"', html)}) == []
    html = (site / "reference/attention.html").read_text("utf-8")
    assert 'href="own_encoding.html#posenc.Encoding"' in html
    assert "def attend(" in words(html).replace(" (", "(")


def test_no_page_loads_anything_from_outside(site):
    for path in site.rglob("*.html"):
        html = path.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*src="([^"]+)"', html)
        loaded += re.findall(
            r'<link[^>]*rel="(?:stylesheet|icon|preload)"[^>]*href="([^"]+)"', html
        )
        assert not [
            one for one in loaded if re.match(r"\w+:(?!,)|//", one) and not one.startswith("data:")
        ], path


def test_what_is_no_earlier_site_is_not_replaced(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = subprocess.run([*BUILD, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Name another folder" in done.stderr
    assert (tmp_path / "mine.txt").read_text() == "mine"


PAGES = """
    index 404 explorer docs/guide docs/properties encodings/index encodings/rope examples/index
    examples/fingerprints examples/first_steps examples/class/index studies/fair-text/index
    studies/fair-text/results reference/index reference/attention
""".split()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_pages_in_a_browser(address, chromium, scheme, width):
    """No page is wider than the window or loads from another host; axe finds nothing."""
    from axe_playwright_python.sync_playwright import Axe

    size = {"width": width, "height": 844}
    page = chromium.new_page(viewport=size, color_scheme=scheme, bypass_csp=True)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for name in PAGES:
        page.goto(f"{address}{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        assert Axe().run(page).response["violations"] == [], name
    page.keyboard.press("/")
    page.keyboard.type("wavelet", delay=100)
    page.get_by_text("wavelet", exact=False).first.wait_for()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert said == []
    page.close()
