"""The story: its numbers against Python's, its guesses, its films; by mouse, by keys, by touch."""

import math
import re
from itertools import product
from pathlib import Path
from statistics import fmean

import pytest
import torch

import posenc
from posenc import attend, create, masks
from posenc.analysis import toy
from posenc.analysis.dials import by_method
from posenc.catalog import find
from posenc.encodings.rotary.theta import frequencies
from posenc.lab.study.analysis import analyse
from posenc.lab.study.store import read
from posenc.show.explorer.story import story
from posenc.show.report.guide import GUIDE

pytestmark = pytest.mark.slow

STUDIES = Path(__file__).parents[3] / "studies"
SENTENCE = "the old dog chased another dog".split()
KINDS = [("nope", False), ("sinusoidal", False), ("rope", False), ("alibi", False), ("nope", True)]
AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
SCENES = [
    "Which dog?",
    "Count them",
    "Waves",
    "Turn",
    "The text grows",
    "Trained short",
    "Take one",
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return posenc.explore().save(tmp_path_factory.mktemp("story") / "explore.html")


@pytest.fixture
def visit(chromium, file):
    contexts, said = [], []

    def look(address="", width=1280, scheme="light", **options):
        context = chromium.new_context(
            offline=True, color_scheme=scheme, viewport={"width": width, "height": 900}, **options
        )
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(f"{file.as_uri()}{address}")
        page.wait_for_selector("html[data-ready]")
        return page

    yield look
    for context in contexts:
        context.close()
    assert said == []


def written(kind, words):
    """Return the output of `attend` for each word, (token, channel): head 0 of the toy layer."""
    name, causal = KINDS[kind]
    torch.manual_seed(0)
    encoding = create(name, toy.DIM, toy.HEADS)
    layer = toy.layer(encoding)
    x = toy.embedded(words, layer.width)
    pos = torch.arange(len(words))
    at = encoding.prepare(pos)
    x = encoding.on_embeddings(x, at)
    q, k, *_ = layer.project(x, at)
    v = x.unsqueeze(1).expand(-1, toy.HEADS, -1, -1)
    mask = masks.causal() if causal else None
    with torch.no_grad():
        return attend(q, k, v, encoding, at, mask=mask)[0, 0]


def numbers(text):
    return [
        float(n.replace(",", "").replace("−", "-"))
        for n in re.findall(r"−?\d[\d,]*(?:\.\d+)?", text)
    ]


def differ(a, b):
    """|a − b| / √(|a|² + |b|²): 0 for equal columns, 1 for columns at right angles."""
    return float((a - b).norm() / (a.norm() ** 2 + b.norm() ** 2).sqrt())


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [2, 0, 1, 3, 5, 4]])
def test_the_dogs_differ_by_what_attend_writes(visit, kind, order):
    words = [SENTENCE[n] for n in order]
    out, typed = written(kind, words), written(kind, SENTENCE)
    first, second = (n for n, word in enumerate(words) if word == "dog")
    apart = differ(out[first], out[second])
    moved = max(differ(out[at], typed[n]) for at, n in enumerate(order))
    page = visit(f"#v1/story?kind={kind}&order={','.join(map(str, order))}&seen")
    text = page.inner_text(".told")
    years = re.sub(r"\([^)]*\)", "", text)
    wanted = []
    if apart < 1e-5:
        assert "The two dogs get exactly the same column." in text
    else:
        wanted.append(100 * apart)
    if order != sorted(order):
        if moved < 1e-5:
            assert "nothing changes" in text
        else:
            wanted.append(100 * moved)
    assert numbers(years) == pytest.approx(wanted, abs=0.51)
    assert (apart < 1e-5) == (kind == 0)
    scale = page.get_attribute(".board svg", "aria-label")
    assert numbers(scale) == pytest.approx([100 * apart], abs=0.51)


def at_rest(page):
    """Wait until nothing on the page moves: on a busy machine words slide when they are clicked."""
    page.wait_for_selector(".story:not([data-playing])")
    page.evaluate("() => Promise.allSettled(document.getAnimations().map((one) => one.finished))")


def test_words_are_dragged_shuffled_and_moved_by_keys(visit):
    page = visit()
    at_rest(page)
    assert page.inner_text("h2") == "Which dog?"
    words = page.locator(".word")
    places = lambda: [box["x"] for box in map(lambda one: one.bounding_box(), words.all())]  # noqa: E731
    before = places()
    assert before == sorted(before)
    words.nth(0).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**order=1,0,2,3,4,5&seen")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**order=1,2,0,3,4,5&seen")
    at_rest(page)
    box = words.nth(5).bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(before[0] + 20, box["y"] + 20, steps=8)
    page.mouse.up()
    page.wait_for_url("**order=5,1,2,0,3,4&seen")
    at_rest(page)
    assert places()[5] == pytest.approx(before[0], abs=1)
    assert "nothing changes" in page.inner_text(".told")
    page.get_by_role("button", name="sinusoids").click()
    assert "Shuffled: a column changes by" in page.inner_text(".told")
    page.get_by_role("button", name="As typed").click()
    assert "huffled" not in page.inner_text(".told")
    page.get_by_role("button", name="Shuffle").click()
    assert "Shuffled" in page.inner_text(".told")


def test_readers_type_their_own_sentence_into_the_address(visit):
    page = visit()
    page.get_by_label("Your own sentence").fill("the pig saw the pig")
    page.wait_for_url("**text=the+pig+saw+the+pig&seen")
    assert page.locator(".word span").all_inner_texts() == ["the", "pig", "saw", "the", "pig"]
    assert "two words “the” get exactly the same column" in page.inner_text(".told")
    page.get_by_label("Your own sentence").fill("no word twice")
    assert "No word is repeated here." in page.inner_text(".told")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_who_wants_less_motion_sees_none(visit, motion):
    """Words do not slide, and the figure shows its end at once."""
    page = visit(reduced_motion=motion)
    seconds = page.locator(".word").first.evaluate(
        "one => getComputedStyle(one).transitionDuration"
    )
    assert (seconds == "0s") == (motion == "reduce")
    page = visit("#v1/story?scene=4", reduced_motion=motion)
    first = page.evaluate(
        """() => {
            document.querySelector(".acts button").click();
            return document.querySelector(".board svg").getAttribute("aria-label");
        }"""
    )
    assert numbers(first)[1] == (131_072 if motion == "reduce" else 8_192)
    at_rest(page)
    assert numbers(page.get_attribute(".board svg", "aria-label"))[1] == 131_072


def shares():
    """Return the share of “dog” in “dog” plus its number, at places 0 to 12, by lengths."""
    word, integer = toy.vector("dog", 64), create("integer", 16, 4)
    rows = integer.on_embeddings(torch.zeros(1, 13, 64), integer.prepare(torch.arange(13)))[0]
    return [float(word.norm() / (word.norm() + row.norm())) for row in rows]


def steps():
    """Return the distance of the sinusoidal pattern from each place to the next."""
    torch.manual_seed(0)
    encoding = create("sinusoidal", 16, 4)
    rows = encoding.on_embeddings(torch.zeros(1, 49, 64), encoding.prepare(torch.arange(49)))[0]
    return rows.diff(dim=0).norm(dim=1)


def hands(query, key):
    """The parts of the score of “dog” for “old”, clock by clock, by complex numbers."""
    q, k = (
        toy.vector(word, 64) @ toy.normals(seed, 1024).view(64, 16) / 8
        for word, seed in (("dog", 11), ("old", 12))
    )
    theta = [10_000 ** (-2 * j / 16) for j in range(8)]
    parts = []
    for j, speed in enumerate(theta):
        a, b = complex(*q[2 * j : 2 * j + 2].tolist()), complex(*k[2 * j : 2 * j + 2].tolist())
        gap = (query - key) * speed
        parts.append((a * b.conjugate() * complex(math.cos(gap), math.sin(gap))).real / 4)
    return parts


# For each scene: the lowest guess, its step, a right guess by Python, and a key that guesses wrong
GUESSES = [
    (0, 0.05, lambda: 0, "End"),
    (0, 0.02, lambda: shares()[12], "End"),
    (0, 0.1, lambda: float(steps()[0]), "End"),
    (-1, 0.1, lambda: sum(hands(12, 9)), "End"),
    (0, 1, lambda: 29, "Home"),
    (0, 0.02, lambda: 0, "End"),
]


@pytest.mark.parametrize("scene", range(6))
def test_each_scene_asks_on_its_figure_and_marks_the_answer(visit, scene):
    """The figure is there before the guess; keys move the guess, Enter checks it."""
    low, step, right, wrong = GUESSES[scene]
    page = visit(f"#v1/story?scene={scene}", reduced_motion="reduce")
    assert page.locator(".figure svg").first.is_visible()
    assert page.inner_text(".told") == ""
    handle = page.locator(".handle.guessed")
    assert handle.get_attribute("aria-label")
    handle.press(wrong)
    assert page.inner_text(".acts button") == "See if it is right"
    handle.press("Enter")
    assert page.inner_text(".told b").startswith("✕ You said ")
    assert page.inner_text(f".steps a[data-scene='{scene}'] i") == "✕"
    assert handle.is_hidden()
    number = 1 + round((right() - low) / step)
    page.evaluate(f"location.hash = '#v1/story?scene={scene}&guess={number}'")
    page.locator(".acts button").click()
    assert page.inner_text(".told b").startswith("✓ You said ")
    assert page.inner_text(f".steps a[data-scene='{scene}'] i") == "✓"


def test_a_guess_is_dragged_and_kept_in_the_address(visit):
    page = visit("#v1/story?scene=1")
    handle, board = page.locator(".handle.guessed"), page.locator(".board svg")
    before, frame = handle.bounding_box(), board.bounding_box()
    page.mouse.move(before["x"] + 22, before["y"] + 22)
    page.mouse.down()
    page.mouse.move(before["x"] + 22, before["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"scene=1&guess=\d+$"))
    assert handle.bounding_box()["y"] > before["y"] + 20
    assert 0 < int(handle.get_attribute("aria-valuetext").split()[0]) < 60
    page.mouse.click(frame["x"] + 20, frame["y"] + 40)  # outside of the bar of the question
    kept = page.url
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.url == kept


def test_scenes_lead_to_each_other(visit):
    """By the arrow keys and by the sentences, which begin with “but” or “so”."""
    page = visit()
    assert page.locator(".steps a span").all_inner_texts() == SCENES
    for scene in range(1, 7):
        assert page.inner_text(".bridge") == "Next scene →"
        page.keyboard.press("s")
        at_rest(page)
        assert page.inner_text(".bridge b") in ("But", "So")
        if scene % 2:
            page.keyboard.press("ArrowRight")
        else:
            page.locator(".bridge").click()
        page.wait_for_url(f"**#v1/story?scene={scene}")
        assert page.inner_text(".of") == f"{scene + 1} of 7"
        page.locator("h2").focus()
    assert page.locator(".bridge").is_hidden()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**#v1/story?scene=5")


def test_the_number_drowns_the_word_as_python_says(visit):
    page = visit("#v1/story?scene=1&seen")
    wanted = [100 * share for share in shares()]
    label = page.get_attribute(".board svg", "aria-label").split(": ")[1]
    assert numbers(label) == pytest.approx(wanted, abs=0.51)
    ratio = 1 / shares()[12] - 1
    assert numbers(page.inner_text(".told")) == pytest.approx([12, wanted[12], ratio], abs=0.51)


def test_waves_move_as_far_at_every_place(visit):
    each = steps()
    assert each.max() - each.min() < 1e-4
    text = visit("#v1/story?scene=2&seen").inner_text(".told")
    assert numbers(text)[0] == pytest.approx(float(each[0]), rel=6e-3)


@pytest.mark.parametrize(("at", "apart"), [(12, 3), (40, 0), (20, -5)])
def test_clocks_sum_to_the_score(visit, at, apart):
    """Each clock's part by complex numbers, the score by the hooks of RoPE."""
    page = visit(f"#v1/story?scene=3&seen&at={at}&apart={apart}")
    titles = page.locator(".board title").all_text_contents()
    parts = hands(at, at - apart)
    shown = [float(text.rpartition(" ")[2].replace("−", "-")) for text in titles]
    assert shown == pytest.approx(parts, abs=6e-3)
    rope = create("rope", 16, 1)
    turned = [
        hook(
            (toy.vector(word, 64) @ toy.normals(seed, 1024).view(64, 16) / 8).view(1, 1, 1, 16),
            rope.prepare(torch.tensor([place])),
        )
        for hook, word, seed, place in (
            (rope.on_queries, "dog", 11, at),
            (rope.on_keys, "old", 12, at - apart),
        )
    ]
    score = (turned[0] * turned[1]).sum().item() / 4
    assert score == pytest.approx(sum(parts), abs=1e-5)
    label = page.get_attribute(".board svg", "aria-label")
    assert numbers(label)[-1] == pytest.approx(score, abs=6e-3)


def test_both_hands_turn_while_the_score_stays(visit):
    """The film moves both words by 37 places; the label has their places at each moment."""
    page = visit("#v1/story?scene=3&seen&film=0")
    label = lambda: numbers(page.get_attribute(".board svg", "aria-label"))  # noqa: E731
    begun = label()
    assert begun[:2] == [12, 9]
    for percent in (50, 100):
        page.get_by_label("From at 12 to at 49").fill(str(percent))
        query, key, score = label()
        assert query - key == 3
        assert query == pytest.approx(12 + 37 * percent / 100, abs=0.51)
        assert score == begun[2]


@pytest.mark.parametrize(("way", "name"), [*enumerate(["none", "interpolate", "ntk", "yarn"])])
@pytest.mark.parametrize("film", [0, 40, 100])
def test_dials_are_those_of_the_analysis(visit, way, name, film):
    """At each length between, with the extension for 131,072 tokens."""
    target = round(8_192 + film / 100 * (131_072 - 8_192))
    theta = frequencies(128, 500_000)
    found = by_method(theta, 8_192, 131_072)[name]
    turns = [(target / dial.wavelength, dial.met) for dial in found]
    new = sum(min(1, turn) - met > 1e-9 for turn, met in turns)
    page = visit(f"#v1/story?scene=4&seen&film={film}&way={way}")
    label = page.get_attribute(".board svg", "aria-label")
    assert numbers(label) == [64, target, new]
    assert page.locator(".clock").count() == 64
    told = page.inner_text(".told")
    if film == 100:
        assert new == sum(dial.new > 0 for dial in found)
        if name != "interpolate":
            assert str(new) in told
    assert ("stand 16 times closer" in told) == (name == "interpolate")
    assert ("still has to be trained" in told) == (name == "yarn")


def test_the_extensions_are_those_of_the_library():
    theta = frequencies(128, 500_000)
    ways = {way["name"]: way["theta"] for way in story()["growth"]["ways"]}
    assert ways["as trained"] == pytest.approx(list(theta), rel=1e-12)
    assert ways["PI"] == pytest.approx([each / 16 for each in theta], rel=1e-12)
    ntk = [each * 16 ** (-2 * j / 126) for j, each in enumerate(theta)]
    assert ways["NTK"] == pytest.approx(ntk, rel=1e-12)
    assert ways["YaRN"][0] == pytest.approx(1)
    assert ways["YaRN"][63] == pytest.approx(theta[63] / 16, rel=1e-12)


def test_each_clock_is_shown_large_by_mouse_and_by_keys(visit):
    page = visit("#v1/story?scene=4&seen")
    handle = page.get_by_label("The clock that is shown large")
    assert handle.get_attribute("aria-valuenow") == "45"
    handle.press("ArrowRight")
    assert "clock 46 of 64" in page.locator(".board").text_content()
    box = page.locator(".clock").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert "clock 1 of 64" in page.locator(".board").text_content()
    assert "all of the circle in training" in handle.get_attribute("aria-valuetext")


@pytest.mark.repository
def test_the_cliff_is_the_study_s(visit):
    """Each share by its store; each seed a dot."""
    copied = {find(row.encoding).name: row for row in analyse(read(STUDIES / "shape-copy")).rows}
    page = visit("#v1/story?scene=5&seen")
    label = page.get_attribute(".board svg", "aria-label").replace("T5 ", "")
    wanted = [
        number
        for name in ["NoPE", "Sinusoidal", "ALiBi", "T5", "RoPE"]
        for n in (10, 12)
        for number in (100 * fmean(copied[name].curve[n]), n)
    ]
    assert numbers(label) == pytest.approx(wanted, abs=0.51)
    assert all(one == 0 for one in copied["RoPE"].curve[12])
    assert "these RoPE models copy none" in page.inner_text(".told")
    assert page.locator("circle.one").count() == len(copied) * 2 * 6
    how = page.inner_text(".figure .note")
    assert "4 layers, 64 channels, 2,000 steps at learning rate 0.001, 6 seeds" in how
    assert "words may repeat" in how
    assert "a pilot with one seed and a higher rate copies longer texts" in how


def test_the_story_ends_with_the_guide_and_three_doors(visit):
    page = visit("#v1/story?scene=6")
    text = page.inner_text(".which")
    for row in GUIDE:
        assert row.use in text
        assert row.answer.replace("`", "") in text
    assert page.locator(".doors > *").count() == 3
    page.get_by_role("link", name="Your model").click()
    page.wait_for_url("**#v1/context")


def test_claims_of_the_tour_are_footnotes(visit):
    """All of them, each below one scene."""
    stops = []
    for scene in range(len(SCENES)):
        page = visit(f"#v1/story?scene={scene}")
        stops += [link.get_attribute("href") for link in page.locator(".notes a").all()]
    wanted = ["#v1/tour"] + [f"#v1/tour?stop={n}" for n in range(2, 16)]
    assert sorted(stops) == sorted(wanted)


def test_by_touch_a_word_is_dragged(visit):
    page = visit(width=390, has_touch=True, is_mobile=True)
    at_rest(page)
    box = page.locator(".word").nth(0).bounding_box()
    client = page.context.new_cdp_session(page)
    spots = [(box["x"] + 10 + n * 20, box["y"] + 10) for n in range(9)]
    for n, (x, y) in enumerate(spots):
        kind = "touchMove" if n else "touchStart"
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_url("**order=1,2,**")


@pytest.mark.parametrize("width", [1280, 820, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_each_scene(visit, scheme, width):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(width=width, scheme=scheme)
    for scene, state in product(range(len(SCENES)), ("guess=5", "guess=5&seen")):
        page.evaluate(f"location.hash = '#v1/story?scene={scene}&{state}'")
        page.wait_for_selector(f".steps a[data-scene='{scene}'][aria-current=step]")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, scene
        found = Axe().run(page, None, {"runOnly": AA, "resultTypes": ["violations"]}).response
        assert [
            f"{scene}: {one['id']} {node['html'][:120]}"
            for one in found["violations"]
            for node in one["nodes"]
        ] == []


BECKONS = "getComputedStyle(document.querySelector('.handle.guessed'), '::before').animationName"


def test_the_handle_beckons_until_the_first_guess(visit):
    """The handle rests if the system prefers less motion."""
    page = visit("#v1/story?scene=1")
    assert page.evaluate(BECKONS) == "beckon"
    page.get_by_role("slider").first.press("ArrowUp")
    assert page.evaluate(BECKONS) == "none"
    assert visit("#v1/story?scene=1", reduced_motion="reduce").evaluate(BECKONS) == "none"


def test_a_coloured_word_points_at_its_colour_in_the_figure(visit):
    page = visit("#v1/story?scene=1&seen")
    look = "one => getComputedStyle(one).opacity"
    blue, orange = (page.locator(f".board .{colour}").last for colour in ("low", "high"))
    before = orange.evaluate(look)
    page.hover(".words em.low")
    assert float(orange.evaluate(look)) == 0.15 < float(before)
    assert float(blue.evaluate(look)) > 0.15
