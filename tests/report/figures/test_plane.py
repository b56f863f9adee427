"""Points and arrows against trigonometry."""

import math

import pytest
import torch

from posenc import Integer, RoPE, axial
from posenc.analysis import geometry, grids
from posenc.report import figures


def test_two_words_are_turned_by_where_they_stand():
    vector = {"cat": [1.0, 0.0], "ate": [0.0, 2.0], "the": [1.0, 1.0]}
    found = {
        text: geometry.turned(text.split(), torch.tensor([vector[w] for w in text.split()]), 0.5)
        for text in ("cat ate", "the cat ate")
    }
    figure = figures.rotation(found, ("cat", "ate"))
    for start, panel in enumerate(figure.panels):
        before, after = panel.marks
        assert (before.to_x, before.to_y) == ([1, 0], [0, 2])
        angles = [math.atan2(y, x) for x, y in zip(after.to_x, after.to_y, strict=True)]
        assert angles == pytest.approx([0.5 * start, math.pi / 2 + 0.5 * (start + 1)], abs=1e-5)
        assert after.labels == [f"cat, {start}", f"ate, {start + 1}"]
    assert figure.says.count("118.6°") == 2  # 90° and 0.5 radians


def test_negative_angles_have_a_minus_and_hyphens_stay():
    turned = geometry.turned(["a-b", "c"], torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.0)
    says = figures.rotation({"a-b c": turned}, ("a-b", "c")).says
    assert "“a-b”" in says
    assert "−90.0°" in says


def test_words_stand_in_their_plane():
    x = torch.randn(5, 8)
    found = geometry.project("abcde", x, Integer(8))
    before, after = figures.projection({"Integer": found}).panels
    assert [*zip(before.marks[0].x, before.marks[0].y, strict=True)] == [*map(tuple, found.before)]
    assert after.marks[0].labels == list("abcde")


def test_a_picture_stands_upright():
    encoding = RoPE(axial(16, axes=2))
    found = grids.to_patch(encoding, 4, 6, (1, 5))
    panel = figures.grids({"Axial RoPE": found}).panels[0]
    cells, chosen = panel.marks
    assert (len(cells.z), len(cells.z[0])) == (4, 6)
    assert cells.z[chosen.y[0]][chosen.x[0]] == 1
    assert panel.y_down
