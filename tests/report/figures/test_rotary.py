"""Lines against wavelengths and errors."""

import math

from posenc import frequencies
from posenc.analysis.frequencies import extended
from posenc.analysis.precision import Precision
from posenc.report import figures


def test_each_method_is_shown_against_what_was_trained():
    """Base 10,000 over 128 channels and 4,096 tokens: 92 complete a turn, as for Llama 2."""
    found = extended(frequencies(128), 4096, 4.0)
    figure = figures.extensions(found)
    assert "92 of 128 channels" in figure.says
    before, stretched, *rules = figure.panels[0].marks
    assert [rule.at for rule in rules] == [4096, 16384]
    assert before.y[0] == 2 * math.pi
    assert stretched.y == [4 * w for w in before.y]  # interpolated
    assert [panel.title.split(",")[0] for panel in figure.panels] == [
        name.replace("_", " ") for name in found.methods if name != "none"
    ]


def test_errors_that_are_no_numbers_leave_gaps():
    ways = {"exact": [1e-8, 1e-8], "float16 positions": [1e-3, None]}
    figure = figures.precision(Precision([1, 10**5], ways, ways, ways))
    assert "float16 positions not a number" in figure.says
    assert figure.panels[0].marks[1].y == [1e-3, None]
