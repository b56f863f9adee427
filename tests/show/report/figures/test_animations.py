"""Films against the vectors that they show."""

import math

import pytest
import torch

from posenc import RoPE, Sinusoidal
from posenc.analysis.clocks import clocks
from posenc.analysis.trajectory import advance
from posenc.show.report.figures import animations as figures

X = torch.tensor([3.0, 4.0, 1.0, 0.0])


@pytest.fixture
def moved():
    return {
        "RoPE": advance(RoPE(4), X, range(5)),
        "Sinusoidal": advance(Sinusoidal(4), X, range(5)),
    }


def test_each_state_shows_its_position(moved):
    figure = figures.vectors(moved)
    assert [frame.name for frame in figure.frames] == [f"position {p}" for p in range(5)]
    for p, frame in enumerate(figure.frames):
        without, now = frame.panels[0].marks  # turned: nothing is added
        assert without.y == X.tolist()
        assert now.y == moved["RoPE"].placed[p]
        _, added, now = frame.panels[1].marks
        assert now.y == pytest.approx([x + a for x, a in zip(X.tolist(), added.y, strict=True)])
    assert "RoPE stays 5.1" in figure.says  # √(3² + 4² + 1²)


def test_axes_stand_still_while_a_position_advances(moved):
    for figure in (figures.vectors(moved), figures.codes(moved)):
        for n in range(2):
            assert len({(f.panels[n].x_range, f.panels[n].y_range) for f in figure.frames}) == 1


def test_query_and_key_turn_and_the_arc_between_them_stays():
    """Frames against e^(i m θ), the words on each clock against θ m."""
    figure = figures.turning("RoPE", clocks(RoPE(16), range(9), gap=4))
    assert [frame.name for frame in figure.frames] == [f"position {n}" for n in range(9)]
    for n, frame in enumerate(figure.frames):
        for panel, pair in zip(frame.panels, (0, 1, 3, 7), strict=True):
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


def test_the_frame_is_around_the_position(moved):
    for p, frame in enumerate(figures.codes(moved).frames):
        cells, around = frame.panels[0].marks
        assert (min(around.x), max(around.x)) == (p - 0.5, p + 0.5)
        assert (min(around.y), max(around.y)) == (-0.5, 3.5)
        assert [row[p] for row in cells.z] == pytest.approx(moved["RoPE"].placed[p], rel=1e-4)
