"""The page: complete in itself, escaped, and never in the place of anything else."""

import dataclasses
import json
import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from lookup import missing
from made_studies import plan, study
from refusals import refused

from posenc.lab.study.summary import summarise
from posenc.models.inspection import inspect
from posenc.show.report import page
from posenc.show.report.guide import GUIDE
from posenc.show.report.kinds import figures_of
from posenc.show.report.kinds.comparison import figures as comparison

EVIL = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '\'" onmouseover="alert(1)',
    "]]></math><svg onload=alert(1)>",
    "%{x} <b>bold</b> {{ 7 * 7 }}",
]


def drawn_on_page(result):
    return {name: one for name, one in figures_of(result).items() if name != "properties"}


@pytest.fixture(scope="module")
def html(everything):
    return page.render(everything)


def test_every_page_links_a_glossary(llama, everything):
    for result in (inspect(llama), everything):
        html = page.render(result)
        assert html.count('href="#glossary"') == 1
        assert html.count('id="glossary"') == 1
        assert html.partition('id="glossary"')[2].partition("</dl>")[0].count("<dt>") == 10


def test_asks_for_nothing_from_outside(html):
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert re.findall(r'<link rel="(\w+)" href="(\w+:)', markup) == [("icon", "data:")]
    assert markup.count("<link") == 1
    assert not re.search(r"<(img|iframe|script[^>]* src)", markup)
    assert not re.search(r"href=\"(?!data:|#|https:)", markup)
    assert "default-src 'none'" in markup


def test_a_page_that_is_shared_has_a_title_and_a_description(llama, everything, portrait):
    for result in (inspect(llama), everything, portrait, summarise(study(plan()))):
        head = page.render(result).partition("<style>")[0]
        title = re.search("<title>(.+)</title>", head)[1]
        says = re.search(r'<meta name="description" content="(.{40,})">', head)[1]
        assert f'<meta property="og:title" content="{title}">' in head
        assert f'<meta property="og:description" content="{says}">' in head


def test_shows_every_encoding_property_and_witness(html, everything):
    for measured in everything.encodings:
        assert f'id="{measured.slug}"' in html
        assert html.count(f">{measured.name}<") >= 3
    assert "first rises at offset" in html
    assert "@misc{vaswani2017attention" in html


def test_says_the_width_that_all_are_measured_at(html, everything, small):
    """A layer of an encoding has as many channels as heads times channels of a head."""
    said = f"the same width, {small.dim * small.heads} channels: {small.heads} heads of {small.dim}"
    assert html.count(said) == 2  # on top, and where the measurements stand
    assert 'id="lengths"' in html


@pytest.mark.slow
def test_every_number_that_is_shown_is_in_the_json(html, everything):
    # Numbers of the guide have separate tests
    said = re.findall(r"\d[\d,]*(?:\.\d+)?", f"{GUIDE}")
    numbers = everything.to_json() | {"guide": [float(one.replace(",", "")) for one in said]}
    assert missing(html, numbers, drawn_on_page(everything)) == []
    assert (
        len(missing(html, _shifted(numbers), drawn_on_page(everything))) > 1000
    )  # so it would be seen


def test_every_number_of_a_closer_look_is_in_its_json(portrait):
    # of circles and labels, and numbers that follow from the lengths alone
    places = {"clocks", "rotation", "dials", "stretch"}
    found = missing(page.render(portrait), portrait.to_json(), drawn_on_page(portrait))
    assert [one for one in found if one.split(":")[0] not in places] == []


def test_a_closer_look_begins_with_pictures(portrait):
    """No table and no section of an encoding is open: ten screens instead of 30."""
    html = page.render(portrait)
    assert html.index('class="figure"') < html.index("<table")
    whole = html
    for kind in (" class=.(?:numbers|meaning)", ""):  # those inside of others first
        whole = re.sub(rf"<details{kind}.*?</details>", "", whole, flags=re.DOTALL)
    assert "<table" not in whole
    assert 4 <= whole.count('class="figure"') <= 10 < html.count('class="figure"')


def test_every_number_of_a_study_is_in_its_json():
    planned = plan(
        tasks=["copy", "language", "sort"], contrast=[["nope", "rope"], [["t5"], ["rope", "alibi"]]]
    )
    result = summarise(study(planned, failures=[("rope", 2)]))
    html = page.render(result)
    drawn = drawn_on_page(result)
    assert missing(html, result.to_json(), drawn) == []
    assert len(missing(html, _shifted(result.to_json()), drawn)) > 100


@pytest.mark.parametrize("seeds", [0, 1, 6])
def test_a_study_says_at_once_whether_it_may_rank(seeds):
    planned = plan(hypothesis="NoPE copies.", contrast=[["nope", "rope"]])
    missed = [(name, seed) for name in planned.labels for seed in range(seeds + 1, 7)]
    html = page.render(summarise(study(planned, missing=missed, deviations=["seeds: <b>6</b>"])))
    header, _, rest = html.partition("<header>")[2].partition("</header>")
    title = "On copy nope is better than rope, over" if seeds == 6 else "5 encodings on copy"
    assert f"<h1>{title}" in header
    assert "Hypothesis, as registered: <q>NoPE copies.</q>" in header
    stamp = f"{seeds} seeds: no ranking claims"
    assert (stamp in header) == (seeds < 6)
    assert ("nope is better than rope" in rest) == (seeds == 6)
    where = "percentage points, over L…2L, L = 20, learning rate 0.001, 5 steps, 6 seeds."
    assert (where in rest) == (seeds == 6)
    assert f"{5 * seeds} of 30 runs are done" in header
    assert planned.digest in rest
    assert "posenc study plan.toml --out again/" in rest
    assert "seeds: &lt;b&gt;6&lt;/b&gt;" in rest
    assert ('id="lengths-0"' in rest) == (seeds > 0)


def test_the_plan_on_the_page_is_the_one_that_was_registered():
    planned = plan(hypothesis="A “quoted” & <b>bold</b> one, 100 %.", seeds=1)
    html = page.render(summarise(study(planned)))
    (link,) = re.findall(r'download="plan.toml" href="data:[^,]*,([^"]*)"', html)
    assert unquote(unescape(link)) == planned.text
    (text,) = re.findall(r"<details[^>]*>.*?word for word.*?<pre[^>]*>(.*?)</pre>", html, re.DOTALL)
    assert unescape(text) == planned.text


@pytest.mark.parametrize("evil", EVIL)
def test_text_of_a_plan_changes_no_element_of_the_page(evil):
    def made(text):
        row = {"name": text, "encoding": "rope"}
        planned = plan(["nope", row], seeds=1, hypothesis=text, contrast=[["nope", text]])
        return page.render(summarise(study(planned, [(text, 1)], deviations=[text])))

    harmless, hostile = elements(made("Name")), elements(made(evil))
    assert hostile == harmless


def _shifted(tree):
    """All fractions a little larger."""
    if isinstance(tree, dict):
        return {key: _shifted(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_shifted(value) for value in tree]
    return tree * 1.0137 if isinstance(tree, float) else tree


@pytest.mark.parametrize("evil", EVIL)
def test_text_of_users_changes_no_element_of_the_page(everything, evil):
    pages = (page.render(_named(everything, name, f"A.\n\n{name}")) for name in ("Name", evil))
    harmless, hostile = map(elements, pages)
    assert hostile == harmless


def test_marks_of_direction_are_written_out(everything):
    turned = "abc\u202edcba"
    html = page.render(_named(everything, turned, f"A.\n\n{turned}\n\n    {turned}"))
    assert "\u202e" not in html
    assert "abc\\u202edcba" in html


def elements(html):
    """Every element with the names of its attributes, in order."""
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, [name for name, _ in attrs]))
    parser.feed(html)
    return found


def _named(everything, name, text):
    one = dataclasses.replace(everything.encodings[0], name=name, summary=name, text=text)
    return dataclasses.replace(everything, source=name, sentence=name, encodings=[one])


def test_a_figure_cannot_end_its_script():
    assert "<" not in page._embedded('{"name": "</script><script>\u2028&"}')
    assert json.loads(page._embedded('{"name": "</b>&"}')) == {"name": "</b>&"}


def test_figures_show_the_numbers_of_the_result(everything):
    (drawn,) = [
        m for m in comparison.costs(everything).panels[0].marks if m.name == "time, forward"
    ]
    assert drawn.x == [m.cost_ratio["forward"] for m in everything.encodings]
    order = comparison.order(everything).panels[0]
    nope = list(order.y_names).index("NoPE")
    assert order.marks[1].x[nope] == pytest.approx(0, abs=1e-3)
    panels = [m for m in everything.encodings if m.rows]
    assert [m.slug for m in panels][:2] == ["integer", "normalized"]
    drawn = comparison.rows(everything)
    assert drawn is not None
    assert drawn.panels[0].marks[0].z[2][5] == panels[0].rows[5][2] == 5  # channel 2 of position 5


def test_writes_both_files_and_may_write_them_again(everything, tmp_path):
    everything = dataclasses.replace(everything, encodings=everything.encodings[:1])
    for _ in range(2):
        page.reserve(tmp_path / "new" / "report")
        page.write(everything, tmp_path / "new" / "report")
    held = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert held == ["index.html", "results.json"]
    numbers = json.loads((tmp_path / "new" / "report" / "results.json").read_text())
    assert numbers == json.loads(json.dumps(everything.to_json() | {"figures": []}))


def test_of_earlier_figures_only_its_own_are_taken_away(everything, tmp_path):
    one = dataclasses.replace(everything, encodings=everything.encodings[:1])
    page.write(one, tmp_path, "svg")
    made = sorted(path.name for path in (tmp_path / "figures").iterdir())
    held = ["costs.svg", "nope-figure.svg", "order.svg", "properties.svg"]
    assert made == held
    page.reserve(tmp_path)
    forged = json.loads((tmp_path / "results.json").read_text())
    forged["figures"] += ["../mine.svg", "mine.svg"]
    (tmp_path / "results.json").write_text(json.dumps(forged))
    (tmp_path / "mine.svg").write_text("my own work")
    page.write(one, tmp_path)
    assert not list((tmp_path / "figures").iterdir())
    assert (tmp_path / "mine.svg").exists()


@pytest.mark.parametrize("name", ["notes.txt", "index.html", "results.json"])
def test_a_folder_that_holds_anything_else_is_left_alone(name, tmp_path):
    (tmp_path / name).write_text("my own work")
    with refused(OSError, name):
        page.reserve(tmp_path)
    assert (tmp_path / name).read_text() == "my own work"
    page.reserve(tmp_path, force=True)
    assert (tmp_path / name).read_text() == "my own work"


def test_a_file_or_a_place_under_one_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is not a folder"):
        page.reserve(tmp_path / "file")
    with pytest.raises(OSError, match="cannot be written to: Not a directory"):
        page.reserve(tmp_path / "file" / "below")
