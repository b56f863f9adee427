"""The page as a printer lays it out: no script runs, and still each cell stands beside its word."""

import io
from contextlib import suppress

import numpy as np
import pytest

import posenc

with suppress(ImportError):  # a part of matplotlib, which reads PNG
    from matplotlib.image import imread

pytestmark = pytest.mark.slow

# A browser that prints lays the page out anew, and calls no observer of sizes.
NO_OBSERVER = "window.ResizeObserver = class { observe() {} }"
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_on_paper_each_cell_stands_beside_its_words(chromium, tmp_path, width, scheme):
    file = posenc.explore("rope").save(tmp_path / "explore.html")
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, device_scale_factor=1
    )
    page = context.new_page()
    page.add_init_script(NO_OBSERVER)
    page.goto(f"{file.as_uri()}#v1/order/rope")
    page.wait_for_selector("html[data-ready]")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
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
    context.close()
