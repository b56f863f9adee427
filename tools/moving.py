"""Film the first scene of the explorer for the README: docs/pictures/which_dog.gif.

python tools/moving.py [PAGE]: the explorer's page, which is made anew where none is named. Needs
Chromium. Words are shuffled, ordered again, and turned; each frame is a picture of the page.
"""

import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parent.parent / "docs/pictures"
WIDE, HIGH = 900, 900  # pixels of the window
FIRST, LAST, ROOM = "h2", ".verdict", 38  # what is filmed, from above to below, and pixels beyond
STEP, STILL = 70, 1_600  # milliseconds of a frame of a motion, and of one that is to be looked at
MOVES = 8  # frames of a motion
HIDDEN = """end => document.querySelectorAll("main *").forEach(one => {
    if (one.getBoundingClientRect().top >= end) one.style.visibility = "hidden";
})"""
AT = """share => document.getAnimations().forEach(one => {
    one.pause();
    one.currentTime = share * one.effect.getComputedTiming().endTime;
})"""
COLOURS = 64


def film(page: Page) -> Iterator[tuple[Image.Image, int]]:
    """Pictures, each with the milliseconds that it stands."""
    yield picture(page), STILL
    for button in ("Shuffle", "Shuffle", "turn", "Shuffle", "As typed"):
        page.get_by_role("button", name=button, exact=True).click()
        for n in range(1, MOVES):
            page.evaluate(AT, n / MOVES)
            yield picture(page), STEP
        page.evaluate("document.getAnimations().forEach(one => one.finish())")
        yield picture(page), STILL


def picture(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def between(page: Page) -> tuple[int, int]:
    """Where what is filmed begins and ends, in pixels of the window."""
    first, last = (page.locator(name).first.bounding_box() for name in (FIRST, LAST))
    assert first
    assert last
    return round(first["y"]), round(last["y"] + last["height"]) + ROOM


def save(shots: list[tuple[Image.Image, int]], out: Path) -> None:
    """Write frames that differ; all have the colours of the first."""
    palette = shots[0][0].quantize(COLOURS, Image.Quantize.MEDIANCUT)
    frames: list[Image.Image] = []
    times: list[int] = []
    for shot, milliseconds in shots:
        frame = shot.quantize(palette=palette, dither=Image.Dither.NONE)
        if frames and frame.tobytes() == frames[-1].tobytes():
            times[-1] += milliseconds
        else:
            frames.append(frame)
            times.append(milliseconds)
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=times, loop=0)


def main(path: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
        page.goto(path.resolve().as_uri())
        page.get_by_role("button", name="Shuffle", exact=True).wait_for()
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(1_500)  # the words come to their places
        animations = page.context.new_cdp_session(page)
        animations.send("Animation.enable")
        animations.send("Animation.setPlaybackRate", {"playbackRate": 0.001})  # `film` moves them
        above, end = between(page)
        page.evaluate(HIDDEN, end - ROOM)
        shots = [*film(page)]
        _, below = between(page)
        cut = [(shot.crop((0, above, WIDE, below)), time) for shot, time in shots]
        save(cut, PICTURES / "which_dog.gif")
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        from posenc.show.explorer import explore

        with tempfile.TemporaryDirectory() as folder:
            main(explore.explore().save(Path(folder) / "explore.html"))
