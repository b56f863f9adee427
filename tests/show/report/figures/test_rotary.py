"""Lines against wavelengths and errors."""

import json
import math

import pytest
import torch

from posenc import frequencies
from posenc.analysis.dials import by_method
from posenc.analysis.frequencies import extended
from posenc.analysis.precision import Precision, precision
from posenc.models import published
from posenc.models.inspection import inspect
from posenc.show.report.drawing.marks import Points
from posenc.show.report.figures import rotary as figures
from posenc.show.report.phrases import METHODS


def test_each_method_is_shown_against_what_was_trained():
    """Base 10,000 over 128 channels and 4,096 tokens: 92 complete a turn, as for Llama 2."""
    found = extended(frequencies(128).tolist(), 4096, 4.0)
    figure = figures.extensions(found)
    assert "92 of 128 channels" in figure.says
    before, stretched, *rules = figure.panels[0].marks
    assert [rule.at for rule in rules] == [4096, 16384]
    assert before.y[0] == 2 * math.pi
    assert stretched.y == [4 * w for w in before.y]  # interpolated
    assert [panel.title.split(",")[0] for panel in figure.panels] == [
        METHODS[name] for name in found.methods if name != "none"
    ]
    (span,) = {panel.y_range for panel in figure.panels}
    waves = [p.wavelength for method in found.methods.values() for p in method.pairs]
    assert span[0] < min(waves) < max(waves) < span[1]


def test_methods_are_laid_over_each_other_once_each():
    """PI slows all pairs by 4, YaRN none that turn 32 times in training, NTK the slowest by 4."""
    figure = figures.stretch(extended(frequencies(128).tolist(), 4096, 4.0))
    *lines, rule = figure.panels[0].marks
    assert rule.at == 1
    slower = {line.name: line.y for line in lines}
    assert slower["PI"] == pytest.approx([4] * 64)
    assert (slower["NTK-aware"][0], slower["NTK-aware"][-1]) == pytest.approx((1, 4))
    blended = slower["NTK by parts"]
    for share, times in zip(lines[0].x, blended, strict=True):
        expected = 1 if share < 1 / 32 else 4 if share > 1 else times
        assert times == pytest.approx(expected, rel=1e-5)
    theta = frequencies(128).tolist()
    assert list(lines[0].x) == pytest.approx([math.tau / t / 4096 for t in theta])


def test_errors_that_are_no_numbers_leave_gaps():
    ways = {"exact": [1e-8, 1e-8], "float16 positions": [1e-3, None]}
    figure = figures.precision(Precision([1, 10**5], ways, ways, ways))
    assert "float16 positions not a number" in figure.says
    assert figure.panels[0].marks[1].y == [1e-3, None]


def test_dials_are_as_large_as_the_shares_of_their_circles():
    """The area of a sector is ½ r² α; of a polygon it is found by the shoelace formula."""
    found = by_method(frequencies(8, 100.0).tolist(), 20, 80)
    figure = figures.dials(found, 20, 80)
    assert "as trained 2, PI 0" in figure.says
    # PI's price: θ / 4 in every pair, where NTK leaves the fastest as it was
    cost = "PI 4 (the fastest 4 times), NTK-aware 3 (the fastest 1 times)"
    assert cost in figure.says
    nearer = {(row[0], row[1]): row[-1] for row in figure.listed.rows}
    assert [nearer["PI", str(n)] for n in range(4)] == ["4"] * 4
    assert nearer["as trained", "3"] == "1"
    assert figure.panels[0].title == "as trained: 2 of 4 pairs meet new angles"
    assert [len(panel.x_names) for panel in figure.panels] == [0] * (len(found) - 1) + [4]
    for panel, pairs in zip(figure.panels, found.values(), strict=True):
        never, met, new = (sectors(area) for area in panel.marks)
        circle = math.pi * 0.42**2
        for n, pair in enumerate(pairs):
            assert met.get(n, 0) / circle == pytest.approx(pair.met, abs=2e-3)
            assert new.get(n, 0) / circle == pytest.approx(pair.new, abs=2e-3)
            assert sum(area.get(n, 0) for area in (never, met, new)) == pytest.approx(circle, 2e-3)


def sectors(area):
    """The area of the polygon of each dial, by its place."""
    found, outline = {}, []
    for x, y in [*zip(area.x, area.y, strict=True), (None, None)]:
        if x is not None:
            outline.append((x, y))
        elif outline:
            following = [*outline[1:], outline[0]]
            twice = sum(a * d - b * c for (a, b), (c, d) in zip(outline, following, strict=True))
            found[round(outline[0][0])] = abs(twice) / 2
            outline = []
    return found


@pytest.mark.parametrize("scaled", [False, True])
def test_wavelengths_are_coloured_by_what_training_has_met(tmp_path, scaled):
    """Base 10,000, 64 channels, 2,048 tokens, target 8,192: angles counted here, token by token.

    With linear scaling by 4 a pair turns as far in 8,192 tokens as it did in training; the config
    then has 8,192.
    """
    config = {
        "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
        "num_hidden_layers": 2, "rope_theta": 10_000.0, "max_position_embeddings": 2048,
    }  # fmt: skip
    if scaled:
        scaling = {"rope_type": "linear", "factor": 4.0}
        config |= {"rope_scaling": scaling, "max_position_embeddings": 8192}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (group,) = inspect(tmp_path / "config.json", 8192).groups
    figure = figures.bands(group.turning)
    points = {mark.name: mark for mark in figure.panels[0].marks if isinstance(mark, Points)}
    trained, factor = 2048, 4 if scaled else 1
    expected = {}
    for pair in range(32):
        theta = 10_000 ** (-pair / 32)
        met = min(trained * theta, math.tau)
        used = min(8192 * theta / factor, math.tau)
        # On how many tokens it was trained is not in the config, scaled or not
        name = "complete a turn in 2,048 tokens"
        if met < math.tau and used <= met * (1 + 1e-9):
            name = "complete part of a turn in 2,048 tokens, and need no more"
        elif met < math.tau:
            name = "need angles beyond those of 2,048 tokens"
        expected.setdefault(name, []).append((pair, math.tau / theta * factor))
    assert {*points} == {*expected}
    for name, places in expected.items():
        x, y = zip(*places, strict=True)
        assert tuple(points[name].x) == x
        assert points[name].y == pytest.approx(y)
        assert f"{name}: {len(places)}" in figure.says
    shade = figure.panels[0].marks[0]
    assert min(shade.y) == trained
    assert max(shade.y) == figure.panels[0].y_range[1] > max(y)


def test_lines_of_precision_are_errors_in_few_bits():
    """cos(p θ) with θ rounded to bfloat16, against float64: the first pair alone has θ = 1."""
    found = precision(frequencies(4))
    lines = {line.name: line for line in figures.precision(found).panels[0].marks}
    rounded = [float(torch.tensor(t, dtype=torch.bfloat16)) for t in (1.0, 0.01)]
    line = lines["bfloat16 frequencies"]
    for at, drawn in zip(line.x, line.y, strict=True):
        if at <= 1000:
            worst = max(
                abs(of(p * low) - of(p * t))
                for p in range(at, at + 32)
                for t, low in zip((1.0, 0.01), rounded, strict=True)
                for of in (math.cos, math.sin)
            )
            assert drawn == pytest.approx(worst, rel=0.05, abs=2e-5)


def test_no_figure_of_a_config_says_on_how_many_tokens_the_model_was_trained():
    """Llama 4 Scout's states 8,192 before stretching and 10,485,760 after; it was trained on more
    than the first. So of Llama 3.1, of which both are named.
    """
    figure = figures.models(published.models())
    assert "trained" not in f"{figure.says} {figure.listed.heading}"
    assert all("trained" not in mark.name for mark in figure.panels[0].marks)
    (group,) = inspect(published.configs()["Llama-3.1-8B-Instruct"], 131_072).groups
    turning = group.turning
    assert "If trained on 8,192 tokens" in figures.dials(turning.dials, 8_192, 131_072).says
    assert "of training" not in figures.bands(turning).says
