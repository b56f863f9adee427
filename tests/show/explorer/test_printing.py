"""The printed page: no script runs, but each cell is still beside its word."""

import io
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

import posenc

with suppress(ImportError):  # a part of matplotlib, which reads PNG
    from matplotlib.image import imread

pytestmark = pytest.mark.slow

# A browser that prints lays the page out anew, and calls no observer of sizes.
NO_OBSERVER = "window.ResizeObserver = class { observe() {} }"
ENDS = """path => [0, path.getTotalLength()].map((at) => {
  const end = path.getPointAtLength(at).matrixTransform(path.getScreenCTM());
  return [end.x, end.y];
})"""
PAPER = 794  # pixels across: A4
CELLS = """figure => {
  const canvas = figure.querySelector("canvas"), n = canvas.width;
  const colours = [...canvas.getContext("2d").getImageData(0, 0, n, n).data];
  const middle = (text) => {
    const box = text.getBoundingClientRect();
    return [box.x + box.width / 2 + scrollX, box.y + box.height / 2 + scrollY];
  };
  const [columns, rows] = [[], []];
  for (const text of figure.querySelectorAll(".picture > svg > text")) {
    const turned = text.getAttribute("transform") ?? "";
    if (turned.startsWith("rotate(-45")) columns.push(text.getBoundingClientRect().right + scrollX);
    else if (text.getAttribute("text-anchor") === "end") rows.push(middle(text)[1]);
  }
  return { n, colours, columns, rows };
}"""


def on_paper(chromium, file, address, width, scheme="light"):
    """The page as it is printed from a screen of this width."""
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, device_scale_factor=1
    )
    page = context.new_page()
    page.add_init_script(NO_OBSERVER)
    page.goto(f"{file.as_uri()}{address}")
    page.wait_for_selector("html[data-ready]")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
    return page


@pytest.mark.parametrize("width", [1280, 390])
def test_on_paper_words_and_arcs_of_the_story_stand_together(chromium, tmp_path, width):
    """All six words side by side over the whole sheet, each arc from the middle of one to one."""
    file = posenc.explore().save(tmp_path / "explore.html")
    page = on_paper(chromium, file, "#v1/story?kind=2", width)
    words = [one.bounding_box() for one in page.locator(".word").all()]
    stage = page.locator(".stage").bounding_box()
    for before, after in pairwise(words):
        assert before["x"] + before["width"] < after["x"]
    right = words[-1]["x"] + words[-1]["width"]
    assert right == pytest.approx(stage["x"] + stage["width"], abs=10)
    middles = [box["x"] + box["width"] / 2 for box in words]
    arcs = [one.evaluate(ENDS) for one in page.locator("path.look").all()]
    for ends in arcs:
        for x, y in ends:
            assert min(abs(x - middle) for middle in middles) < 6
            assert y == pytest.approx(words[0]["y"], abs=8)
    assert len(arcs) == 5
    assert page.locator(".kinds button:visible").all_inner_texts() == ["RoPE 2021"]
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_on_paper_each_cell_stands_beside_its_words(chromium, tmp_path, width, scheme):
    file = posenc.explore("rope").save(tmp_path / "explore.html")
    page = on_paper(chromium, file, "#v1/order/rope", width, scheme)
    printed = 255 * imread(io.BytesIO(page.screenshot(full_page=True)))[..., :3]
    assert (printed[2, 2] > 250).all()  # paper
    for figure in page.locator("figure:visible").all():
        seen = figure.evaluate(CELLS)
        n = seen["n"]
        assert (len(seen["columns"]), len(seen["rows"])) == (n, n)
        wanted = np.reshape(seen["colours"], (n, n, 4))[..., :3]
        apart = (seen["columns"][-1] - seen["columns"][0]) / (n - 1)
        for i, y in enumerate(seen["rows"]):
            for j, x in enumerate(seen["columns"]):
                # to the side of the middle, where no line of the cursor runs
                found = printed[round(y), round(x - 0.2 * apart)]
                assert np.abs(found - wanted[i, j]).max() <= 3, (i, j)
    page.context.close()
