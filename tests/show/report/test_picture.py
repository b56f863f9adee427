"""Pictures against the files that are written, and results against the size of a small table."""

import pytest
from refusals import refused

from posenc.show.plot import pictures
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import Line
from posenc.show.report.picture import Picture

PICTURE = Picture(Figure("A <line>", [Panel("", [Line([0, 1], [0, 1])])], "It & rises."))


@pytest.mark.parametrize(
    ("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_it_is_saved_as_its_name_says(kind, begins, tmp_path):
    path = PICTURE.save(str(tmp_path / f"line.{kind}"))
    assert path.read_bytes().startswith(begins)


def test_a_width_is_that_of_the_file(tmp_path):
    from PIL import Image

    for width in (85, 183):
        with Image.open(PICTURE.save(tmp_path / f"{width}.png", width=width)) as image:
            assert image.width == pytest.approx(width / 25.4 * 200, abs=2)


@pytest.mark.parametrize(("name", "width", "says"), [
    ("line.gif", 85, ["`path`", "'line.gif'"]),
    ("line.png", 3, ["`width`", 40, 1000, 3]),
])  # fmt: skip
def test_what_cannot_be_saved_is_said_before_anything_is_written(name, width, says, tmp_path):
    with refused(ValueError, *says):
        PICTURE.save(tmp_path / name, width=width)
    assert not [*tmp_path.iterdir()]


def test_it_shows_itself():
    assert PICTURE._repr_png_().startswith(b"\x89PNG")
    html = PICTURE._repr_html_()
    assert 'alt="It &amp; rises."' in html
    assert html.count("<img") == html.count("<figcaption>") == 1
    assert repr(PICTURE).startswith("A <line>: It & rises. (`.save")
    assert len(repr(PICTURE.figure)) < 100


def test_a_comparison_of_everything_is_a_small_table(everything):
    html = everything._repr_html_()
    assert len(html.encode()) < 600 * len(everything.encodings)
    assert html.count('<th scope="row">') == len(everything.encodings)
    assert len(repr(everything)) < 1_000
    assert {"curves", "properties"} <= {*pictures(everything)}
