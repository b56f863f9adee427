"""The story: each number of its scenes against Python's; by mouse, by keys and by touch."""

import math
import re
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
from posenc.show.report.guide import ALIBI, GUIDE

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
    """What `attend` writes for each word, (token, channel): head 0 of the toy layer."""
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


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [2, 0, 1, 3, 5, 4]])
def test_the_dogs_differ_by_what_attend_writes(visit, kind, order):
    words = [SENTENCE[n] for n in order]
    out, typed = written(kind, words), written(kind, SENTENCE)
    first, second = (n for n, word in enumerate(words) if word == "dog")
    differ = (out[first] - out[second]).abs().max().item()
    moved = (out - typed[order]).abs().max().item()
    text = visit(f"#v1/story?kind={kind}&order={','.join(map(str, order))}").inner_text(".verdict")
    wanted = []
    if differ < 1e-5:
        assert "The two dogs get the same column." in text
    else:
        wanted.append(differ)
    if order == sorted(order):
        assert "column." in text or "differ" in text
    elif moved < 1e-5:
        assert "The columns moved with their words: nothing changed." in text
    else:
        wanted.append(moved)
    assert numbers(text) == pytest.approx(wanted, rel=6e-3)
    assert (differ < 1e-5) == (kind == 0)


def at_rest(page):
    """Wait until nothing on the page moves: on a busy machine words slide when they are clicked."""
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
    page.wait_for_url("**order=1,0,2,3,4,5")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**order=1,2,0,3,4,5")
    at_rest(page)
    box = words.nth(5).bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(before[0] + 20, box["y"] + 20, steps=8)
    page.mouse.up()
    page.wait_for_url("**order=5,1,2,0,3,4")
    at_rest(page)
    assert places()[5] == pytest.approx(before[0], abs=1)
    assert "nothing changed" in page.inner_text(".verdict")
    page.get_by_role("button", name="add waves").click()
    assert "The shuffle changed a column by" in page.inner_text(".verdict")
    page.get_by_role("button", name="As typed").click()
    assert "shuffle" not in page.inner_text(".verdict")
    page.get_by_role("button", name="Shuffle").click()
    assert "shuffle" in page.inner_text(".verdict")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_who_wants_less_motion_sees_none(visit, motion):
    page = visit(reduced_motion=motion)
    seconds = page.locator(".word").first.evaluate(
        "one => getComputedStyle(one).transitionDuration"
    )
    assert (seconds == "0s") == (motion == "reduce")


def test_scenes_are_states_that_ask_before_they_show(visit):
    """By the arrow keys, each at its address; nothing is shown before the guess."""
    page = visit()
    assert page.locator(".steps a").all_inner_texts() == SCENES
    for scene in range(1, 7):
        page.keyboard.press("ArrowRight")
        page.wait_for_url(f"**#v1/story?scene={scene}")
        assert page.locator(".scene").is_hidden()
        answers = page.locator(".answers button")
        assert answers.count() == 3
        said = []
        for n in range(3):
            answers.nth(n).click()
            page.wait_for_url(f"**scene={scene}&guess={n + 1}")
            assert page.locator(".scene").is_visible()
            said.append(page.inner_text(".told").split(". ")[0].rstrip("."))
        assert sorted(said) == ["Not so", "Not so", "Right"]
        page.locator("h2").focus()
    assert page.get_by_role("button", name="Next").is_disabled()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**#v1/story?scene=5")


def test_the_number_is_as_long_as_python_says(visit):
    word, at = toy.vector("dog", 64), 20
    integer = create("integer", 16, 4)
    rows = integer.on_embeddings(torch.zeros(1, 101, 64), integer.prepare(torch.arange(101)))[0]
    first = next(p for p in range(101) if rows[p].norm() >= word.norm())
    assert first < 10  # the right answer
    wanted = [word.norm(), first, at, rows[at].norm(), rows[at].norm() / word.norm()]
    text = visit(f"#v1/story?scene=1&guess=1&at={at}").inner_text(".told")
    assert numbers(text) == pytest.approx([float(n) for n in wanted], rel=6e-3)


def test_waves_move_as_far_at_every_place_and_scores_are_not_by_distance(visit):
    torch.manual_seed(0)
    encoding = create("sinusoidal", 16, 4)
    rows = encoding.on_embeddings(torch.zeros(1, 64, 64), encoding.prepare(torch.arange(64)))[0]
    steps = rows.diff(dim=0).norm(dim=1)
    assert steps.max() - steps.min() < 1e-4
    scores = toy.added(encoding, ["dog"] * 64)[0, 0]
    diagonals = [scores.diagonal(-n) for n in range(-63, 64)]
    spread = max(float(d.max() - d.min()) for d in diagonals)
    means = [float(d.mean()) for d in diagonals]
    text = visit("#v1/story?scene=2&guess=2").inner_text(".told")
    assert numbers(text) == pytest.approx(
        [float(steps[0]), spread, max(means) - min(means)], rel=6e-3
    )


@pytest.mark.parametrize(("at", "apart"), [(12, 3), (40, 0)])
def test_clocks_sum_to_the_score(visit, at, apart):
    """Each pair's part by cosines of angles, the score by the hooks; the same 37 places on."""
    rope = create("rope", 16, 1)
    q, k = (
        toy.vector(word, 64) @ toy.normals(seed, 1024).view(64, 16) / 8
        for word, seed in (("dog", 11), ("chased", 12))
    )
    theta = [10_000 ** (-2 * j / 16) for j in range(8)]
    parts = []
    for j, speed in enumerate(theta):
        a, b = complex(*q[2 * j : 2 * j + 2].tolist()), complex(*k[2 * j : 2 * j + 2].tolist())
        parts.append(
            (a * b.conjugate() * complex(math.cos(apart * speed), math.sin(apart * speed))).real / 4
        )
    page = visit(f"#v1/story?scene=3&guess=3&at={at}&apart={apart}")
    shown = [numbers(text)[0] for text in page.locator(".circles b").all_inner_texts()]
    assert shown == pytest.approx(parts, rel=0.06, abs=1e-3)
    score = numbers(page.inner_text(".scene .verdict"))[-1]
    assert score == pytest.approx(sum(parts), rel=6e-3)
    pos = [torch.tensor([at]), torch.tensor([at - apart])]
    turned = [
        hook(x.float().view(1, 1, 1, 16), rope.prepare(p))
        for hook, x, p in zip((rope.on_queries, rope.on_keys), (q, k), pos, strict=True)
    ]
    assert score == pytest.approx((turned[0] * turned[1]).sum().item() / 4, rel=6e-3)
    assert numbers(page.inner_text(".told"))[:3] == [score, score, 37]


@pytest.mark.parametrize(("way", "name"), [*enumerate(["none", "interpolate", "ntk", "yarn"])])
@pytest.mark.parametrize("target", [8_192, 16_384, 131_072])
def test_dials_are_those_of_the_analysis(visit, way, name, target):
    theta = frequencies(128, 500_000)
    found = by_method(theta, 8_192, target)[name]
    new = sum(dial.new > 0 for dial in found)
    page = visit(f"#v1/story?scene=4&guess=1&wanted={target}&way={way}")
    text = page.inner_text(".scene .verdict")
    assert numbers(text)[:3] == [new, 64, target]
    assert page.locator(".dials .new").count() == sum(dial.new > 1e-5 for dial in found)
    assert page.locator(".dials svg").count() == 64
    factor = target // 8_192
    assert ("Its price" in text) == (name == "interpolate" and factor > 1)
    if "Its price" in text:
        assert f"turns {factor} times less" in text


@pytest.fixture(scope="module")
def outcomes():
    """Both studies from their stores: share right by length, bits, and bits of the cropped."""
    found = [analyse(read(STUDIES / name)) for name in ("shape-copy", "fair-text")]
    by = [
        {find(row.encoding).name: row for row in one.rows if row.encoding != "rope in a window"}
        for one in found
    ]
    cropped = {
        find(row.encoding.removesuffix(" cropped")).name: row
        for row in found[1].baselines
        if row.encoding.endswith(" cropped") and row.encoding != "rope in a window cropped"
    }
    return *by, cropped


@pytest.mark.repository
def test_the_cliff_is_the_study_s(visit, outcomes):
    """Each share by its store; each seed a dot."""
    copied, *_ = outcomes
    page = visit("#v1/story?scene=5&guess=3")

    def share(name, length):
        return 100 * fmean(copied[name].curve[length])

    most = max(share(name, 14) for name in copied)
    names = ["Sinusoidal", "NoPE", "ALiBi", "T5"]
    wanted = [0, 6, share("RoPE", 10), 10, *(share(name, 12) for name in names), 14, most]
    told = page.inner_text(".told").replace("T5 ", "")
    assert "where no word repeats, with four times the batch and rate" in told
    assert "in which words may repeat" in page.inner_text("body")
    assert numbers(told) == pytest.approx(wanted, abs=0.5)
    assert all(one == 0 for one in copied["RoPE"].curve[12])  # "with each of 6 seeds"
    lengths = [length for length in copied["RoPE"].curve if length >= 10]
    figure = page.locator(".scene figure").first
    assert figure.locator("circle.one").count() == len(copied) * len(lengths) * 6
    assert figure.locator("polyline").count() == len(copied)


@pytest.mark.repository
@pytest.mark.parametrize("reader", range(7))
def test_reading_on_stands_beside_cropping(visit, outcomes, reader):
    _, read_on, cropped = outcomes
    page = visit(f"#v1/story?scene=5&guess=3&reader={reader}")
    rows = page.locator(".scene [aria-label='Encoding that reads letters'] button")
    assert {*rows.all_inner_texts()} == {*read_on}
    name = rows.nth(reader).inner_text()
    assert rows.nth(reader).get_attribute("aria-pressed") == "true"
    on, alone = read_on[name].curve[128], cropped[name].curve[128]
    better = sum(round(a, 4) < round(b, 4) for a, b in zip(alone, on, strict=True))
    text = page.inner_text(".scene .verdict").replace(name, "")
    wanted = [128, fmean(on), fmean(alone), 64, better, 8]
    assert numbers(text) == pytest.approx(wanted, abs=6e-4)
    assert round(fmean(alone), 3) <= round(fmean(on), 3)
    how = page.inner_text(".scene .soft")
    assert (
        "studies/shape-copy: 4 layers, 64 channels, 2,000 steps at one rate, 0.001, 6 seeds" in how
    )
    assert "5,000 steps at rate 0.004, the largest of the 3 tried, for every row, 8 seeds" in how
    four = "ALiBi has two heads there; with four (studies/shape-text, rate 0.001, 1,500 steps)"
    assert f"{four} it needs {ALIBI[0]} bits at 128" in how


def test_the_guide_is_that_of_its_page(visit):
    page = visit("#v1/story?scene=6&guess=3")
    text = page.inner_text(".uses")
    for row in GUIDE:
        assert row.use in text
        assert row.answer.replace("`", "") in text
    page.get_by_role("link", name="Models that are in this page").click()
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
    for scene in range(len(SCENES)):
        page.evaluate(f"location.hash = '#v1/story?scene={scene}&guess=1'")
        page.wait_for_selector(f".steps a[data-scene='{scene}'][aria-current=step]")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, scene
        found = Axe().run(page, None, {"runOnly": AA, "resultTypes": ["violations"]}).response
        assert [
            f"{scene}: {one['id']} {node['html'][:120]}"
            for one in found["violations"]
            for node in one["nodes"]
        ] == []
