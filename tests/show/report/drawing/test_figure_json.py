"""Figures as JSON, read back and held against what was written; documents that are none."""

import json

import pytest
from refusals import refused

from posenc import plot
from posenc.show.report.drawing import matplotlib
from posenc.show.report.drawing.data_table import data_table
from posenc.show.report.drawing.figure import COLOURS, Figure, Panel
from posenc.show.report.drawing.figure_json import SCHEMA, from_json, to_json
from posenc.show.report.drawing.marks import Line, heat


def test_every_figure_reads_back(drawn):
    """All kinds of marks, by their JSON, and by the table of numbers that a reader would see."""
    for name, figure in drawn.items():
        written = json.loads(json.dumps(to_json(figure), allow_nan=False))
        again = from_json(written)
        assert to_json(again) == written, name
        if not figure.listed:
            assert data_table(again) == data_table(figure), name
        assert [type(m) for p in again.panels for m in p.marks] == [
            type(m) for p in figure.panels for m in p.marks
        ]


def test_lines_without_a_colour_have_that_of_their_place():
    marks = [
        {"mark": "band", "x": [0, 1], "low": [0, 0], "high": [1, 1], "name": "a"},
        {"mark": "line", "x": [0, 1], "y": [0, 1], "name": "a"},
        {"mark": "line", "x": [0, 1], "y": [1, None], "name": "b"},
    ]
    document = {"schema": SCHEMA, "title": "t", "says": "s", "panels": [{"marks": marks}]}
    band, first, second = from_json(document).panels[0].marks
    assert band.colour == first.colour == COLOURS[0]
    assert second.colour == COLOURS[1]
    assert second.dash != first.dash


def test_a_saved_picture_is_loaded_and_drawn(tmp_path):
    saved = plot.similarity("sinusoidal", 8).save(tmp_path / "figure.json")
    again = plot.load(saved)
    assert again.numbers == plot.similarity("sinusoidal", 8).numbers
    again.save(tmp_path / "figure.svg", width=85)
    assert "cosine" in (tmp_path / "figure.svg").read_text()
    assert matplotlib.WIDE > 85


GOOD = to_json(Figure("t", [Panel("", [Line([0, 1], [2, 3]), heat([[1, 2]])])], "s"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "posenc.figure/9"}, r'`schema` must be "posenc.figure/1", got .*9.*JSON'),
        ({"panels": []}, "`panels` must be a list with at least one element, got an empty list"),
        ({"colour": "red"}, "keys of the figure must be among title, panels, .*, got `colour`"),
        ({"says": 3}, "`says` must be text in the figure, got 3"),
        ({"panels": [{"marks": [{"mark": "pie"}]}]}, "`mark` must be one of line, .*, got .*pie"),
        ({"panels": [{"marks": [{"mark": "line", "x": [1]}]}]}, "a line must have the key `y`"),
        (
            {"panels": [{"marks": [{"mark": "line", "x": [1], "y": ["1"]}]}]},
            "`y` must be a list of numbers or null in a line, got a list",
        ),
        (
            {"panels": [{"marks": [{"mark": "line", "x": [1], "y": [1, 2]}]}]},
            "the lists of a line must have equal lengths",
        ),
        (
            {"panels": [{"marks": [{"mark": "heat", "x": [1], "y": [1], "z": [[1], [2]]}]}]},
            "the lists of a heat must have equal lengths",
        ),
        (
            {"panels": [{"marks": [{"mark": "line", "x": [1], "y": [1], "dash": "curly"}]}]},
            "`dash` must be one of 'solid', 'dash', .* in a line, got 'curly'",
        ),
    ],
)
def test_what_is_no_figure_is_refused(change, why, tmp_path):
    with pytest.raises(ValueError, match=why):
        from_json(GOOD | change)
    (tmp_path / "figure.json").write_text(json.dumps(GOOD | change))
    with refused(ValueError, "`path`", "'figure.json'"):
        plot.load(tmp_path / "figure.json")


@pytest.mark.parametrize("text", ["[1, 2]", "{", "[" * 100_000, "7"])
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "other.json").write_text(text)
    with refused(ValueError, "other.json"):
        plot.load(tmp_path / "other.json")
