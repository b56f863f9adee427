"""Thinning against torch's pooling, colours against the contrast that WCAG requires."""

import torch
from torch.nn.functional import max_pool2d

from posenc.show.report.drawing import figure as drawing
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Heat, heat

LIGHT, DARK = "#fdfdfc", "#16181b"  # the papers of the page


def test_a_small_heat_map_is_left_as_it_is():
    z = [[1.0, -2.0], [3.0, None]]
    assert heat(z, signed=True) == Heat(z, range(2), range(2), signed=True)


def test_of_each_block_the_value_farthest_from_0_is_shown():
    z = torch.randn(300, 700)
    thin = heat(z.tolist(), range(700), range(10, 310), signed=True)
    assert (len(thin.z), len(thin.z[0])) == (150, 234)
    assert thin.block == (2, 3)
    high, low = (sign * max_pool2d(sign * z[None], (2, 3), ceil_mode=True)[0] for sign in (1, -1))
    expected = torch.where(high > -low, high, low)
    assert torch.tensor(thin.z).allclose(expected, rtol=1e-4)
    assert (list(thin.x[:2]), list(thin.y[:2])) == ([0, 3], [10, 12])


def test_thinning_is_told():
    figure = Figure("", [Panel("", [heat([[0.0] * 600] * 10)])], "It is flat.")
    assert figure.alt == "It is flat. Each cell shows, of 1 × 3, the value farthest from 0."


def test_the_palette_of_signed_values_is_centred_at_0():
    assert heat([[1.0, -7.0]], signed=True).span == (-7, 7)
    assert heat([[1.0, 7.0]]).span == (0, 7)
    assert heat([[0.0]], signed=True).span == (-1, 1)  # a palette needs two ends


def test_twenty_lines_differ_and_those_of_one_colour_in_dash_and_marker():
    looks = [style(n) for n in range(20)]
    for n, one in enumerate(looks):
        for other in looks[:n]:
            if one["colour"] == other["colour"]:
                assert one["dash"] != other["dash"]
                assert one["marker"] != other["marker"]


def test_lines_stand_out_from_both_papers():
    for colour in drawing.COLOURS:
        assert contrast(colour, LIGHT) >= 2.8, colour
        assert contrast(colour, DARK) >= 2.8, colour


def contrast(one, other):
    """WCAG 2.2: (L₁ + 0.05) / (L₂ + 0.05)."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    red, green, blue = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (red, green, blue)
    ]
    return sum(weight * v for weight, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
