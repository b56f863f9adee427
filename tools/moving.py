"""Record the explorer's story: two GIFs for the README, and a picture of each scene for a class.

All are written to docs/pictures. `python tools/moving.py [PAGE]` films a given page. Needs
Chromium. The first film shuffles the words, orders them again and turns them; the second lets a
text grow to 131,072 tokens and stretches the model by YaRN and by PI.
"""

import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

PICTURES = Path(__file__).parent.parent / "docs/pictures"
WIDE, HIGH = 1_120, 900  # pixels of the window
STEP, STILL = 70, 1_800  # milliseconds of a frame of a motion, and of one that stands
MOVES = 8  # frames of a motion
GROWN = range(0, 101, 4)  # percent of the film of the growing text
AT = """share => document.getAnimations().forEach(one => {
    one.pause();
    one.currentTime = share * one.effect.getComputedTiming().endTime;
})"""
UNUSED = ".story nav, .on, .film, .acts, .kinds .sentence, footer, header { visibility: hidden; }"
COLOURS = 48
SCENES = 7
SETTLED = 3_500  # milliseconds after which nothing in a scene moves

Shot = tuple[Image.Image, int]  # a picture, and the milliseconds for which it stands


def dogs(page: Page) -> Iterator[Shot]:
    animations = page.context.new_cdp_session(page)
    animations.send("Animation.enable")
    animations.send("Animation.setPlaybackRate", {"playbackRate": 0.001})  # moved by `AT`
    yield picture(page), STILL
    for button in ("Shuffle", "Shuffle", "RoPE 2021", "Shuffle", "As typed"):
        page.get_by_role("button", name=button, exact=True).click()
        for n in range(1, MOVES):
            page.evaluate(AT, n / MOVES)
            yield picture(page), STEP
        page.evaluate("document.getAnimations().forEach(one => one.finish())")
        yield picture(page), STILL


def grown(page: Page) -> Iterator[Shot]:
    for percent in GROWN:
        page.evaluate(f"location.hash = '#v1/story?scene=4&seen&film={percent}'")
        page.wait_for_timeout(60)
        yield picture(page), STILL if percent in (0, 100) else 2 * STEP
    for button in ("YaRN 2023", "PI 2023"):
        page.get_by_role("button", name=button, exact=True).click()
        end = time.monotonic() + 1.8
        while time.monotonic() < end:
            yield picture(page), 2 * STEP
        yield picture(page), 2 * STILL


def picture(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def save(shots: list[Shot], out: Path) -> None:
    """Save the screenshots as a GIF with one palette; equal neighbours become one frame."""
    palette = shots[-1][0].quantize(COLOURS, Image.Quantize.MEDIANCUT)
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


def photograph(browser: Browser, address: str) -> None:
    """Save each scene of the story after the guess as story_1.png, story_2.png, …"""
    for scene in range(SCENES):
        page = browser.new_page(viewport={"width": WIDE, "height": 800}, color_scheme="light")
        page.goto(f"{address}#v1/story?scene={scene}&seen")
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(SETTLED)
        page.add_style_tag(content="header, nav, footer { display: none !important; }")
        still = picture(page).quantize(COLOURS, Image.Quantize.MEDIANCUT)
        still.save(PICTURES / f"story_{scene + 1}.png", optimize=True)
        page.close()


def main(path: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        photograph(browser, path.resolve().as_uri())
        for name, scene, film in (("which_dog", 0, dogs), ("text_grows", 4, grown)):
            page = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
            page.goto(f"{path.resolve().as_uri()}#v1/story?scene={scene}&seen&film=0")
            page.wait_for_selector("html[data-ready]")
            page.evaluate(f"location.hash = '#v1/story?scene={scene}&seen'")
            page.wait_for_timeout(1_500)  # until the words have come to their places
            page.add_style_tag(content=UNUSED)
            page.evaluate("document.activeElement.blur()")
            above, figure = (page.locator(one).bounding_box() for one in (".words", ".scene"))
            assert above
            assert figure
            ends = round(above["y"]) - 6, round(figure["y"] + figure["height"]) + 6
            cut = [(one.crop((0, ends[0], WIDE, ends[1])), wait) for one, wait in film(page)]
            save(cut, PICTURES / f"{name}.gif")
            page.close()
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        from posenc.show.explorer import explore

        with tempfile.TemporaryDirectory() as folder:
            main(explore.explore().save(Path(folder) / "explore.html"))
