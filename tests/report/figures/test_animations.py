"""Films against the vectors that they show."""

import math

import pytest
import torch

from posenc import RoPE, Sinusoidal
from posenc.analysis.trajectory import advance
from posenc.report import figures

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
    for figure in (figures.vectors(moved), figures.paths(moved)):
        for n in range(2):
            assert len({(f.panels[n].x_range, f.panels[n].y_range) for f in figure.frames}) == 1


def test_a_pair_turns_on_a_circle_by_its_angle(moved):
    figure = figures.turning("RoPE", moved["RoPE"], [(0, 1)])
    for p, frame in enumerate(figure.frames):
        circle, _, now = frame.panels[0].marks
        assert (circle.x[0], circle.y[18]) == pytest.approx((5, 5))
        expected = math.atan2(4, 3) + p
        assert (now.to_x[0], now.to_y[0]) == pytest.approx(
            (5 * math.cos(expected), 5 * math.sin(expected)), abs=1e-5
        )


def test_the_frame_is_around_the_position(moved):
    for p, frame in enumerate(figures.codes(moved).frames):
        cells, around = frame.panels[0].marks
        assert (min(around.x), max(around.x)) == (p - 0.5, p + 0.5)
        assert (min(around.y), max(around.y)) == (-0.5, 3.5)
        assert [row[p] for row in cells.z] == pytest.approx(moved["RoPE"].placed[p], rel=1e-4)


def test_the_path_so_far_ends_where_the_vector_is(moved):
    for p, frame in enumerate(figures.paths(moved).frames):
        whole, so_far, now = frame.panels[1].marks
        assert list(so_far.x) == list(whole.x[: p + 1])
        assert (now.x[0], now.y[0]) == tuple(moved["Sinusoidal"].path[p])
