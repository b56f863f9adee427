"""A headless Chromium that reaches nothing but the file it opens, and what it makes of a page."""

import os
import shutil
import time
from dataclasses import dataclass

import pytest

AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@dataclass(frozen=True)
class Seen:
    said: list[str]  # errors and warnings in the console
    asked: list[str]  # addresses outside the file
    violations: list[str]  # of WCAG 2 A and AA, by axe-core
    empty: list[str]  # figures that are not drawn
    wide: int  # pixels by which the page is wider than the window
    seconds: float


@pytest.fixture(scope="session")
def chromium():
    """The browser of the system. CI sets POSENC_BROWSER: then none is an error, not a skip."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        found, lacking = None, "playwright is not installed"
    else:
        lacking = "there is no chromium on the path"
    if found is None:
        assert "POSENC_BROWSER" not in os.environ, f"POSENC_BROWSER is set, but {lacking}"
        pytest.skip(lacking)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """visit(path, scheme="dark", width=1280) -> Seen, with everything opened and drawn."""
    from axe_playwright_python.sync_playwright import Axe

    def look(path, scheme="light", width=1280, axe=True):
        said, asked = [], []
        with chromium.new_context(
            color_scheme=scheme, offline=True, viewport={"width": width, "height": 900}
        ) as context:
            page = context.new_page()
            page.on("console", lambda m: said.append(m.text) if m.type != "log" else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda r: asked.append(r.url) if _outside(r.url) else None)
            page.on("dialog", lambda dialog: said.append(dialog.message))
            begun = time.perf_counter()
            page.goto(path.resolve().as_uri())
            seconds = time.perf_counter() - begun
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            page.evaluate("sources.forEach((_, place) => come(place))")
            empty = page.eval_on_selector_all(
                ".figure", "all => all.filter(f => !f.querySelector('.main-svg')).map(f => f.id)"
            )
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            options = {"runOnly": AA, "resultTypes": ["violations"]}
            found = Axe().run(page, options=options).response["violations"] if axe else []
        return Seen(said, asked, _named(found), empty, wide, seconds)

    return look


def _outside(url):
    return not url.startswith(("file:", "data:", "blob:"))


def _named(violations):
    return [
        f"{one['id']} {node['target'][0]}: {node['html'][:100]}"
        for one in violations
        for node in one["nodes"]
    ]
