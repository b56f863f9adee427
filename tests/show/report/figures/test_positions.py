"""Sentences and marks against numbers published or computed by hand."""

import pytest
import torch

from posenc import Binary, Integer, RoPE, Sinusoidal, frequencies
from posenc.analysis import similarity
from posenc.analysis.shift_matrix import group
from posenc.show.report.figures import positions as figures


def test_decay_names_where_similarity_first_rises_and_turns_negative():
    """64 channels: 6 and 725; 128: 12 and 1,707; found by a loop over cosines elsewhere."""
    found = {f"{d}": similarity.of_distance(frequencies(d), 2000) for d in (64, 128)}
    figure = figures.decay(found)
    assert "64: first rises at 6, first negative at 725" in figure.says
    assert "128: first rises at 12, first negative at 1,707" in figure.says
    line, _, rises, negative = figure.panels[0].marks
    assert line.x[0] == 1
    assert rises.labels == ["first rises at 6"]
    assert line.y[5] > line.y[4]
    assert negative.y[0] < 0


def test_channels_are_curves_against_the_position():
    """sin(p θ) of the first channel of each pair."""
    rows = Sinusoidal(12)(torch.zeros(1, 9, 12))[0]
    figure = figures.channels("Sinusoidal", rows.tolist())
    assert [panel.title for panel in figure.panels] == [f"channel {n}" for n in (0, 2, 4, 7, 9, 11)]
    for panel, pair in zip(figure.panels[:3], range(3), strict=True):
        (line,) = panel.marks
        expected = (torch.arange(9) * 10_000 ** (-2 * pair / 12)).sin()
        assert torch.tensor(line.y).allclose(expected, atol=1e-6)
    assert len({panel.y_range for panel in figure.panels}) == 1


def test_the_distance_to_position_0_is_that_of_the_rows():
    """The norm of PE(p) − PE(0), row by row; how many steps go back is counted."""
    rows = Sinusoidal(64)(torch.zeros(1, 300, 64))[0].double()
    away = (rows - rows[0]).norm(dim=1)
    figure = figures.apart({"64": similarity.of_distance(frequencies(64), 300)})
    (line,) = figure.panels[0].marks
    assert torch.tensor(line.y).double().allclose(away, atol=1e-4)
    back = (away.diff() < 0).double().mean()
    assert f"64: {back:.0%} of the steps go back" in figure.says
    assert 0.3 < back < 0.5


def test_one_odd_row_does_not_set_the_palette():
    """A first row of length 5 beside 299 of length 1."""
    dot = torch.ones(300, 300)
    dot[0] = dot[:, 0] = 5.0
    dot[0, 0] = 25.0
    found = similarity.Between([*range(300)], dot.tolist(), torch.eye(300).tolist())
    (cells,) = figures.similarity("table", found).panels[0].marks
    assert cells.span == (-1, 1)
    other = similarity.Between([0, 1], [[4.0, 0.0], [0.0, 3.0]], torch.eye(2).tolist())
    (cells,) = figures.similarity("plain", other).panels[0].marks
    assert cells.span == (-4, 4)


def test_an_upper_bound_stands_beside_the_largest_score_from_there_on():
    q, k = torch.randn(2, 32)
    found = similarity.bound(frequencies(32), q, k, 200)
    (panel,) = figures.bound(found).panels
    limit, score = panel.marks
    assert list(limit.x) == list(range(1, len(found.distance)))
    for n, (bound, largest) in enumerate(zip(limit.y, score.y, strict=True), 1):
        assert largest == max(abs(value) for value in found.score[n:])
        assert bound == max(found.bound[n:])
        assert bound >= largest - 1e-6
    assert panel.x_log


def test_a_peak_is_marked_where_it_was_put():
    figure = figures.peak(similarity.peak(frequencies(64), torch.randn(64), 77, 300))
    line, point = figure.panels[0].marks
    assert point.x == [77]
    assert point.y == [max(line.y)]
    assert "largest is at distance 77" in figure.says


def test_the_least_alike_positions_are_named():
    found = similarity.between(RoPE(16), 40)
    cosines = torch.tensor(found.cosine)
    row, column = divmod(int(cosines.argmin()), 40)
    first, last = sorted((row, column))
    figure = figures.similarity("RoPE", found)
    assert f"Positions {first} and {last} are least similar" in figure.says
    assert f"with a cosine of {cosines.min():.2f}" in figure.says
    (panel,) = figure.panels  # rows are all as long, so dot products would look the same
    assert panel.marks[0].span == (-1, 1)
    assert f"the dot product is {torch.tensor(found.dot)[0, 0]:.4g} times the cosine" in figure.says


def test_a_row_of_zeros_has_no_direction():
    """Integer's row 0: its cosines are blank, and the least alike are found among the others."""
    figure = figures.similarity("Integer", similarity.between(Integer(8), 6))
    assert "Positions 1 and" in figure.says
    assert "with a cosine of 1.00" in figure.says
    assert "Rows of zeros have no direction: 0." in figure.says
    dots, cosines = (panel.marks[0].z for panel in figure.panels)
    assert cosines[0] == [None] * 6
    assert [row[0] for row in cosines] == [None] * 6
    assert dots[0] == [0] * 6
    nothing = similarity.Between([0, 1], [[0.0] * 2] * 2, [[0.0] * 2] * 2)
    assert "least similar" not in figures.similarity("nothing", nothing).says


def test_a_matrix_is_shown_only_as_good_as_it_moves():
    assert "One matrix moves every position" in figures.shift("S", group(Sinusoidal(8), 3, 5)).says
    assert "No matrix moves" in figures.shift("B", group(Binary(8, bits=8), 3, 5, 100)).says
    titles = [panel.title for panel in figures.shift("S", group(Sinusoidal(8), 3, 12)).panels]
    assert titles == ["M₃", "M₁₂", "M₃ M₁₂", "M₁₅"]


def test_rows_lie_as_channels_from_the_top():
    figure = figures.encoding("x", [[0.0, 1.0], [2.0, -3.0], [4.0, 5.0]])
    assert figure.panels[0].marks[0].z == [[0, 2, 4], [1, -3, 5]]
    assert figure.panels[0].y_down
    assert "between −5 and 5" in figure.says


@pytest.mark.parametrize("name", ["encoding", "similarity", "shift", "grids"])
def test_signed_values_are_centred_at_0(drawn, name):
    for panel in drawn[name].panels:
        low, high = panel.marks[0].span
        assert low == -high < 0


def test_cells_of_likeness_are_cosines_of_rows():
    """Rows written down here: sin and cos of the position, and bits, which differ in length."""
    angles = torch.arange(5.0).unsqueeze(-1) * torch.tensor([1.0, 0.1])
    rows = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
    (panel,) = figures.similarity("S", similarity.between(Sinusoidal(4, base=100.0), 5)).panels
    expected = torch.nn.functional.cosine_similarity(rows.unsqueeze(0), rows.unsqueeze(1), dim=-1)
    assert torch.tensor(panel.marks[0].z).allclose(expected, atol=1e-4)
    bits = torch.tensor([[n >> k & 1 for k in reversed(range(3))] for n in range(8)]).float()
    dot, _ = figures.similarity("B", similarity.between(Binary(3, bits=3), 8)).panels
    assert torch.tensor(dot.marks[0].z).allclose(bits @ bits.T, atol=1e-4)


def test_cells_of_a_moving_matrix_are_its_rotations():
    """Each pair turned by k θ: [[cos, sin], [−sin, cos]] of (sin, cos) beside each other."""
    panels = figures.shift("S", group(Sinusoidal(4, base=100.0), 3, 5)).panels
    for panel, k in zip(panels, (3, 5, 8, 8), strict=True):
        expected = torch.zeros(4, 4)
        for pair, theta in enumerate((1.0, 0.1)):
            at, angle = slice(2 * pair, 2 * pair + 2), torch.tensor(k * theta)
            c, s = angle.cos(), angle.sin()
            expected[at, at] = torch.stack((torch.stack((c, s)), torch.stack((-s, c))))
        assert torch.tensor(panel.marks[0].z).allclose(expected, atol=1e-3)


def test_lines_of_a_bias_are_its_heads():
    figure = figures.bias("mine", [[0.0, -1.0, -2.0], [0.0, 1.0, -1.0]])
    assert [list(line.y) for line in figure.panels[0].marks] == [[0, -1, -2], [0, 1, -1]]
    assert list(figure.panels[0].marks[0].x) == [0, 1, 2]
    assert "In 1 of 2 heads the bias never rises" in figure.says


def test_the_curve_of_a_peak_is_the_sum_of_its_pairs():
    """q · R(δ) k with k = R(9) q is Σ |qⱼ|² cos((9 − δ) θⱼ)."""
    q, theta = torch.randn(8), 10_000.0 ** (-torch.arange(4) / 4)
    line, _ = figures.peak(similarity.peak(frequencies(8), q, 9, 40)).panels[0].marks
    sizes = q.view(4, 2).square().sum(-1)
    expected = [(sizes * ((9 - at) * theta).cos()).sum().item() for at in line.x]
    assert line.y == pytest.approx(expected, abs=1e-4)
