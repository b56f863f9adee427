"""Images of heat maps, read by Pillow, against the values."""

import base64
import io

import pytest
from PIL import Image

from posenc.show.report.drawing import heat_image
from posenc.show.report.drawing.marks import Heat


def colours(made):
    data = base64.b64decode(made.partition(",")[2])
    return Image.open(io.BytesIO(data)).convert("RGBA")


def test_the_first_row_is_the_lowest_unless_the_axis_runs_down():
    values = Heat([[0.0, 0.0], [1.0, None]], [0, 1], [0, 1])
    paper, blue = (31, 131, 196, 0), (31, 131, 196, 255)
    up, down = colours(heat_image.image(values)), colours(heat_image.image(values, True))
    assert (up.getpixel((0, 0)), up.getpixel((0, 1))) == (blue, paper)
    assert (down.getpixel((0, 0)), down.getpixel((0, 1))) == (paper, blue)
    assert up.getpixel((1, 0))[3] == 0  # no value, no colour


def test_signed_values_fade_towards_0():
    values = Heat([[-2.0, -1.0, 0.0, 1.0, 2.0]], range(5), [0], signed=True)
    image = colours(heat_image.image(values))
    red, _, blue, seen = zip(*(image.getpixel((n, 0)) for n in range(5)), strict=True)
    assert seen == pytest.approx((255, 128, 0, 128, 255), abs=2)
    assert blue[0] > red[0]
    assert blue[4] < red[4]


def test_numbers_stand_out_from_their_cells():
    """The number has the colour of the page's text where the paper shows more than the colour."""
    values = Heat([[0.0, 1.0]], [0, 1], [0])
    assert [heat_image.ink(value, values) for value in (0.0, 1.0)] == ["currentColor", "#fff"]
    assert heat_image.ink(0.0, Heat([[1.0]], [0], [0], signed=True)) == "currentColor"


def test_the_bar_shows_every_step_of_the_palette():
    image = colours(heat_image.bar(Heat([[3.0, 5.0]], [0, 1], [0], low=3)))
    assert (image.width, image.height) == (255, 1)
    assert len({image.getpixel((n, 0)) for n in range(255)}) > 200
