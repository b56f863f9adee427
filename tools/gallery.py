"""Write each example's picture to examples/pictures/NAME.png; --check lists stale pictures.

Each script is run, and its figure drawn small. Names of scripts as arguments limit the run to
these. The title and the description of a figure are stored in the file, and --check compares only
them, because pixels differ with fonts. A script without its model draws nothing and keeps its old
picture.
"""

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from posenc.show.report.drawing.matplotlib import write

FOLDER = Path(__file__).parent.parent / "examples"
PICTURES = FOLDER / "pictures"
WIDE = 900  # pixels


def drawn(script: Path):
    """Run an example script, and return its figure, or None if the script has none."""
    with contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(script)).get("figure")


def save(figure, path: Path) -> None:
    whole = io.BytesIO()
    write(figure, whole, "png")
    picture = Image.open(whole).convert("RGB")
    small = picture.resize(
        (WIDE, round(picture.height * WIDE / picture.width)), Image.Resampling.LANCZOS
    )
    said = PngInfo()
    said.add_itxt("Title", figure.title)
    said.add_itxt("Description", figure.alt)
    # the method that keeps the colours of small marks and bars, not only those of large areas
    palette = small.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette.save(path, optimize=True, pnginfo=said)


def said(path: Path) -> tuple[str, str] | None:
    """Read the title and the description stored in a picture; None if there is no file."""
    if not path.exists():
        return None
    with Image.open(path) as picture:
        return picture.info.get("Title", ""), picture.info.get("Description", "")


def main(names: list[str], check: bool) -> list[str]:
    """Write or check the pictures of examples; return a sentence for each problem."""
    readme, faults = (FOLDER / "README.md").read_text("utf-8"), []
    PICTURES.mkdir(exist_ok=True)
    for script in sorted(FOLDER.glob("*.py")):
        picture = PICTURES / f"{script.stem}.png"
        if (names and script.stem not in names) or (figure := drawn(script)) is None:
            continue
        if not check:
            save(figure, picture)
        elif said(picture) != (figure.title, figure.alt):
            faults.append(f"{picture.name} is not what {script.name} draws")
        if not re.search(rf"!\[[^]]+\]\(pictures/{script.stem}\.png\)", readme):
            faults.append(f"README.md does not show {picture.name}")
    return faults


if __name__ == "__main__":
    faults = main([name for name in sys.argv[1:] if name != "--check"], "--check" in sys.argv)
    if faults:
        sys.exit("\n".join(faults) + ": python tools/gallery.py")
