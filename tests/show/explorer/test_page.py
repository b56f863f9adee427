"""The page from a file, in a browser that reaches nothing: every view by mouse and by keyboard."""

import gzip
import json
import math
import os
import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch

import posenc
from posenc import CATALOG, create, plot
from posenc.analysis import toy
from posenc.analysis.dials import by_method
from posenc.attention.scores import scores
from posenc.models import config, published
from posenc.show.explorer import data
from posenc.show.explorer.document import Explorer

with suppress(ImportError):  # then the browser's fixture skips
    from playwright.sync_api import expect

pytestmark = pytest.mark.slow

VIEWS = ["story", "encoding", "order", "picture", "rotation", "compare", "context", "tour"]
AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
STATES = 200 if "POSENC_THOROUGH" in os.environ else 5
READ = [("light", 1280), ("dark", 390)]  # of all that are promised, so that it takes seconds
if "POSENC_THOROUGH" in os.environ:
    READ = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 820, 390)]
COLOURS = """canvas => new Set(new Uint32Array(canvas.getContext("2d")
    .getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
OPEN = "for (const one of document.querySelectorAll('details')) one.open = true"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page with all encodings and a model of a user's."""
    folder = tmp_path_factory.mktemp("page")
    model = folder / "config.json"
    model.write_text(
        '{"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,'
        ' "num_hidden_layers": 4, "rope_theta": 500000.0, "max_position_embeddings": 8192}'
    )
    return posenc.explore("rope", model).save(folder / "explore.html")


@pytest.fixture
def visit(chromium, file):
    """visit("#v1/order", scheme="dark") -> page; no errors, and no requests."""
    contexts, said, asked = [], [], []

    def look(address="", width=1280, scheme="light", **options):
        context = chromium.new_context(
            offline=True, color_scheme=scheme, viewport={"width": width, "height": 900}, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda one: asked.append(one.url))
        page.goto(f"{file.as_uri()}{address}")
        page.wait_for_selector("html[data-ready]")
        return page

    yield look
    for context in contexts:
        context.close()
    assert said == []
    assert [one for one in asked if not one.startswith(("file:", "data:", "blob:"))] == []


def go(page, address):
    """To another state by its address alone, until the page has drawn it."""
    page.evaluate(
        """address => new Promise(drawn => {
            addEventListener("hashchange", () => requestAnimationFrame(drawn), {once: true});
            location.hash = address;
        })""",
        address,
    )


# The browser handles clicks and keys asynchronously, so tests wait for the result.
def says(page, where, what):
    """The first that is so selected contains these words, or soon does."""
    expect(page.locator(where).first).to_contain_text(what)


def has_address(page, part):
    """Or soon has: steps of a slider are written when it rests."""
    expect(page).to_have_url(re.compile(re.escape(part)))


def pixels(page):
    return page.locator("main").screenshot()


def differs(page, before):
    """The view is drawn otherwise, or soon is."""
    for _ in range(10_000):  # the limit is reached only by a hang
        if pixels(page) != before:
            return
        page.wait_for_timeout(50)
    raise AssertionError("the view stays as it was")


def test_it_is_one_small_file(file, visit):
    html = file.read_bytes()
    assert len(gzip.compress(html)) <= 600_000
    page = visit("#v1/encoding")
    print(f"{len(html) / 2**20:.2f} MiB, {len(gzip.compress(html)) / 2**20:.2f} gzipped")
    assert page.locator("canvas").count() >= 2


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_says_something_before_the_first_click(visit, view):
    page = visit(f"#v1/{view}")
    tab = "Story" if view == "tour" else view.capitalize()  # the tour is its footnotes
    assert page.locator("[aria-current=page]").inner_text() == tab
    text = page.inner_text("main")
    assert page.locator(".instead").count() == 0
    assert any(letter.isdigit() for letter in text) or "the same column" in text
    assert page.locator("canvas:visible, main svg:visible").count() >= 1
    assert "NaN" not in text
    assert "undefined" not in text


def test_the_page_of_a_first_use_lacks_parts_but_has_every_view(visit, monkeypatch, tmp_path):
    """Nothing is measured before; the file is old, so that the page does not load itself again."""
    monkeypatch.setenv("POSENC_CACHE", str(tmp_path))
    file = Explorer(data.page(whole=False)).save(tmp_path / "first.html")
    os.utime(file, (0, 0))
    page = visit()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    for view in VIEWS:
        go(page, f"#v1/{view}")
        says(page, "#notice", f"{len(CATALOG)} encodings and the published models")
        assert "undefined" not in page.inner_text("main")
        if view == "context":
            says(page, "main", "not ready yet")


@pytest.mark.parametrize("dim", [8, 16, 64])
@pytest.mark.parametrize(("name", "adds"), [("sinusoidal", True), ("rope", False)])
def test_channels_are_chosen_and_drawn_at_any_width(visit, name, adds, dim):
    """Each curve, and the distance to position 0, against the encoding made with that width."""
    encoding, pos = create(name, dim, 4), torch.arange(24)
    at, ones = encoding.prepare(pos), torch.ones(1, 1, 24, dim)
    rows = (
        encoding.on_embeddings(torch.zeros(1, 24, 4 * dim), at)[0]
        if adds
        else encoding.on_queries(ones, at)[0, 0]
    )
    page = visit(f"#v1/encoding/{name}?n=24&dim={dim}&channels=0,5,{dim - 1}")
    assert page.inner_text("#notice") == ""
    assert f"4 heads of {dim} channels" in page.inner_text(".note")
    figures = page.locator("section:has(> h3:text-is('Channel by channel')) figure")
    figures.nth(0).locator("summary").click()
    figures.nth(1).locator("summary").click()
    curves, far = (numbers_of(figures.nth(n)) for n in range(2))
    wanted = [[p, *(float(rows[p, c]) for c in (0, 5, dim - 1))] for p in range(24)]
    assert np.array(curves) == pytest.approx(np.array(wanted), rel=6e-3, abs=1e-4)
    away = [[p, float((rows[p] - rows[0]).norm())] for p in range(24)]
    assert np.array(far) == pytest.approx(np.array(away), rel=6e-3, abs=1e-4)


def numbers_of(figure):
    """The table behind a figure."""
    rows = figure.locator("tbody tr, table tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    value = lambda text: float(re.sub(r" · 10.*", "e-9", text).replace("−", "-"))  # noqa: E731
    return [[*map(value, row)] for row in rows if re.fullmatch(r"[\d.]+", row[0])]


def test_the_width_is_moved_and_what_is_not_there_is_said(visit):
    page = visit("#v1/encoding/rope")
    page.get_by_label("Channels of a head").press("ArrowRight")
    has_address(page, "dim=32")
    says(page, ".note", "4 heads of 32 channels")
    page.get_by_label("Channels drawn as curves").fill("1, 31")
    expect(page.locator(".legend", has_text="channel 31")).to_be_visible()
    says(visit("#v1/encoding/rope?dim=24"), "#notice", "24 channels (shown: 16; there are 8, 16")
    both = visit("#v1/encoding/rope?dim=32&option.base=500000")
    says(both, "#notice", "“base”, which RoPE has no slider for at 32 channels")
    assert visit("#v1/encoding/deberta").get_by_label("Channels of a head").is_hidden()


def test_a_click_on_a_picture_holds_the_place_that_is_read(visit):
    page = visit("#v1/encoding")
    page.select_option("select", "sinusoidal")
    expect(page.locator("h2")).to_have_text("Sinusoidal")
    heat = page.locator("figure:visible .picture").first
    heat.click(position={"x": 120, "y": 60})
    readout = page.locator(".readout").first
    first = readout.inner_text()
    heat.hover(position={"x": 160, "y": 120})
    expect(readout).not_to_have_text(first)


def test_a_picture_opens_as_a_table(visit):
    """The 64 drawn positions."""
    page = visit("#v1/encoding/sinusoidal")
    page.get_by_text("Table", exact=True).first.click()
    expect(page.locator(".numbers[open] tbody tr")).to_have_count(64)


def test_a_sentence_is_typed_and_shuffled(visit):
    page = visit("#v1/order/sinusoidal")
    page.get_by_label("Sentence").fill("dog bites man")
    expect(page.locator(".chips li")).to_have_count(3)
    page.get_by_role("button", name="Shuffle").click()
    has_address(page, "order=")
    says(page, ".claims", "Without an encoding the shuffle changed no word’s output")
    page.get_by_label("Each word sees only those before it").check()
    has_address(page, "causal")


@pytest.mark.parametrize(
    "sentence",
    [
        "a man threw a ball",
        "in the garden a man threw a ball",
        "once upon a time the pig chased the dog",
        "the big dog",
    ],
)
def test_sentences_of_the_five_texts_are_examples(visit, sentence):
    """A chosen sentence replaces the typed one, and a typed one deselects the example."""
    page = visit("#v1/order/rope?text=dog+bites+man&order=2,1,0")
    expect(page.get_by_label("Examples")).to_have_value("dog bites man")
    page.get_by_label("Examples").select_option(sentence)
    expect(page.get_by_label("Sentence")).to_have_value(sentence)
    expect(page.locator(".chips li button")).to_have_text(sentence.split())
    page.get_by_label("Sentence").fill("one two")
    expect(page.get_by_label("Examples")).to_have_value("")


def test_hands_are_moved_where_pairs_turn_and_else_that_is_said(visit):
    page = visit("#v1/rotation/sinusoidal")
    says(page, ".instead", "does not rotate separate pairs")
    page.select_option("select", "rope")
    page.get_by_role("button", name="Move both by 37").click()
    says(page, ".claim", "the angles between them have not changed")


def test_encodings_are_compared_and_filtered(visit):
    page = visit("#v1/compare")
    page.locator("select").nth(2).select_option("t5")
    page.get_by_role("button", name="decaying").click()
    expect(page.locator("figure:visible canvas")).to_have_count(3)
    says(page, "[aria-live=polite]:visible", f"of {len(CATALOG)} encodings")
    page.get_by_role("link", name="ALiBi").click()
    expect(page.locator("h2")).to_have_text("ALiBi")


def test_a_longer_text_is_chosen(visit):
    page = visit("#v1/context")
    page.get_by_label("Wanted length").select_option(label="32,768 tokens")
    says(page, ".claim", "A text of 32,768 tokens")


def test_a_stop_of_the_tour_opens_in_its_view(visit):
    page = visit("#v1/story")
    page.get_by_text("Often said").click()
    page.get_by_role("link", name="“Attention does not change").click()
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".stop-count")).to_have_text("Stop 2 of 15")
    page.get_by_role("link", name="Open it in its view").click()
    expect(page.locator("h2")).to_have_text("Does attention see the order?")


@pytest.mark.parametrize("view", VIEWS[:-1])
def test_a_tab_leads_to_its_view(visit, view):
    page = visit("#v1/order" if view == "encoding" else "#v1/encoding")
    link = page.get_by_role("link", name=view.capitalize(), exact=True)
    link.click()
    expect(link).to_have_attribute("aria-current", "page")


def test_a_model_of_the_users_is_shown_first(visit):
    page = visit()
    assert page.inner_text("h2") == "Longer than trained"
    assert "base 500,000" in page.inner_text("main")


def tab_to(page, what, most=60):
    """Press Tab until the element that is focused fits."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({what!r})"):
            return
    raise AssertionError(f"{what} is not reached by Tab")


def test_keys_choose_an_encoding_and_its_settings(visit):
    page = visit("#v1/encoding/rope")
    tab_to(page, "select")
    page.keyboard.press("ArrowDown")
    expect(page.locator("h2")).not_to_have_text("RoPE")
    tab_to(page, "input[type=range]")
    page.keyboard.press("ArrowRight")
    has_address(page, "n=65")


def test_keys_read_a_picture_and_open_its_table(visit):
    page = visit("#v1/encoding/rope")
    tab_to(page, ".picture")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    says(page, "#live", "position 41, channel 1")
    tab_to(page, "summary")
    page.keyboard.press("Enter")
    expect(page.locator(".numbers[open] table")).to_have_count(1)


KEYS = {  # in each view: what is reached by Tab, and the key that changes what is drawn
    "order": (".chips button", "Enter"),
    "picture": (".patches .handle", "ArrowUp"),
    "rotation": ("input[type=range]", "ArrowRight"),
    "compare": (".filters button", " "),
    "context": ("select", "ArrowDown"),
}


@pytest.mark.parametrize("view", KEYS)
def test_keys_reach_a_view_and_change_it(visit, view):
    page = visit("#v1/encoding/rope")
    tab_to(page, f"nav a[data-view={view}]")
    page.keyboard.press("Enter")
    expect(page.locator("#view")).to_be_focused()
    before = pixels(page)
    what, key = KEYS[view]
    tab_to(page, what)
    page.keyboard.press(key)
    differs(page, before)
    if view == "order":
        has_address(page, "i=")


def test_a_key_goes_on_to_the_next_stop_of_the_tour(visit):
    page = visit("#v1/encoding")
    go(page, "#v1/tour")
    expect(page.locator("#view")).to_be_focused()
    before = pixels(page)
    page.keyboard.press(" ")
    expect(page.locator(".stop-count")).to_have_text("Stop 2 of 15")
    differs(page, before)


def test_back_undoes(visit):
    page = visit("#v1/encoding/rope")
    title = page.locator("h2")
    page.select_option("select", "alibi")
    expect(title).to_have_text("ALiBi")
    page.get_by_role("link", name="Compare").click()
    expect(title).to_have_text("Side by side")
    page.go_back()
    expect(title).to_have_text("ALiBi")
    page.go_back()
    expect(title).to_have_text("RoPE")
    page.locator("input[type=range]").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    has_address(page, "n=69")
    page.go_back()  # five steps of one slider are one change
    expect(page.locator("output").first).to_have_text("64")


def states(count):
    """Make addresses of any view, with parameters of this view."""
    draw = random.Random(0)
    names = ["rope", "alibi", "sinusoidal", "t5", "shaw", "fire", "fox", "xpos", "binary"]
    for _ in range(count):
        view = draw.choice(VIEWS)
        chosen = ",".join(draw.sample(names, draw.randint(1, 3)))
        yield (
            f"#v1/{view}/{chosen}?n={draw.randint(2, 96)}&i={draw.randrange(30)}"
            f"&j={draw.randrange(30)}&head={draw.randrange(4)}&at={draw.randrange(512)}"
            f"&text=a+dog+and+{draw.randrange(99)}+dogs&stop={draw.randint(1, 10)}"
            f"&option.base={draw.choice([500, 10000, 320000])}"
            f"{draw.choice(['', '&causal'])}{draw.choice(['', '&embed'])}"
        )


def test_a_link_shows_the_same_pixels_in_a_new_page(visit):
    page = visit(reduced_motion="reduce")
    for address in states(STATES):
        go(page, address)
        new = visit(page.evaluate("location.hash"), reduced_motion="reduce")
        assert pixels(new) == pixels(page), unquote(address)
        assert page.title() == new.title()
        new.context.close()


def test_a_head_stays_chosen_where_the_encoding_before_has_one(visit):
    """RoPE does the same in each head; the slider is bounded by the heads that FoX has."""
    page = visit("#v1/order/rope?head=3")
    go(page, "#v1/order/fox?head=3")
    expect(page.get_by_label("Head", exact=True)).to_have_value("3")
    expect(page.locator("output:visible")).to_have_text("3")


def test_each_picture_of_the_texts_is_a_state_that_is_drawn(visit):
    """Every address in examples/README.md, which lists them."""
    text = (Path(__file__).parents[3] / "examples" / "README.md").read_text("utf-8")
    addresses = re.findall(r"`(#v1/[^`]*)`", text)
    assert len(addresses) > 12
    page = visit()
    for address in addresses:
        go(page, address)
        view = re.split("[/?]", address)[1]
        link = "[data-tab=story]" if view == "tour" else f"[data-view={view}]"
        expect(page.locator(f"nav a{link}")).to_have_attribute("aria-current", "page")
        assert page.locator(".instead").count() == 0, address
        assert page.locator("canvas:visible, main svg:visible").count() >= 1, address
        assert page.evaluate("location.hash") == address


def test_a_model_lends_words_its_vectors_and_the_page_says_so(chromium, tmp_path):
    import torch
    from safetensors.torch import save_file

    import posenc

    config = {"model_type": "llama", "hidden_size": 96, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = ["Ġthe", "Ġold", "Ġdog", "Ġchased"]
    vocabulary = {token: at for at, token in enumerate(tokens)}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    table = {"model.embed_tokens.weight": torch.randn(4, 96)}
    save_file(table, tmp_path / "model.safetensors")
    file = posenc.explore(tmp_path).save(tmp_path / "explore.html")
    page = chromium.new_page()
    page.goto(f"{file.as_uri()}#v1/order/rope")
    said = page.locator(".note").last
    assert "96 channels projected to 64" in said.inner_text()
    assert "It has none for “another”: seeded here." in said.inner_text()
    readout = page.locator(".readout").first
    first = readout.inner_text()
    page.get_by_label("Seeded vectors").check()
    expect(said).to_contain_text("Nothing here is trained")
    expect(readout).not_to_have_text(first)
    has_address(page, "#v1/order/rope?seeded")
    page.close()


TEN_LINES = """\
from posenc import Encoding


class Mine(Encoding):
    def __init__(self, heads: int, strength: float = 0.5):
        super().__init__()
        self.heads, self.strength = heads, strength
    def on_scores(self, q, k, q_at, k_at, scale):
        m, n = q_at[0, 0], k_at[0, 0]
        return lambda b, h, i, j: -self.strength * (m[i] - n[j]).abs().double().sqrt()
"""


def test_an_encoding_of_ten_lines_appears_with_no_javascript_written(chromium, tmp_path):
    """By the command, in a Python of its own; the score against √distance."""
    assert len(TEN_LINES.splitlines()) == 10
    (tmp_path / "file.py").write_text(TEN_LINES)
    words = ["explore", "file.py:Mine", "--out", "mine.html", "--no-browser"]
    done = subprocess.run(
        [sys.executable, "-m", "posenc", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((tmp_path / "mine.html").as_uri())
    expect(page.locator("h2")).to_have_text("Mine")
    bias = page.get_by_role("figure").filter(has_text="Added to scores")
    assert bias.locator("canvas").evaluate(COLOURS) > 30
    strength = page.get_by_label("strength", exact=True)
    output = page.locator(".slider", has=strength).locator("output")
    expect(output).to_have_text("0.5")
    expect(bias.locator(".readout")).to_have_text("query at 40, key at 24: −2")  # 0.5 · √16
    strength.press("ArrowRight")
    expect(output).not_to_have_text("0.5")
    turned = 4 * float(output.inner_text())
    expect(bias.locator(".readout")).to_have_text(f"query at 40, key at 24: −{turned:g}")
    has_address(page, f"option.strength={turned / 4:g}")
    page.reload()
    expect(bias.locator(".readout")).to_have_text(f"query at 40, key at 24: −{turned:g}")
    assert "file.py:Mine" in page.inner_text("pre")
    assert said == []
    context.close()


TENSOR = (
    TEN_LINES.replace("lambda b, h, i, j: ", "")
    .replace("(m[i] - n[j])", "(m[:, None] - n)")
    .replace(".double()", ".to(q.dtype)")
)


def test_a_tensor_is_a_bias_and_what_is_pasted_is_quoted(chromium, tmp_path, monkeypatch):
    """A bias of √distance, from a file with a space in its name."""
    (tmp_path / "my bias.py").write_text(TENSOR)
    monkeypatch.chdir(tmp_path)
    file = posenc.explore("my bias.py:Mine").save(tmp_path / "mine.html")
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{file.as_uri()}#v1/encoding/mine")
    bias = page.get_by_role("figure").filter(has_text="Added to scores")
    expect(bias.locator(".readout")).to_have_text("query at 40, key at 24: −2")  # 0.5 · √16
    page.get_by_role("button", name="Copy as command").click()
    assert page.evaluate("navigator.clipboard.readText()") == "posenc show 'my bias.py:Mine'"
    context.close()


def test_rows_of_what_turns_are_seen_as_angles_or_cosines(visit):
    """Pair 1 of RoPE at position 40: 40 · 10,000^(−2/16), less two turns."""
    page = visit("#v1/encoding/rope?c=1")
    angle = 40 * 10_000 ** (-2 / 16) - 4 * math.pi
    readout = page.locator(".readout").first
    page.get_by_label("Rows", exact=True).select_option("angle of each pair")
    expect(readout).to_have_text(f"position 40, pair 1: {angle:.3g}".replace("-", "−"))
    has_address(page, "rows=angle")
    page.get_by_label("Rows", exact=True).select_option("cosine of each angle")
    expect(readout).to_have_text(f"position 40, pair 1: {math.cos(angle):.3g}")
    go(page, "#v1/encoding/sinusoidal?rows=cos")
    expect(page.get_by_label("Rows", exact=True)).to_be_hidden()
    says(page, "figure:visible", "Added rows")


def test_a_token_that_is_hovered_is_lit_in_all_figures_of_the_view(visit):
    """The sentence below each figure names its word; elsewhere, the place under the cursor."""
    page = visit("#v1/order/sinusoidal")
    page.locator(".chips button", has_text="chased").hover()
    expect(page.locator(".chips li.query button")).to_have_text("chased")
    readouts = page.locator("figure:visible .readout")
    assert readouts.count() == 6  # without, with, and the four terms
    for n in range(6):
        expect(readouts.nth(n)).to_contain_text("chased")

    go(page, "#v1/encoding/rope")
    second = page.locator("figure:visible .picture").nth(1)
    box = second.locator("canvas").bounding_box()
    second.hover(position={"x": 50 + 30.5 / 64 * box["width"], "y": 8 + 20.5 / 64 * box["height"]})
    for n, said in enumerate(
        ["position 20, channel", "query at 20, key at 30", "query − key −10:"]
    ):
        expect(page.locator("figure:visible .readout").nth(n)).to_contain_text(said)

    go(page, "#v1/compare/rope,alibi,t5")
    first = page.locator("figure:visible .picture").first
    box = first.locator("canvas").bounding_box()
    first.hover(position={"x": 50 + 11.5 / 64 * box["width"], "y": 8 + 40.5 / 64 * box["height"]})
    for n in range(3):
        expect(page.locator("figure:visible .readout").nth(n)).to_contain_text("at 40, key at 11")
    expect(page.locator("figure:visible .readout").nth(3)).to_contain_text("query − key 29:")


@pytest.mark.repository
def test_results_of_a_study_stand_beside_the_encodings(chromium, tmp_path):
    """The study of copying in the repository."""
    import posenc

    study = Path(__file__).parents[3] / "studies" / "shape-copy"
    file = posenc.explore("rope", "alibi", study=study).save(tmp_path / "explore.html")
    page = chromium.new_page()
    page.goto(f"{file.as_uri()}#v1/compare/rope,alibi")
    figure = page.get_by_role("figure").filter(has_text="Trained short, tested long").first
    assert figure.locator("polyline").count() == 2
    assert "RoPE" in figure.locator(".legend").inner_text()
    page.close()


def test_a_published_base_is_shown_to_the_digit(visit):
    """By its link, in the code to copy, and in the score: Σⱼ cos(16 · 500,000^(−2j/16))."""
    page = visit("#v1/encoding/rope?option.base=500000")
    base = page.get_by_label("base", exact=True)
    expect(page.locator(".slider", has=base).locator("output")).to_have_text("500,000")
    assert "base=500000)" in page.inner_text("pre")
    assert page.locator("datalist option").count() > 8
    expect(page.locator("#notice")).to_be_hidden()
    base.press("ArrowRight")
    expect(page.locator(".slider", has=base).locator("output")).to_have_text("700,000")


def test_an_address_that_is_not_understood_says_so(visit):
    page = visit("#v1/encoding/rope?option.base=123456&n=999")
    said = "“n=999” (shown: 128); base 123,456 (shown: 100,000)."
    says(page, "#notice", said)
    page.get_by_label("Tokens").press("ArrowLeft")
    expect(page.locator("#notice")).not_to_contain_text("999")
    go(page, "#v1/order/rpoe?text=" + "+".join("abcdefghijklmnopqrstuvwxyz"))
    says(page, "#notice", "the encoding “rpoe”; words beyond the 24th")
    go(page, "#v1/context?model=mine")
    says(page, "#notice", "the model “mine”")
    go(page, "#v1/tour")
    expect(page.locator("#notice")).to_be_hidden()


@pytest.mark.parametrize("wanted", [50_000, 131_072])
def test_published_models_come_first_with_dials_at_any_length(visit, wanted):
    """Llama 3.1's, as `posenc.analysis.dials` has them: as configured, and after extensions."""
    page = visit("#v1/context")
    groups = page.locator("optgroup").evaluate_all("all => all.map((one) => one.label)")
    assert groups == ["Yours", "Published", "Architectures, by their defaults"]
    names = page.locator("optgroup[label=Published] option").all_inner_texts()
    assert names == [*published.configs()]
    name = "Llama-3.1-8B-Instruct"
    rotary = config.specify(published.configs()[name]).text_stack.layers[0].encoding
    go(page, f"#v1/context?model={name}&wanted={wanted}")
    found = by_method(rotary.unscaled(), 8192, wanted, rotary.theta(wanted))
    new = {way: sum(dial.new > 0 for dial in dials) for way, dials in found.items()}
    said = page.locator(".verdict")
    expect(said).to_contain_text(f"{new['configured']} of 64 pairs meet angles at {wanted:,}")
    if wanted == 131_072:
        expect(said).to_contain_text(f"linear {new['interpolate']}, NTK {new['ntk']}")
        expect(said).to_contain_text(f"YaRN {new['yarn']}")
        expect(said).to_contain_text("does not state how much of 131,072 tokens")
        expect(page.locator(".claim")).to_contain_text("does not show whether it fits")
    assert page.locator(".dials svg").count() == 64
    assert page.locator(".dials .new").count() == new["configured"]
    assert "8 layers" not in page.inner_text("main")  # of the packaged config, not of the model
    page.get_by_label("Any length").press("End")
    has_address(page, f"wanted={8192 * 32}")


def test_nothing_is_said_to_a_mouse_alone(visit):
    """No text in titles: touch and keys show the number behind a mark."""
    page = visit()
    for view in VIEWS:
        go(page, f"#v1/{view}/rope")
        assert page.locator("[title]").count() == 0
    go(page, "#v1/compare")
    explained = page.locator(".explained")
    cell = page.locator(".matrix tbody tr").nth(2).locator("td").nth(1)
    cell.click()
    expect(explained).to_contain_text("Normalized, bounded: ")
    page.locator(".matrix").focus()
    page.keyboard.press("ArrowRight")
    expect(explained).to_contain_text("Normalized, norm constant: ")
    for _ in range(9):
        page.keyboard.press("ArrowUp")
    expect(explained).to_contain_text("norm constant: The vectors of the first")
    page.get_by_role("button", name="decaying").click()
    expect(explained).to_contain_text("decaying: The score of two tokens")


def test_what_the_page_may_load_is_nothing(chromium, file):
    """The policy allows own scripts and styles and embedded pictures, as on reports."""
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', file.read_text("utf-8"))
    assert policy.startswith("default-src 'none'; script-src 'unsafe-inline';")
    page = chromium.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.evaluate("fetch('https://example.org').catch(() => document.title = 'refused')")
    expect(page).to_have_title("refused")
    page.close()


READING = ["cope", "fox", "path", "wall", "selective-rope"]


@pytest.mark.parametrize("slug", READING)
def test_what_reads_tokens_is_shown_on_a_sentence_whose_middle_word_changes(visit, slug):
    """The addition to the score of the last word for the first, as in Python, before and after."""
    page = visit(f"#v1/encoding/{slug}?i=5&j=0")
    figure = page.get_by_role("figure").filter(has_text="“chased” becomes “.”")
    torch.manual_seed(0)
    encoding = create(slug, toy.DIM, toy.HEADS)
    words = "the old dog chased another dog".split()
    numbers = []
    for word in ("chased", "."):
        words[3] = word
        numbers.append(toy.added(encoding, words)[0, 0, 5, 0].item())
    numbers[1] -= numbers[0]
    assert abs(numbers[1]) > 1e-6
    said = figure.locator(".readout").inner_text().replace(" · 10⁻⁵", "e-5").replace("−", "-")
    assert said.startswith("“dog” for “the”: ")
    written = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?(?:e-5)?", said)]
    assert written == pytest.approx(numbers, rel=0.05, abs=1e-6)  # of float32, to two digits
    assert "All pairs at the same distance have the same score" not in page.inner_text("main")
    go(page, f"#v1/compare/{slug},rope")
    says(page, "figure:visible", "It depends on the words between")


@pytest.mark.parametrize("slug", ["rope", "alibi", "sinusoidal", "t5", "shaw"])
def test_one_word_against_itself_is_the_same_in_each_view_and_in_python(visit, slug):
    """In its own view and in Compare: what `posenc.analysis.toy` adds, which README draws too."""
    torch.manual_seed(0)
    added = toy.added(create(slug, toy.DIM, toy.HEADS), [toy.WORD] * 64)[0, 0]
    page = visit(f"#v1/encoding/{slug}?i=40&j=24")
    own = page.get_by_role("figure").filter(has_text="Added to scores").first
    said = own.locator(".readout").inner_text()
    go(page, f"#v1/compare/{slug},rope?i=40&j=24")
    expect(page.locator("figure:visible .readout").first).to_have_text(said)
    number = float(said.rpartition(": ")[2].replace("−", "-"))
    assert number == pytest.approx(added[40, 24].item(), rel=6e-3)


def attended(slug, words, head):
    """The attention weights of the toy layer on 8 × 8 patches, (patch, patch), by torch."""
    torch.manual_seed(0)
    encoding = create(slug, toy.DIM, toy.HEADS)
    made, pos = toy.layer(encoding), posenc.positions.grid(8, 8)
    at, x = encoding.prepare(pos), toy.embedded(words, made.width)
    q, k, *_ = made.project(encoding.on_embeddings(x, at), at)
    return scores(encoding, q, k, pos, pos, x=x).softmax(-1)[0, head]


@torch.no_grad()
@pytest.mark.parametrize("slug", ["rope-mixed", "axial-rope", "swin", "sinusoidal-grid"])
def test_a_patch_is_dragged_and_moved_by_keys_and_attends_as_in_python(visit, slug):
    """A boat in row 6, column 5, then one row up: patch 45; the weights are in the table."""
    page = visit(f"#v1/picture/{slug}?head=1")
    box = page.locator(".patches > svg").bounding_box()
    middle = lambda row, column: (  # noqa: E731
        box["x"] + box["width"] * (column + 0.5) / 8,
        box["y"] + box["height"] * (row + 0.5) / 8,
    )
    page.mouse.move(*middle(4, 2))
    page.mouse.down()
    page.mouse.move(*middle(6, 5), steps=5)
    page.mouse.up()
    has_address(page, "patch=53")
    page.mouse.move(*middle(2, 2))  # the button is up
    page.keyboard.press("ArrowUp")
    has_address(page, "patch=45")
    handle = page.locator(".patches .handle")
    expect(handle).to_be_focused()
    assert "row 5, column 5" in handle.get_attribute("aria-label")
    says(page, "#live", "row 5, column 5")
    words = ["sky"] * 32 + ["sea"] * 24 + ["sand"] * 8
    words[14], words[45] = "sun", "boat"
    weights = attended(slug, words, head=1)[45]
    name = next(card.name for card in CATALOG if card.slug == slug)
    figure = page.get_by_role("figure").filter(has_text=f"With {name}")
    figure.locator("summary").click()
    expect(figure.locator("tbody td")).to_have_count(64)
    cells = figure.locator("tbody td").all_inner_texts()
    assert [float(cell) for cell in cells] == pytest.approx(weights.tolist(), rel=6e-3)
    assert max(weights) > 1.1 * min(weights)
    claims = page.locator(".claims li").all_inner_texts()
    moves = slug != "sinusoidal-grid"
    assert ("the pattern moves with the boat" in claims[1]) is moves
    sky = weights[torch.tensor([word == "sky" for word in words])]
    for end in (min(sky), max(sky)):
        assert f"{100 * end.item():.3g} %" in claims[0]


def test_an_encoding_of_one_axis_is_replaced_in_the_view_of_a_picture(visit):
    page = visit("#v1/picture/alibi")
    assert "ALiBi does not have two axes: RoPE-Mixed is shown." in page.inner_text("main")
    assert page.title().startswith("RoPE-Mixed, picture")


def test_embedded_it_is_the_view_alone(visit):
    page = visit("#v1/encoding/rope?embed")
    assert page.locator("header").is_hidden()
    assert page.locator("footer").is_hidden()
    assert page.locator("#whole").get_attribute("href") == "#v1/encoding/rope"


def test_what_is_copied_and_saved(visit):
    page = visit("#v1/encoding/rope", permissions=["clipboard-read", "clipboard-write"])
    go(page, "#v1/encoding/rope?option.base=500000")
    page.get_by_role("button", name="Copy as Python").click()
    code = page.evaluate("navigator.clipboard.readText()")
    assert 'posenc.create("rope", 16, 4, base=500000)' in code
    scope = {}
    exec(code, scope)  # it runs as it stands
    assert scope["out"].shape == (1, 4, 64, 16)
    page.get_by_role("button", name="Copy citation").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("@misc{su2021roformer,")
    for kind, begin in [
        ("PNG", b"\x89PNG"),
        ("SVG", b"<svg"),
        ("JSON", b'{"schema":"posenc.figure/1"'),
    ]:
        with page.expect_download() as found:
            page.get_by_role("button", name=f"Save as {kind}").nth(1).click()
        assert found.value.suggested_filename.endswith(f".{kind.lower()}")
        with open(found.value.path(), "rb") as file:
            assert file.read().startswith(begin)


def test_the_code_of_each_encoding_runs_as_it_stands(visit):
    page = visit("#v1/encoding")
    for card in CATALOG:
        go(page, f"#v1/encoding/{card.slug}")
        code, scope = page.inner_text(".about pre"), {}
        assert f'posenc.create("{card.slug}"' in code
        try:
            exec(code, scope)
        except Exception as error:
            raise AssertionError(f"{card.name}: {error}") from error
        tokens = len(scope["pos"])
        assert scope["out"].shape in {(1, 4, tokens, 16), (1, tokens, 64)}


def test_what_is_saved_has_its_title_its_legend_and_address_and_no_cursor(visit):
    page = visit("#v1/encoding/rope?channels=0,5")
    for figure, names in (("Added to scores", ()), ("Channels against", (0, 5))):
        box = page.locator("figure:visible", has_text=figure).first
        assert box.locator(".cursor").count() == 1
        with page.expect_download() as found:
            box.get_by_role("button", name="Save as SVG").click()
        drawing = Path(found.value.path()).read_text("utf-8")
        assert re.search(rf"<text[^>]*>{figure}", drawing)
        assert [n for n in names if f"channel {n}</text>" not in drawing] == []
        assert "<desc>explore.html#v1/encoding/rope?channels=0%2C5</desc>" in drawing
        assert "aria-hidden" not in drawing
        assert "cursor" not in drawing
        wide, tall = map(float, re.search(r'viewBox="0 -34 (\d+) ([\d.]+)"', drawing).groups())
        assert f'<rect y="-34" width="{wide:g}" height="{tall:g}"' in drawing


def saved_figure(page, tmp_path, n=0):
    with page.expect_download() as found:
        page.get_by_role("button", name="Save as JSON").nth(n).click()
    found.value.save_as(tmp_path / "figure.json")
    assert json.loads((tmp_path / "figure.json").read_text())["address"].startswith(
        "explore.html#v1/"
    )
    return plot.load(tmp_path / "figure.json")


@pytest.mark.parametrize(
    ("slug", "rows"), [("sinusoidal", ""), ("rope", ""), ("rope", "angle"), ("rope", "cos")]
)
def test_a_saved_figure_is_the_neutral_figure_of_reports(visit, tmp_path, slug, rows):
    """Rows as Python's own figure has them, on its side; and it is drawn as a report's is."""
    page = visit(f"#v1/encoding/{slug}?" + (f"rows={rows}" if rows else ""))
    picture = saved_figure(page, tmp_path)
    (panel,) = picture.figure.panels
    (map_,) = panel.marks
    (theirs,) = plot.rows(
        posenc.create(slug, 16, 4), len(map_.y), of=rows or "values"
    ).figure.panels
    (wanted,) = theirs.marks
    assert np.allclose(map_.z, np.transpose(wanted.z), atol=2e-4)
    assert (panel.x_title, panel.y_title) == (theirs.y_title, theirs.x_title)
    assert (list(map_.x), list(map_.y)) == (list(wanted.y), list(wanted.x))
    assert map_.signed is wanted.signed
    assert map_.span == pytest.approx(wanted.span, rel=1e-4)
    picture.save(tmp_path / "figure.svg", width=85)
    assert panel.x_title in (tmp_path / "figure.svg").read_text()


def test_saved_lines_are_the_wavelengths_of_the_report(visit, tmp_path):
    """The figure of `inspect` for the packaged model, pair by pair."""
    picture = saved_figure(visit("#v1/context"), tmp_path)
    (panel,) = picture.figure.panels
    assert panel.y_log
    lines = {mark.name: mark for mark in panel.marks if hasattr(mark, "y")}
    wanted = 2 * math.pi * 500_000 ** (np.arange(64) / 64)
    assert np.allclose(next(iter(lines.values())).y, wanted, rtol=1e-9)
    assert all(len(line.x) == 64 for line in lines.values())


def test_with_less_motion_hands_step(visit):
    page = visit("#v1/rotation/rope", reduced_motion="reduce")
    page.clock.install()
    page.clock.pause_at("2100-01-01")
    hand = page.locator(".circles .hand.query").first
    before = hand.get_attribute("x2")
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(900)
    assert hand.get_attribute("x2") == before
    page.clock.run_for(200)
    expect(hand).not_to_have_attribute("x2", before)
    page.get_by_role("button", name="Pause").click()


@pytest.mark.parametrize("width", [1280, 820, 390, 320])
def test_nothing_sticks_out(visit, width):
    page = visit(width=width)
    for view in VIEWS:
        go(page, f"#v1/{view}/rope,sinusoidal")
        page.evaluate(OPEN)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view


@pytest.mark.parametrize(("scheme", "width"), READ)
def test_everybody_can_read_it(visit, scheme, width):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(width=width, scheme=scheme)
    for view in VIEWS:
        go(page, f"#v1/{view}/sinusoidal,rope?n=8")
        page.evaluate(OPEN)
        found = Axe().run(page, None, {"runOnly": AA, "resultTypes": ["violations"]}).response
        assert [
            f"{view}: {one['id']} {node['target']} {node['html'][:120]}"
            for one in found["violations"]
            for node in one["nodes"]
        ] == []
