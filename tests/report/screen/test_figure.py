"""Plotly's traces against the marks, read back from the JSON that the page holds."""

import json

import pytest

from posenc.report import screen
from posenc.report.drawing.figure import (
    Arrows,
    Band,
    Figure,
    Frame,
    Heat,
    Line,
    Panel,
    Points,
    Rule,
)

EVIL = "<b>&%{x}</b>\u202e\x00"


def read(figure):
    """As the page reads it: JSON without NaN."""
    return json.loads(screen.plotly(figure).to_json(), parse_constant=pytest.fail)


def test_marks_become_traces_one_by_one():
    marks = [
        Line([1, 2, 3], [1.234567, float("nan"), None], "line", dash="dash"),
        Band([1, 2, 3], [0, 1, None], [2, 3, 4]),
        Points([1], [2], "line"),
        Arrows([0], [0], [1], [2], labels=["head"]),
        Rule(2, "x", "trained"),
    ]
    made = read(Figure("", [Panel("", marks, x_log=True)], ""))
    line, band, points, arrows, heads = made["data"]
    assert (line["x"], line["y"]) == ([1, 2, 3], [1.2346, None, None])
    assert line["line"]["dash"] == "dash"
    assert (band["x"], band["y"]) == ([1, 2, 2, 1], [0, 1, 3, 2])
    assert [line["showlegend"], points["showlegend"]] == [True, False]  # one name, once
    assert (arrows["x"], arrows["y"]) == ([0, 1, None], [0, 2, None])
    assert heads["text"] == ["head"]
    assert made["layout"]["shapes"][0]["x0"] == 2
    line = Line([1, 2, 3], [4, 5, None], "named at its end", direct=True)
    line, end = read(Figure("", [Panel("", [line])], ""))["data"]
    assert (line["showlegend"], end["text"]) == (False, [" named at its end"])
    assert (end["x"], end["y"]) == ([2], [5])
    assert made["layout"]["annotations"][1]["x"] == pytest.approx(0.30103)  # plotly wants log₁₀


def test_text_is_shown_as_it_is_written():
    marks = [Line([0], [0], EVIL), Points([0], [0], EVIL, labels=[EVIL]), Rule(0, "y", EVIL)]
    heat = Heat([[1.0]], [0], [0], unit=EVIL)
    named = {"x_title": EVIL, "y_title": EVIL, "x_names": [EVIL], "y_names": [EVIL]}
    panels = [Panel(EVIL, marks, **named), Panel(EVIL, [heat], **named)]
    text = json.dumps(read(Figure(EVIL, panels, "", 2, frames=[Frame(EVIL, panels)])))
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    assert "%{x}</b>" not in text.replace("&lt;", "<").replace("&gt;", ">")
    assert "\\u202e" not in text.replace("\\\\u202e", "")
    assert "\\u0000" not in text


def test_tokens_of_one_name_keep_places_of_their_own():
    made = read(Figure("", [Panel("", [Heat([[1, 2]], [0, 1], [0])], x_names=["dog", "dog"])], ""))
    axis = made["layout"]["xaxis"]
    assert (axis["tickvals"], axis["ticktext"]) == ([0, 1], ["dog", "dog"])
    names = [str(n) for n in range(900)]
    made = read(Figure("", [Panel("", [Heat([[1] * 900], range(900), [0])], x_names=names)], ""))
    assert len(made["layout"]["xaxis"]["ticktext"]) < 70  # as many as can be read


def test_heat_maps_of_one_palette_share_a_bar():
    def colours(*heats):
        made = read(Figure("", [Panel("", [heat]) for heat in heats], "", 2))
        found = {name for name in made["layout"] if name.startswith("coloraxis")}
        assert {trace["coloraxis"] for trace in made["data"]} == found
        return found

    one, two = Heat([[1.0]], [0], [0]), Heat([[2.0]], [0], [0])
    assert colours(one, one) == {"coloraxis"}
    assert colours(one, two) == {"coloraxis", "coloraxis2"}
    assert colours(one, one, two) == {"coloraxis", "coloraxis2", "coloraxis3"}


def test_frames_hold_what_changes_and_lead_to_every_state(drawn):
    for name in ("vectors", "codes", "paths", "turning"):
        figure = drawn[name]
        made = read(figure)
        assert len(json.dumps(made["frames"])) < 100_000, name
        whole = made["data"]
        for frame, state in zip(made["frames"][::-1], figure.frames[::-1], strict=True):
            for place, change in zip(frame["traces"], frame["data"], strict=True):
                whole[place] |= change
            still = read(Figure("", state.panels, "", figure.columns))["data"]
            assert [(t.get("x"), t.get("y")) for t in whole] == [
                (t.get("x"), t.get("y")) for t in still
            ], name
        assert made["frames"][made["layout"]["meta"]["start"]]["name"].startswith("position ")


def test_nothing_plays_or_paints_by_itself(drawn):
    for figure in drawn.values():
        layout = read(figure)["layout"]
        assert not {"updatemenus", "sliders"} & set(layout)
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0, 0, 0, 0)"
        assert "layout" not in layout["template"]


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_panels_lie_side_by_side_within_the_figure(drawn, width):
    for name, figure in drawn.items():
        layout = read(figure)["layout"]
        layout = layout["meta"]["narrow"] if width == "narrow" else layout
        boxes = [
            (*layout[f"xaxis{n}"]["domain"], *layout[f"yaxis{n}"]["domain"])
            for n in ["", *range(2, len(figure.panels) + 1)]
        ]
        for n, (left, right, low, high) in enumerate(boxes):
            assert 0 <= left < right <= 1, name
            assert 0 <= low < high <= 1, name
            for other in boxes[:n]:
                apart = left >= other[1] or right <= other[0] or low >= other[3] or high <= other[2]
                assert apart, name
        if width == "narrow":
            across = len({box[0] for box in boxes})
            assert across <= 2, name
