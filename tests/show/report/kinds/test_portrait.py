"""Figures of a model that is made up: two layers, three tokens."""

import json
from dataclasses import replace

import pytest

from posenc.analysis.similarity import Curve
from posenc.lab.compare.real_model import LayerReading, ModelReading
from posenc.models.inspection import inspect
from posenc.show.report.kinds import portrait

WEIGHTS = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]
CURVE = Curve([0, 1, 2], [9.0, 1.0, 0.5], [8.0, 0.5, 0.0], [10.0, 1.5, 1.0])


@pytest.fixture
def reading(tmp_path):
    config = {"model_type": "bert", "num_hidden_layers": 6, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 8}))
    return ModelReading(
        name="small",
        inspection=inspect(tmp_path),
        tokens=["the", "old", "dog"],
        window=3,
        layers=[
            LayerReading(0, WEIGHTS, CURVE),
            LayerReading(5, WEIGHTS, replace(CURVE, mean=[9.0, 2.0, 0.25])),
        ],
        heads=[WEIGHTS, WEIGHTS[::-1]],
        parts=None,
        bound=None,
        order=None,
        notes=[],
    )


def test_each_layer_and_each_head_has_a_panel_of_its_weights(reading):
    layers, heads = portrait.layers(reading), portrait.heads(reading)
    assert [panel.title for panel in layers.panels] == ["layer 0", "layer 5"]
    assert [panel.marks[0].z for panel in heads.panels] == [WEIGHTS, WEIGHTS[::-1]]
    assert heads.panels[0].x_names == reading.tokens


def test_scores_leave_out_the_token_itself(reading):
    figure = portrait.distances(reading)
    band, line = figure.panels[1].marks
    assert (line.x, line.y) == ([1, 2], [2.0, 0.25])
    assert (band.low, band.high) == ([0.5, 0.0], [1.5, 1.0])
    assert "1 to 0.5 in layer 0, 2 to 0.25 in layer 5" in figure.says


def test_a_head_that_looks_at_the_token_before_is_named(reading):
    """Made of offsets: one head looks one back, one at itself, one everywhere."""
    before = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    itself = [[1.0, 0.0, 0.0], [0.0, 0.9, 0.1], [0.1, 0.1, 0.8]]
    nowhere = [[0.34, 0.33, 0.33]] * 3
    says = portrait.heads(replace(reading, heads=[before, itself, nowhere])).says
    assert "Head 0 looks at the token before: 1.00 of its weight" in says
    assert "Head 1 looks at the token itself: 0.90 of its weight" in says
    assert "Head 2" not in says
