"""Points and arrows against trigonometry."""

import math

import pytest
import torch

from posenc import RoPE, axial
from posenc.analysis import geometry, grids
from posenc.analysis.clouds import Clouds
from posenc.show.report.figures import plane as figures


def test_two_words_are_turned_by_where_they_stand():
    vector = {"cat": [1.0, 0.0], "ate": [0.0, 2.0], "the": [1.0, 1.0]}
    found = {
        text: geometry.turned(text.split(), torch.tensor([vector[w] for w in text.split()]), 0.5)
        for text in ("cat ate", "the cat ate")
    }
    figure = figures.rotation(found, ("cat", "ate"))
    for start, panel in enumerate(figure.panels):
        before, after, arc, label = panel.marks
        ends = [math.atan2(arc.y[end], arc.x[end]) for end in (0, -1)]
        assert ends == pytest.approx([0.5 * start, math.pi / 2 + 0.5 * (start + 1)], abs=1e-5)
        assert label.labels == ["118.6°"]
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


def test_a_picture_stands_upright():
    encoding = RoPE(axial(16, axes=2))
    found = grids.to_patch(encoding, 4, 6, (1, 5))
    panel = figures.grids({"Axial RoPE": found}).panels[0]
    cells, chosen = panel.marks
    assert (len(cells.z), len(cells.z[0])) == (4, 6)
    assert cells.z[chosen.y[0]][chosen.x[0]] == 1
    assert panel.y_down


def test_clouds_join_each_word_with_itself():
    before = [[float(n), 0.0] for n in range(16)]
    after = [[float(n), 1.0] for n in range(16)]
    names = [f"w{n}" for n in range(16)]
    found = Clouds(names, [0] * 8 + [1] * 8, [*range(16)], before, after, (1.0, 0.25))
    (panel,) = figures.clouds({"Integer": found}).panels
    lines, small, large, *second = panel.marks
    assert list(lines.x)[:6] == [0, 0, None, 1, 1, None]
    assert list(lines.y)[:3] == [0, 1, None]
    assert (list(small.x), list(large.y)) == ([*range(8)], [1.0] * 8)
    assert [mark.name for mark in (large, second[1])] == ["like “w0”", "like “w8”"]
    assert small.colour == large.colour != second[0].colour
    assert panel.x_range == panel.y_range
    assert "Integer 25%" in figures.clouds({"Integer": found}).says


def test_cells_of_an_image_are_sums_over_its_axes():
    """Σⱼ (cos((row − y) θⱼ) + cos((column − x) θⱼ)) / 2n, in loops."""
    found = grids.to_patch(RoPE(axial(16, axes=2)), 4, 6, (1, 5))
    cells = figures.grids({"Axial RoPE": found}).panels[0].marks[0].z
    theta = axial(16, axes=2).abs().amax(0).tolist()[:4]
    for y in range(4):
        for x in range(6):
            whole = sum(math.cos((1 - y) * t) + math.cos((5 - x) * t) for t in theta) / 8
            assert cells[y][x] == pytest.approx(whole, abs=1e-4)
