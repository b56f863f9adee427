"""The pages against a browser that reaches nothing else, and axe-core's reading of WCAG 2."""

import dataclasses
import json
import re
import time
from dataclasses import dataclass
from importlib.resources import files
from xml.etree import ElementTree

import pytest
from made_studies import plan, study
from small_models import saved
from thorough import some

from posenc.analysis.text import parse
from posenc.lab.compare import real_model
from posenc.lab.study.summary import summarise
from posenc.models import inspection
from posenc.show.report import page

pytestmark = pytest.mark.slow

TABLES = 3  # of those behind figures are opened: they are all made by one function
OPEN = f"""
for (const one of document.querySelectorAll("details:not(.numbers)")) one.open = true;
for (const one of [...document.querySelectorAll(".numbers")].slice(0, {TABLES})) one.open = true;
"""
DRAWN = {"exclude": [[".figure"]]}  # is an image to who cannot see it, with words of its own
AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
TEXT = parse("dogs", "the old dog chased another dog until the cat chased it away again .\n\n" * 8)
EMPTY = """all => all.filter(one => {
    const plots = [...one.querySelectorAll(".plot")];
    return !plots.length || plots.some(plot => plot.getBoundingClientRect().height < 20);
}).map(one => one.id)"""
BROKEN = """() => [...document.querySelectorAll("td")].filter(cell => {
    const number = /^[−-]?[0-9][0-9.,·⁰¹²³⁴⁵⁶⁷⁸⁹⁻e-]*( ?(ms|µs|s|MB|%))?$/;
    if (!number.test(cell.innerText.trim())) return false;
    const range = document.createRange();
    range.selectNodeContents(cell);
    const tops = [...range.getClientRects()].filter(box => box.height).map(box => box.top);
    return Math.max(...tops) - Math.min(...tops) > 8;
}).map(cell => cell.innerText)"""  # numbers on two lines, or apart from their units
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
    "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    said: list[str]  # errors and warnings in the console
    asked: list[str]  # addresses outside the file
    violations: list[str]  # of WCAG 2 A and AA, by axe-core
    empty: list[str]  # figures that are not drawn
    wide: int  # pixels by which the page is wider than the window
    broken: list[str]  # numbers in cells that are torn apart
    seconds: float


@pytest.fixture
def visit(chromium):
    """visit(path, scheme="dark") -> Seen."""
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
            page.evaluate(OPEN)
            empty = page.eval_on_selector_all(".figure", EMPTY)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            broken = page.evaluate(BROKEN)
            options = {"runOnly": AA, "resultTypes": ["violations"]}
            found = Axe().run(page, DRAWN, options).response["violations"] if axe else []
        return Seen(said, asked, _named(found), empty, wide, broken, seconds)

    return look


@pytest.fixture(scope="module")
def pages(everything, portrait, tmp_path_factory):
    """Folders of the pages of each command; `all` holds every encoding."""
    out = tmp_path_factory.mktemp("pages")
    config = out / "config.json"
    config.write_text(json.dumps(LLAMA))
    model = saved("Llama", out / "model", TEXT.words)
    read = dataclasses.replace(portrait, reading=real_model.read(model, TEXT))
    planned = plan(
        tasks=["copy", "language"], contrast=[["nope", "rope"], [["nope", "t5"], ["alibi"]]]
    )
    studied = summarise(study(planned, failures=[("rope", 2)], deviations=["`seeds` is 5 there"]))
    few = [one for one in everything.encodings if one.slug in ("nope", "deberta", "rope")]
    for name, result in (
        ("all", everything),
        ("compare", dataclasses.replace(everything, encodings=few)),
        ("inspect", inspection.inspect(config, 200_000)),
        ("report", read),
        ("study", studied),
    ):
        (out / name).mkdir()
        page.write(result, out / name)
    return out


PAGES = ("compare", "inspect", "report", "study")
BOTH = [
    (name, scheme)
    for n, name in enumerate(PAGES)
    for scheme in some((("dark", "light") if n % 2 else ("light", "dark")), 2)
]


@pytest.mark.parametrize(("name", "scheme"), BOTH)
def test_in_both_themes_everybody_can_read_it(pages, visit, name, scheme):
    seen = visit(pages / name / page.PAGE, scheme)
    assert seen.said == []
    assert seen.violations == []


@pytest.mark.parametrize("name", ["all", "inspect", "report", "study"])
def test_opens_alone_and_soon(pages, visit, name):
    path = pages / name / page.PAGE
    seen = visit(path, axe=False)
    print(f"{name}: {path.stat().st_size / 2**20:.1f} MiB in {seen.seconds:.1f} s")
    assert path.stat().st_size < 2.5 * 2**20
    assert seen.asked == seen.said == seen.empty == []


@pytest.mark.parametrize("name", PAGES)
def test_on_a_phone_nothing_sticks_out_and_no_number_is_torn(pages, visit, name):
    seen = visit(pages / name / page.PAGE, width=400, axe=False)
    assert seen.wide <= 0
    assert seen.broken == []


HELD = "all => all.map(one => !!one.lastElementChild.querySelector('.yes'))"  # the last column


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 820, 390])
def test_the_first_figure_of_compare_is_in_the_first_screen(pages, chromium, width, scheme):
    """At three widths and in both themes, also where no script runs."""
    for script in (True, False):
        with chromium.new_context(
            color_scheme=scheme,
            offline=True,
            java_script_enabled=script,
            viewport={"width": width, "height": 900},
        ) as context:
            page = context.new_page()
            page.goto((pages / "all" / "index.html").resolve().as_uri())
            box = page.locator(".figure .plot").first.bounding_box()
            assert box["height"] > 40
            assert box["y"] + box["height"] < 900
            assert page.locator(".figure .plot image").count() > 20


A4 = {"format": "A4", "margin": dict.fromkeys(("top", "bottom", "left", "right"), "12mm")}


def paper(context, path):
    """Open a page, and print it on A4."""
    page = context.new_page()
    page.goto(path.resolve().as_uri())
    return page, page.pdf(**A4)


def count_pages(pdf):
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def test_compare_on_paper_has_its_overview_and_the_sections_that_are_open(pages, chromium):
    """A4 as Chromium prints it: every encoding closed, and one of them open."""
    with chromium.new_context(offline=True) as context:
        page, pdf = paper(context, pages / "all" / "index.html")
        closed = count_pages(pdf)
        assert 6 <= closed <= 16
        page.locator("details.entry").first.evaluate("one => { one.open = true }")
        opened = count_pages(page.pdf(**A4))
        assert closed <= opened <= closed + 2
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1032})  # A4 within the margins, at 96 dpi
        top = page.locator(".figure .panel").nth(7).bounding_box()
        assert top["y"] + top["height"] < 1032  # the first page has pictures
        tall = page.locator(".panel").evaluate_all("all => all.map(one => one.offsetHeight)")
        assert max(tall) < 1032  # so that none is cut by the end of a page


def test_the_meaning_of_columns_is_printed(pages, chromium):
    with chromium.new_context(offline=True) as context:
        page, _ = paper(context, pages / "compare" / "index.html")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        for text in ("the change of the output of attention", "1,024"):
            assert page.locator("details.meaning dd", has_text=text).first.is_visible()


def test_compare_begins_with_the_story(everything):
    """The links of its first lines open the scenes of the explorer beside it, by their names."""
    views = {one.slug: one.slug for one in everything.encodings}
    head = page.render(everything, views).partition("<h1>")[2].partition('class="figure"')[0]
    links = re.findall(r'href="explore\.html#v1/story\?scene=(\d)">(?:<b>)?([^<]+)', head)
    story = files("posenc.show.explorer") / "page/story/story.js"
    names = re.search(r"const NAMES = (\[.+\]);", story.read_text("utf-8"))[1]
    assert [int(scene) for scene, _ in links] == [*range(7)]
    assert [name.rpartition(": ")[2] for _, name in links] == json.loads(names)
    assert "explore.html" not in page.render(everything)  # without an explorer


def test_rows_of_numbers_are_one_line_high_on_a_phone(pages, chromium):
    """The table scrolls sideways; its cells do not wrap."""
    with chromium.new_context(offline=True, viewport={"width": 390, "height": 844}) as context:
        page = context.new_page()
        page.goto((pages / "all" / "index.html").resolve().as_uri())
        rows = page.locator("table[data-explained]:not(.matrix) tbody tr")
        heights = rows.evaluate_all("all => all.map(one => one.offsetHeight)")
        assert len(heights) > 20
        assert max(heights) < 45


def test_values_witnesses_and_rows_are_reached_by_keys(pages, chromium):
    with chromium.new_context(offline=True) as context:
        page = context.new_page()
        page.goto((pages / "all" / "index.html").resolve().as_uri())
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        table = page.locator("table.matrix")
        table.locator("td[tabindex='0']").focus()
        line = page.locator("p.why").first
        before = line.inner_text()
        page.keyboard.press("ArrowRight")
        assert line.inner_text() not in ("", before)
        page.get_by_role("combobox", name="Holds").select_option("several axes")
        rows = table.locator("tbody tr:not(.family)")
        shown = [rows.nth(n).is_visible() for n in range(rows.count())]
        held = rows.evaluate_all(
            "all => all.map(one => !!one.lastElementChild.querySelector('.yes'))"
        )
        assert shown == held
        assert any(shown)
        assert not all(shown)
        names = page.locator("details.numbers[data-numbers] summary").all_text_contents()
        assert len({*names}) == len(names)  # each has the name of its figure


def test_a_figure_is_saved_as_a_file(pages, chromium):
    with chromium.new_context(offline=True, accept_downloads=True) as context:
        page = context.new_page()
        page.goto((pages / "report" / "index.html").resolve().as_uri())
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as SVG").first.click()
        text = saved.value.path().read_text("utf-8")
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert "var(" not in text


def _outside(url):
    return not url.startswith(("file:", "data:", "blob:"))


def _named(violations):
    return [
        f"{one['id']} {node['target'][0]}: {node['html'][:100]}"
        for one in violations
        for node in one["nodes"]
    ]
