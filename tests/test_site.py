"""The site: a page for each encoding with all that its card says, links that lead somewhere, and a
search without a server. `make site` builds the whole of it in CI; here are its quick parts.
"""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from posenc.catalog import CATALOG
from posenc.properties.card import findings

ROOT = Path(__file__).parent.parent
SLOW = ("explorer", "studies")  # parts; links to them lead nowhere here
CHECK = """
import sys
sys.path.insert(0, "tools")
from pathlib import Path
from website import build, links
out = Path(sys.argv[1])
BUILD
print(*links.broken(out), sep="\\n")
"""
pytestmark = [pytest.mark.slow, pytest.mark.repository]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder, and the links that lead nowhere; built in a Python of its own, as `make` does."""
    out = tmp_path_factory.mktemp("site") / "of posenc"
    code = CHECK.replace("BUILD", f"build.everything(out, {SLOW!r})")
    command = [sys.executable, "-c", code, str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return out, done.stdout.splitlines()


def words(html):
    return " ".join(unescape(re.sub("<[^>]+>", " ", html)).split())


def test_every_link_leads_somewhere_but_to_the_parts_left_out(site):
    _, broken = site
    ours = [
        line for line in broken if not re.search(r": (\.\./)*(index\.html|studies/|index)", line)
    ]
    assert ours == []
    assert len(broken) > 100  # so the test of links sees what is not there


def test_a_link_that_leads_nowhere_is_named(site, tmp_path):
    pages = {
        "a.html": '<a href="b.html#here">b</a> <a href="b.html#gone">b</a> <img src="none.png">',
        "b.html": '<h1 id="here">b</h1> <a href="../a.html">out</a> <a href="https://x.y">x</a>',
    }
    for name, html in pages.items():
        (tmp_path / name).write_text(html)
    command = [sys.executable, "-c", CHECK.replace("BUILD", ""), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert done.stdout.splitlines() == [
        "a.html: b.html#gone (the page is there, the anchor is not)",
        "a.html: none.png",
        "b.html: ../a.html",
    ]


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_each_encoding_has_a_page_with_all_that_is_known_of_it(site, card):
    html = (site[0] / f"encodings/{card.slug}.html").read_text("utf-8")
    text = words(html)
    assert html.count("<math>") >= 1
    assert html.count('<div class="figure"') >= 1
    for found in findings(card)["properties"].values():
        assert " ".join(found["why"].split()) in text
    assert unescape(card.paper.bibtex()) in unescape(html)
    source = Path(sys.modules[card.make.__module__].__file__).read_text("utf-8")
    assert " ".join(source.split()[-8:]).replace(" ", "") in text.replace(" ", "")
    assert (card.used_by or card.paper.short) in text
    assert f"index.html#v1/encoding/{card.slug}" in html
    assert 'id="limits"' in html


def test_every_page_asks_for_nothing_from_outside(site):
    for path in site[0].rglob("*.html"):
        html = path.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="([^"]+)"', html)
        assert not [one for one in loaded if re.match(r"\w+:(?!,)|//", one)], path


def test_the_search_knows_words_of_all_kinds(site):
    text = (site[0] / "search-index.js").read_text("utf-8")
    rows = json.loads(text.removeprefix("posencSearch(").removesuffix(");\n"))
    for word, place in {
        "torus": "glossary.html",
        "kerple": "encodings/kerple.html",
        "transformers#25681": "faults.html",
        "attend": "api/attention.html",
        "sarif": "models/check.html",
    }.items():
        found = {row[0].partition("#")[0] for row in rows if word in " ".join(row).lower()}
        assert place in found, word
    assert {row[0].partition("#")[0] for row in rows} > {
        f"encodings/{c.slug}.html" for c in CATALOG
    }


def test_what_is_no_earlier_site_is_not_replaced(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    tool = [sys.executable, "tools/site.py", str(tmp_path)]
    done = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "holds other things than an earlier site" in done.stderr
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_pages_in_a_browser(site, chromium, scheme, width):
    """No page is wider than the window, axe finds nothing, and the search leads to a page."""
    from axe_playwright_python.sync_playwright import Axe

    page = chromium.new_page(
        viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True
    )
    page.set_default_timeout(60_000)
    said = []
    page.on("pageerror", lambda error: said.append(str(error)))
    for name in (
        "start",
        "guide",
        "encodings/rope",
        "gallery/index",
        "models/index",
        "api/attention",
    ):
        page.goto((site[0] / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        assert Axe().run(page).response["violations"] == [], name
    page.keyboard.press("/")
    page.keyboard.type("wavelet")
    page.keyboard.press("ArrowDown")
    page.locator("#hits a").first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "api/attention" not in url)
    assert said == []
    page.close()
