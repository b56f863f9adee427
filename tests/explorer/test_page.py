"""The page from a file, in a browser that reaches nothing: every view by mouse and by keyboard."""

import gzip
import json
import os
import random
import re
import time
from pathlib import Path
from urllib.parse import unquote

import pytest

pytestmark = pytest.mark.slow

VIEWS = ["encoding", "order", "rotation", "compare", "context", "tour"]
AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
STATES = 200 if "POSENC_THOROUGH" in os.environ else 5
READ = [("light", 1280), ("dark", 390)]  # of all that are promised, so that it takes seconds
if "POSENC_THOROUGH" in os.environ:
    READ = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 820, 390)]
OPEN = "for (const one of document.querySelectorAll('details')) one.open = true"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page with all encodings and a model of a user's."""
    import posenc

    folder = tmp_path_factory.mktemp("page")
    model = folder / "config.json"
    model.write_text(
        '{"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,'
        ' "num_hidden_layers": 4, "rope_theta": 500000.0, "max_position_embeddings": 8192}'
    )
    return posenc.explore("rope", model).save(folder / "explore.html")


@pytest.fixture
def visit(chromium, file):
    """visit("#v1/order", scheme="dark") -> page; nothing is said, and nothing asked outside."""
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


def pixels(page):
    return page.locator("main").screenshot()


def now(page):
    page.wait_for_timeout(350)  # steps of a slider are written when it rests
    return page.evaluate("location.hash")


def test_it_is_one_small_file(file, visit):
    html = file.read_bytes()
    assert len(gzip.compress(html)) < 2**20
    begun = time.perf_counter()
    page = visit("#v1/encoding")
    print(f"{len(html) / 2**20:.2f} MiB, {len(gzip.compress(html)) / 2**20:.2f} gzipped")
    print(f"first picture after {time.perf_counter() - begun:.2f} s")
    assert page.locator("canvas").count() >= 2


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_says_something_before_the_first_click(visit, view):
    page = visit(f"#v1/{view}")
    assert page.locator("[aria-current=page]").inner_text() == view.capitalize()
    text = page.inner_text("main")
    assert page.locator(".instead").count() == 0
    assert any(letter.isdigit() for letter in text)
    assert page.locator("canvas:visible, main svg:visible").count() >= 1
    assert "NaN" not in text
    assert "undefined" not in text


def test_by_mouse(visit):
    page = visit("#v1/encoding")
    page.select_option("select", "sinusoidal")
    assert page.inner_text("h2") == "Sinusoidal"
    heat = page.locator("figure:visible .picture").first
    heat.click(position={"x": 120, "y": 60})
    first = page.locator(".readout").first.inner_text()
    heat.hover(position={"x": 160, "y": 120})
    assert page.locator(".readout").first.inner_text() != first
    page.get_by_text("Table", exact=True).first.click()
    assert page.locator(".numbers[open] tbody tr").count() == 64

    page.get_by_role("link", name="Order").click()
    page.get_by_label("Sentence").fill("dog bites man")
    assert page.locator(".chips li").count() == 3
    page.get_by_role("button", name="Shuffle").click()
    assert "order=" in now(page)
    assert "changes by nothing without the encoding" in page.inner_text(".claims")
    page.get_by_label("Each word sees only those before it").check()
    assert "causal" in now(page)

    page.get_by_role("link", name="Rotation").click()
    assert "does not turn pairs" in page.inner_text(".instead")
    page.select_option("select", "rope")
    page.get_by_role("button", name="Move both by 37").click()
    assert "the angle between them stays the same in every pair" in page.inner_text(".claim")

    page.get_by_role("link", name="Compare").click()
    page.locator("select").nth(2).select_option("t5")
    page.get_by_role("button", name="decaying").click()
    assert page.locator("figure:visible canvas").count() == 3
    assert "of 30 encodings" in page.inner_text("[aria-live=polite]:visible")
    page.get_by_role("link", name="ALiBi").click()
    assert page.inner_text("h2") == "ALiBi"

    page.get_by_role("link", name="Context").click()
    page.get_by_label("Wanted length").select_option(label="32,768 tokens")
    assert "A text of 32,768 tokens" in page.inner_text(".claim")

    page.get_by_role("link", name="Tour").click()
    page.get_by_role("button", name="Next").click()
    assert page.inner_text(".stop-count") == "Stop 2 of 10"
    page.get_by_role("link", name="Open it in its view").click()
    assert page.inner_text("h2") == "Does attention know the order?"


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


def test_by_keyboard_alone(visit):
    page = visit("#v1/encoding/rope")
    tab_to(page, "select")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("h2") != "RoPE"
    tab_to(page, "input[type=range]")
    page.keyboard.press("ArrowRight")
    assert "n=65" in now(page)
    tab_to(page, ".picture")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert "position 41, channel 1" in page.inner_text("#live")
    tab_to(page, "summary")
    page.keyboard.press("Enter")
    assert page.locator(".numbers[open] table").count() == 1

    for view in VIEWS[1:]:
        page.evaluate("document.activeElement.blur()")
        tab_to(page, f"nav a[data-view={view}]")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "view"
        before = pixels(page)
        if view == "order":
            tab_to(page, ".chips button")
            page.keyboard.press("Enter")
            assert "i=" in now(page)
        elif view == "tour":
            page.keyboard.press(" ")
            assert page.inner_text(".stop-count") == "Stop 2 of 10"
        elif view == "compare":
            tab_to(page, ".filters button")
            page.keyboard.press(" ")
        elif view == "rotation":
            page.locator("select").select_option("rope")
            tab_to(page, "input[type=range]")
            page.keyboard.press("ArrowRight")
        else:
            tab_to(page, "select")
            page.keyboard.press("ArrowDown")
        assert pixels(page) != before, view


def test_back_undoes(visit):
    page = visit("#v1/encoding/rope")
    page.select_option("select", "alibi")
    page.get_by_role("link", name="Compare").click()
    assert page.inner_text("h2") == "Side by side"
    page.go_back()
    assert page.inner_text("h2") == "ALiBi"
    page.go_back()
    assert page.inner_text("h2") == "RoPE"
    page.locator("input[type=range]").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert "n=69" in now(page)
    page.go_back()  # five steps of one slider are one change
    assert page.locator("output").first.inner_text() == "64"


def states(count):
    """Addresses of any view, with what it can be asked."""
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
    page = visit()
    for address in states(STATES):
        page.evaluate(f"location.hash = {address!r}")
        page.wait_for_timeout(60)
        said = page.evaluate("toHash = document.title")
        address = page.evaluate("location.hash")
        new = visit(address)
        assert pixels(new) == pixels(page), unquote(address)
        assert said == new.title()
        new.context.close()


def test_a_head_stays_chosen_where_the_encoding_before_has_one(visit):
    """RoPE does the same in each head; the slider is bounded by the heads that FoX has."""
    page = visit("#v1/order/rope?head=3")
    page.evaluate("location.hash = '#v1/order/fox?head=3'")
    assert page.get_by_label("Head", exact=True).input_value() == "3"
    assert page.locator("output:visible").inner_text() == "3"


def test_each_picture_of_the_texts_is_a_state_that_is_drawn(visit):
    """Every address in examples/README.md, which lists them."""
    text = (Path(__file__).parents[2] / "examples" / "README.md").read_text("utf-8")
    addresses = re.findall(r"`(#v1/[^`]*)`", text)
    assert len(addresses) > 12
    page = visit()
    for address in addresses:
        page.evaluate(f"location.hash = {address!r}")
        page.wait_for_selector(f"nav a[data-view={address.split('/')[1]}][aria-current=page]")
        assert page.locator(".instead").count() == 0, address
        assert page.locator("canvas:visible, main svg:visible").count() >= 1, address
        assert now(page) == address


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
    first = page.locator(".readout").first.inner_text()
    page.get_by_label("Seeded vectors").check()
    assert "Nothing here is trained" in said.inner_text()
    assert page.locator(".readout").first.inner_text() != first
    assert page.evaluate("location.hash") == "#v1/order/rope?seeded"
    page.close()


def test_results_of_a_study_stand_beside_the_encodings(chromium, tmp_path):
    """Of the study of copying, which the repository holds."""
    import posenc

    study = Path(__file__).parents[2] / "studies" / "shape-copy"
    file = posenc.explore("rope", "alibi", study=study).save(tmp_path / "explore.html")
    page = chromium.new_page()
    page.goto(f"{file.as_uri()}#v1/compare/rope,alibi")
    figure = page.get_by_role("figure").filter(has_text="Trained short, tested long").first
    assert figure.locator("polyline").count() == 2
    assert "RoPE" in figure.locator(".legend").inner_text()
    page.close()


def test_embedded_it_is_the_view_alone(visit):
    page = visit("#v1/encoding/rope?embed")
    assert page.locator("header").is_hidden()
    assert page.locator("footer").is_hidden()
    assert page.locator("#whole").get_attribute("href") == "#v1/encoding/rope"


def test_what_is_copied_and_saved(visit):
    page = visit("#v1/encoding/rope", permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("location.hash = '#v1/encoding/rope?option.base=40000'")
    page.get_by_role("button", name="Copy as Python").click()
    code = page.evaluate("navigator.clipboard.readText()")
    assert 'posenc.create("rope", 16, 4, base=40000)' in code
    scope = {}
    exec(code, scope)  # it runs as it stands
    assert scope["out"].shape == (1, 4, 64, 16)
    page.get_by_role("button", name="Copy citation").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("@misc{su2021roformer,")
    for kind, begin in [("PNG", b"\x89PNG"), ("SVG", b"<svg"), ("JSON", b'{"title"')]:
        with page.expect_download() as found:
            page.get_by_role("button", name=f"Save as {kind}").nth(1).click()
        assert found.value.suggested_filename.endswith(f".{kind.lower()}")
        with open(found.value.path(), "rb") as file:
            assert file.read().startswith(begin)


def test_with_less_motion_hands_step(visit):
    page = visit("#v1/rotation/rope", reduced_motion="reduce")
    hand = page.locator(".circles .hand.query").first
    before = hand.get_attribute("x2")
    page.get_by_role("button", name="Play").click()
    page.wait_for_timeout(300)
    assert hand.get_attribute("x2") == before
    page.wait_for_timeout(900)
    assert hand.get_attribute("x2") != before
    page.get_by_role("button", name="Pause").click()


@pytest.mark.parametrize("width", [1280, 820, 390, 320])
def test_nothing_sticks_out(visit, width):
    page = visit(width=width)
    for view in VIEWS:
        page.evaluate(f"location.hash = '#v1/{view}/rope,sinusoidal'")
        page.wait_for_selector(f"nav a[data-view={view}][aria-current=page]")
        page.evaluate(OPEN)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view


@pytest.mark.parametrize(("scheme", "width"), READ)
def test_everybody_can_read_it(visit, scheme, width):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(width=width, scheme=scheme)
    for view in VIEWS:
        page.evaluate(f"location.hash = '#v1/{view}/sinusoidal,rope?n=8'")
        page.wait_for_selector(f"nav a[data-view={view}][aria-current=page]")
        page.evaluate(OPEN)
        found = Axe().run(page, None, {"runOnly": AA, "resultTypes": ["violations"]}).response
        assert [
            f"{view}: {one['id']} {node['target']} {node['html'][:120]}"
            for one in found["violations"]
            for node in one["nodes"]
        ] == []
