"""Marks against what axes, legends, tables and both renderers need, a new mark among them."""

from dataclasses import dataclass

import pytest

from posenc.show.report.drawing import html, matplotlib
from posenc.show.report.drawing.axis import axis
from posenc.show.report.drawing.data_table import data_table
from posenc.show.report.drawing.figure import Figure, Mark, Panel, Series
from posenc.show.report.drawing.marks import KINDS, Band, Heat, Line, Points
from posenc.show.report.drawing.panel_layout import legend_names


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("renderer", [html, matplotlib])
def test_every_mark_is_drawn_by_both_renderers(kind, renderer):
    assert renderer.draw_mark.dispatch(kind) is not renderer.draw_mark.dispatch(Mark)


def test_lists_of_other_lengths_are_uneven():
    assert Line([0, 1], [0, 1]).even
    assert not Line([0, 1], [0, 1, 2]).even
    assert not Band([0, 1], [0, 1], [0]).even
    assert Points([0], [0], labels=["one", "two"]).even  # labels are not coordinates
    assert Heat([[1, 2]], [0, 1], [0]).even
    assert not Heat([[1, 2], [3]], [0, 1], [0, 1]).even


def test_a_new_mark_is_a_class_and_two_functions():
    """A cross of two strokes: axis, legend and table call only the methods of the mark."""

    @dataclass(frozen=True)
    class Cross(Mark):
        x: list[float]
        y: list[float]
        name: str = ""

        def series(self, panel):
            yield Series(panel.title, self.name, panel.x_title, panel.texts("x", self.x), self.y)

    @html.draw_mark.register
    def _(mark: Cross, x, y):
        yield True, f'<path class="cross" d="M{x.share(mark.x[0])} {y.share(mark.y[0])}"/>'

    @matplotlib.draw_mark.register
    def _(mark: Cross, ax):
        ax.plot(mark.x, mark.y, "+", label=mark.name)

    figure = Figure("", [Panel("", [Cross([1.0, 2.0], [30.0, 50.0], "crosses")], "n")], "")
    assert axis(figure.panels[0], "y", 5).low < 30
    assert axis(figure.panels[0], "y", 5).high > 50
    assert legend_names(figure) == ["crosses"]
    assert data_table(figure).rows == [["1", "30"], ["2", "50"]]
    assert '<path class="cross"' in html.to_html(figure)
    (ax,) = matplotlib.to_matplotlib(figure).axes
    assert [line.get_label() for line in ax.lines] == ["crosses"]
