"""Axes, panels and palettes of plotly, read back from the JSON that the page holds."""

import pytest
from plotly_json import read

from posenc.report.drawing.figure import (
    Figure,
    Heat,
    Panel,
)


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


@pytest.mark.slow
def test_nothing_plays_or_paints_by_itself(drawn):
    for figure in drawn.values():
        layout = read(figure)["layout"]
        assert not {"updatemenus", "sliders"} & set(layout)
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0, 0, 0, 0)"
        assert "layout" not in layout["template"]


@pytest.mark.slow
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
