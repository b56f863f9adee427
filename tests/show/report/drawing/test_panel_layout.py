"""Sizes and titles of panels, against sums of pixels worked out by hand."""

import pytest

from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import Band, Heat, Line, Points, Rule
from posenc.show.report.drawing.panel_layout import (
    BAR,
    LINE,
    PanelLayout,
    legend_names,
    one_palette,
)

LINES = [Line([1, 10], [1, 1000], "a"), Band([1, 2], [2, 3], [4, 5], "b"), Rule(7, "x", "rule")]


def layout(*panels, columns=2, width=1000, height=0):
    return PanelLayout(Figure("", panels, "", columns, height), columns, width)


def test_columns_and_the_gaps_between_them_fill_the_room():
    at = layout(*[Panel(f"p{n}", LINES, "x", "y") for n in range(3)])
    assert at.room == 1000 - 60
    assert 2 * at.column + at.gap == pytest.approx(at.room)
    assert at.gap == 46  # numbers of ticks; the title of y stands once, at the left
    assert layout(Panel("", LINES, "x", "y"), Panel("", LINES, "x", "z")).gap == 46 + 20


def test_a_title_that_the_neighbour_has_is_written_once():
    at = layout(*[Panel(f"p{n}", LINES, "x", "y") for n in range(4)])
    assert [at.y_title(n) for n in range(4)] == ["y", "", "y", ""]
    assert [at.x_title(n) for n in range(4)] == [[], [], ["x"], ["x"]]


def test_between_two_rows_there_is_room_for_ticks_and_the_lower_title():
    at = layout(*[Panel("title", LINES, "x") for _ in range(4)])
    assert at.head == LINE + 9
    assert at.between == at.head + 20 + 6  # ticks of the upper panels, whose title of x is below
    assert at.under == 8 + 20 + LINE


def test_a_square_panel_is_as_high_as_its_steps_ask_for():
    heat = Heat([[1.0] * 4] * 2, range(4), range(2), bar=False)
    at = layout(Panel("", [heat], square=True), columns=1, width=500)
    assert at.row == pytest.approx(at.column / 2)
    assert layout(Panel("", [heat]), columns=1, height=123).row == 123


def test_palettes_of_one_span_share_a_bar():
    one, two = Heat([[1.0]], [0], [0]), Heat([[2.0]], [0], [0])
    assert one_palette(Figure("", [Panel("", [one]), Panel("", [one])], ""))
    assert not one_palette(Figure("", [Panel("", [one]), Panel("", [two])], ""))
    assert layout(Panel("", [one]), Panel("", [two])).gap == 46 + BAR


def test_the_legend_has_each_name_once_and_no_rule():
    marks = [*LINES, Points([1], [1], "a"), Line([1], [1], "named at its end", direct=True)]
    assert legend_names(Figure("", [Panel("", marks), Panel("", marks)], "")) == ["a", "b"]
