"""Clocks against e^(i m θ)."""

import math

import pytest

from posenc import RoPE
from posenc.analysis.clocks import clocks
from posenc.show.report.figures.clocks import turning


def test_query_and_key_turn_and_the_arc_between_them_stays():
    """Hands against e^(i m θ), the words on each clock against θ m: a row for each pair."""
    figure = turning("RoPE", clocks(RoPE(16), range(10), gap=4))
    places = [(pair, n) for pair in (0, 1, 3, 7) for n in (0, 3, 6, 9)]
    assert figure.columns == 4
    for panel, (pair, n) in zip(figure.panels, places, strict=True):
        theta = 10_000 ** (-2 * pair / 16)
        circle, query, key, arc, words = panel.marks
        assert (circle.x[0], circle.y[18]) == pytest.approx((1, 1))
        for hand, turned in ((query, (n + 4) * theta), (key, n * theta)):
            tip = math.cos(turned), math.sin(turned)
            assert (hand.to_x[0], hand.to_y[0]) == pytest.approx(tip, abs=1e-6)
        ends = [math.atan2(arc.y[end], arc.x[end]) for end in (0, -1)]
        for end, turned in zip(ends, (n * theta, (n + 4) * theta), strict=True):
            assert math.remainder(end - turned, math.tau) == pytest.approx(0, abs=1e-6)
        assert words.labels[0] == f"query, m = {n + 4}: mθ = {(n + 4) * theta:.3g}"
        assert words.labels[2] == f"(m − n)θ = {4 * theta:.3g}"
    assert figure.panels[0].title == "channels 0 and 1: 6.283 tokens a turn"
