"""Plotly's traces against the marks, read back from the JSON that the page holds."""

import json

import pytest
from plotly_json import read

from posenc.report.drawing.figure import (
    Area,
    Arrows,
    Band,
    Figure,
    Frame,
    Heat,
    Line,
    Panel,
    Points,
    Rule,
    Stems,
)

EVIL = "<b>&%{x}</b>\u202e\x00"


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


def test_stems_polygons_and_bare_labels_become_traces():
    marks = [
        Stems([0, 1], [2, None], "stems"),
        Area([0, 1, 1, None, 2, 3, 3], [0, 0, 1, None, 0, 0, 1], "areas", "#0072B2", faint=True),
        Points([1], [2], marker="", labels=["word"], side="middle"),
    ]
    made = read(Figure("", [Panel("", marks, bare=True)], ""))
    stems, area, words = made["data"]
    assert (stems["x"], stems["y"]) == ([0, 0, None, 1, 1, None], [0, 2, None, 0, None, None])
    assert area["fill"] == "toself"
    assert (area["x"][3], area["fillcolor"]) == (None, "rgba(0, 114, 178, 0.22)")
    assert (words["mode"], words["text"]) == ("text", ["word"])
    axis = made["layout"]["xaxis"]
    assert (axis["showgrid"], axis["showticklabels"]) == (False, False)


def test_numbers_are_written_in_cells_where_that_is_asked():
    heats = [Heat([[0.25]], [0], [0], digits=digits) for digits in (None, 2)]
    plain, numbered = (read(Figure("", [Panel("", [heat])], ""))["data"][0] for heat in heats)
    assert "texttemplate" not in plain
    assert numbered["texttemplate"] == "%{z:.2f}"


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


def test_frames_hold_what_changes_and_lead_to_every_state(drawn):
    for name in ("vectors", "codes", "turning"):
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
