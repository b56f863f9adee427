"""Drawn figures against the marks, read back from the HTML that the page holds."""

import json
import re
from dataclasses import replace
from html import unescape
from itertools import chain, pairwise
from math import isfinite, log10

import pytest
from drawn_page import read

from posenc.show.report.drawing import html
from posenc.show.report.drawing.figure import COLOURS, Figure, Panel
from posenc.show.report.drawing.marks import (
    Area,
    Arrows,
    Band,
    Heat,
    Line,
    Points,
    Rule,
    Stems,
    heat,
)

EVIL = "<b>&\"'</b>\u202e\x00"
STEP = 1e-4  # of an axis: the resolution of a coordinate


def one(*marks, **kind):
    (drawn,) = read(Figure("", [Panel("", marks, **kind)], ""))
    return drawn


def panels(drawn, kind):
    """Yield each panel with marks of this kind, the marks, and the values in the drawn panel."""
    for figure in drawn.values():
        for wanted, found in zip(figure.panels, read(figure), strict=True):
            if marks := [mark for mark in wanted.marks if isinstance(mark, kind)]:
                yield wanted, marks, found


def test_every_line_stands_where_its_values_say(drawn):
    """Shares of the panel, times the ends of its axes, are the values of the marks."""
    for wanted, marks, found in panels(drawn, Line):
        assert len(found.lines) >= len(marks)
        for mark, (_, corners) in zip(marks, found.lines, strict=False):
            values = shown(mark, wanted)
            assert len(corners) == len(values)
            assert all(stands(found, *both) for both in zip(values, corners, strict=True))


def test_every_point_stands_where_its_values_say(drawn):
    for wanted, marks, found in panels(drawn, Points):
        places = [place for _, places in found.points for place in places]
        values = [value for mark in marks if mark.marker for value in shown(mark, wanted)]
        assert all(any(stands(found, value, place) for place in places) for value in values)


def test_every_cell_has_the_colour_of_its_value(drawn):
    """Read back from the image, to half of a step between two colours."""
    for wanted, marks, found in panels(drawn, Heat):
        for mark, image in zip(marks, found.images, strict=True):
            low, high = mark.span
            within = (high - low) / 508 + 1e-6 * (abs(high) + abs(low))
            rows = image if wanted.y_down else image[::-1]
            assert [*map(len, rows)] == [*map(len, mark.z)]
            for value, seen in zip(chain(*mark.z), chain(*rows), strict=True):
                assert (value is None) == (seen is None)
                assert value is None or abs(min(max(value, low), high) - seen) <= within


def shown(mark, panel):
    """The values of a mark that the axes of its panel can show."""
    both = zip(mark.x, mark.y, strict=True)
    return [(x, y) for x, y in both if usable(x, panel.x_log) and usable(y, panel.y_log)]


def stands(found, value, place):
    ends = found.plot.get("data-x"), found.plot.get("data-y")
    return all(map(near, value, place, ends))


def usable(value, log):
    return value is not None and isfinite(value) and (value > 0 or not log)


def near(value, seen, ends):
    low, high, *log = ends.split(" ")
    low, high, value, seen = map(
        log10 if log else float, (float(low), float(high), float(value), seen)
    )
    return abs(value - seen) <= 2 * STEP * abs(high - low)


def test_marks_are_drawn_one_by_one():
    x = [1, 2, 3]
    drawn = one(
        Line(x, [1.25, float("nan"), None], "line", dash="dash"),
        Band(x, [0, 1, None], [2, 3, 4]),
        Arrows([0], [0], [1], [2], labels=["head"]),
        Rule(2, "x", "trained"),
        Stems([1, 2, 3], [0.5, -0.5, None], "stems"),
        Area([0, 1, 1, None, 2], [0, 0, 1, None, 2], faint=False),
        x_range=(0, 4),
        y_range=(-1, 4),
    )
    close = pytest.approx
    assert drawn.lines == [("line", [close((1, 1.25))])]
    ((_, corners),) = drawn.bands
    assert corners == [close((1, 0)), close((2, 1)), close((2, 3)), close((1, 2))]
    assert drawn.arrows == [close([0, 0, 1, 2])]
    assert {"head", "trained"} <= set(drawn.texts)
    assert [places for name, places in drawn.points if name == "stems"] == [
        [close((1, 0.5)), close((2, -0.5))]
    ]
    assert [len(corners) for _, corners in drawn.areas] == [4]
    page = html.to_html(Figure("", [Panel("", [Line(x, x, "twice"), Line(x, x, "twice")])], ""))
    assert page.count("</svg>twice</span>") == 1  # one name, once in the legend


def test_a_line_may_have_its_name_at_its_end():
    drawn = one(
        Line([1, 2, 3], [4, 5, None], "named", direct=True), x_range=(0, 4), y_range=(0, 10)
    )
    (text,) = [each for each in drawn.plot.iter("text") if each.text == "named"]
    assert (text.get("x"), text.get("y")) == ("50%", "50%")
    assert "legend" not in html.to_html(
        Figure("", [Panel("", [Line([1], [1], "n", direct=True)])], "")
    )


def test_every_arrow_has_the_head_of_its_colour():
    arrows = [Arrows([0], [0], [1], [1], colour=colour) for colour in COLOURS]
    drawn = one(*arrows)
    heads = [line.get("marker-end") for line in drawn.plot.iter("line")]
    assert heads == [f"url(#arrow-{colour[1:].lower()})" for colour in COLOURS]


def test_a_bare_panel_has_its_words_alone():
    bare = one(Points([1], [1], marker="", labels=["word"]), bare=True)
    assert (bare.texts, bare.points) == (["word"], [])
    assert not [path for path in bare.plot.iter("path") if path.get("class") == "grid"]


def test_numbers_are_written_in_cells_where_that_is_asked():
    plain, numbered = (one(Heat([[0.25]], [0], [0], digits=n), bare=True) for n in (None, 2))
    assert plain.texts == []
    assert numbered.texts == ["0.25"]


def test_text_is_shown_as_it_is_written():
    marks = [Line([0], [0], EVIL), Points([0], [0], EVIL, labels=[EVIL]), Rule(0, "y", EVIL)]
    heat = Heat([[1.0]], [0], [0], unit=EVIL)
    named = {"x_title": EVIL, "y_title": EVIL, "x_names": [EVIL], "y_names": [EVIL]}
    panels = [Panel(EVIL, marks, **named), Panel(EVIL, [heat], **named)]
    figure = Figure(EVIL, panels, "", 2)
    text = json.dumps(html.to_html(figure))
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    assert "\\u202e" not in text.replace("\\\\u202e", "")
    assert "\\u0000" not in text
    assert len(read(figure)) == 2  # well-formed


def test_tokens_of_one_name_keep_places_of_their_own():
    drawn = one(Heat([[1, 2]], [0, 1], [0]), x_names=["dog", "dog"])
    assert [text for text in drawn.texts if text == "dog"] == ["dog", "dog"]
    names = [str(n) for n in range(900)]
    drawn = one(Heat([[1] * 900], range(900), [0]), x_names=names)
    assert 2 < len(drawn.texts) < 30  # as many as can be read


def test_heat_maps_of_one_palette_share_a_bar():
    def bars(*heats):
        panels = [Panel("", [heat]) for heat in heats]
        return html.to_html(Figure("", panels, "", 2)).count('class="bar"')

    same, other = Heat([[1.0]], [0], [0]), Heat([[2.0]], [0], [0])
    assert bars(same, same) == 1
    assert bars(same, other) == 2


def test_ticks_that_would_touch_on_a_telephone_are_left_out_there():
    """By hand: along 190 pixels from 0.9 to 300 a letter takes 6.2, and 1.5 would touch 1."""
    x_ticks = [1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200]
    panel = Panel("", [], x_log=True, x_range=(0.9, 300), x_ticks=x_ticks, y_range=(0, 1))
    page = html.to_html(Figure("", [panel], ""))
    ticks = re.findall(r'<text x="([\d.]+)%" y="100%"[^>]*middle"( class="spare")?>([^<]*)<', page)
    assert [text for *_, text in ticks] == [f"{value:g}" for value in x_ticks]
    assert [text for _, spare, text in ticks if spare] == ["1.5", "200"]
    kept = [(1.9 * float(at), 6.2 * len(text)) for at, spare, text in ticks if not spare]
    for (left, wide), (right, wider) in pairwise(kept):
        assert right - left > (wide + wider) / 2 + 6


def test_words_beside_small_squares_leave_them_room():
    """Eight heads of 17 words each, beside one another, were squares of 50 pixels."""
    words = [f"word {n}" for n in range(17)]
    square = Panel("", [heat([[0.0] * 17] * 17)], x_names=words, y_names=words, square=True)
    least = lambda panel: int(  # noqa: E731
        re.search(r"--least: (\d+)px", html.to_html(Figure("", [panel] * 8, "", columns=4)))[1]
    )
    assert least(square) > 240
    assert least(replace(square, x_names=[], y_names=[])) == 150


def test_small_numbers_in_cells_are_left_out_on_a_telephone():
    cells = heat([[0.99, 0.04], [0.5, -0.2]])
    page = html.to_html(Figure("", [Panel("", [replace(cells, digits=2)])], ""))
    numbers = re.findall(r'class="cell( spare)?"[^>]*>([^<]*)<', page)
    assert numbers == [("", "0.99"), (" spare", "0.04"), ("", "0.50"), ("", "-0.20")]


def test_names_over_two_lines_are_written_in_two():
    """A line break in a name separates the sides of a contrast, and is not drawn as a character."""
    panel = Panel("", [Points([1], [0])], y_names=["nope\n− rope"])
    page = html.to_html(Figure("", [panel], ""))
    words = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", page) if "o" in text]
    assert words == ["nope", "− rope"]
    assert "\\n" not in page
    assert r"nope \u2212 rope" in unescape(page)  # under the pointer, in one
