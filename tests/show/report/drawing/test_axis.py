"""Axes against the marks that they have to hold, value by value."""

from itertools import pairwise

import pytest

from posenc.show.report.drawing.axis import axis
from posenc.show.report.drawing.figure import Panel
from posenc.show.report.drawing.marks import Band, Heat, Line, Points, Stems, heat


def of(*marks, most=6, name="y", **kind):
    return axis(Panel("", marks, **kind), name, most)


def test_an_axis_holds_every_mark():
    made = of(Line([0, 1], [3.0, None]), Band([0], [-7.0], [2.0]), Points([0], [11.0]))
    assert made.low < -7 < 11 < made.high
    assert of(Stems([0, 1], [5.0, 7.0])).low < 0  # stems start at 0
    assert (of(Heat([[1, 2]], [0, 10], [3]), name="x").low, of(Line([], [])).low) == (-5, 0.95)


def test_an_axis_that_is_given_stays_and_may_run_down():
    made = of(Line([0], [50]), y_range=(0, 1), y_down=True)
    assert (made.low, made.high) == (1, 0)
    assert made.share(1) == 0
    named = of(Points([1], [1]), y_names=["a", "b", "c"], y_down=True)
    assert [(text, round(named.share(at), 3)) for at, text in named.ticks] == [
        ("a", 0.833),
        ("b", 0.5),
        ("c", 0.167),
    ]


@pytest.mark.parametrize("low", [-3e5, -1.7, 0.0, 0.00123, 17])
@pytest.mark.parametrize("span", [1e-4, 0.3, 1, 77, 4e6])
@pytest.mark.parametrize("most", [2, 4, 7])
def test_ticks_are_few_lie_within_and_are_evenly_apart(low, span, most):
    ticks = [at for at, _ in of(Line([0], [0]), y_range=(low, low + span), most=most).ticks]
    assert 1 <= len(ticks) <= most
    assert all(low <= at <= low + span for at in ticks)
    steps = [b - a for a, b in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps) if steps else [], rel=1e-3)


@pytest.mark.parametrize("span", [(1, 2.1), (0.9, 60), (1e-12, 1.0), (3e-5, 2e9)])
def test_ticks_of_a_logarithmic_axis_can_be_told_apart(span):
    made = of(Line([0], [1]), y_range=span, y_log=True)
    assert 2 <= len(made.ticks) <= 6
    assert len({text for _, text in made.ticks}) == len(made.ticks)


def test_ticks_that_are_asked_for_give_way_where_fewer_than_two_would_be_seen():
    wide = of(Line([0, 1], [1, 1]), y_ticks=[0.5, 1, 2, 5], y_range=(0.4, 3))
    assert [value for value, _ in wide.ticks] == [0.5, 1, 2]
    narrow = of(Line([0, 1], [1, 1]), y_ticks=[0.5, 1, 2, 5], y_range=(0.9, 1.2), y_log=True)
    assert 1 in [value for value, _ in narrow.ticks]
    assert 3 <= len(narrow.ticks) <= 6


def test_what_stands_at_whole_numbers_has_whole_ticks():
    """Tokens, heads, channels: no tick at 2.5, unless the axis shows less than two of them."""
    for mark in (Line([0, 1, 2, 3], [0, 3, 1, 2]), heat([[0.5] * 4] * 4)):
        for name in ("x", "y"):
            ticks = [at for at, _ in axis(Panel("", [mark]), name, 10).ticks]
            assert ticks == [0, 1, 2, 3]
    halves = axis(Panel("", [Line([0, 0.5], [0, 1])]), "x", 10)
    assert any(at != round(at) for at, _ in halves.ticks)
