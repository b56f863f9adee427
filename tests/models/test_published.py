"""Test packaged configs against tests/data, and their wavelengths against a formula."""

import json
import math
from importlib.resources import files
from pathlib import Path

import pytest
from published import KINDS
from published import published as config_of

from posenc.models import published
from posenc.models.config import specify
from posenc.models.published import models
from posenc.show.report.figures import rotary


@pytest.fixture(scope="module")
def found():
    return {model.name: model for model in models()}


def test_the_packaged_configs_are_those_that_were_read():
    packaged = json.loads((files("posenc.models") / "published.json").read_text("utf-8"))
    assert packaged == {name: config_of(name) for name in KINDS}


def test_windows_bases_and_lengths_are_those_of_the_published_files():
    """Compare layers with those of complete config.json files that are recorded."""
    whole = json.loads((Path(__file__).parents[1] / "data/published_files.json").read_text("utf-8"))
    both = [name for name in KINDS if name in whole]
    assert len(both) > 8
    for name in both:
        packaged, file = (
            specify(one).text_stack for one in (published.configs()[name], whole[name]["config"])
        )
        assert packaged.context == file.context, name
        kinds = [
            {(layer.window, getattr(layer.encoding, "base", None)) for layer in spec.layers}
            for spec in (packaged, file)
        ]
        assert kinds[0] == kinds[1], name


def test_wavelengths_are_those_of_the_formula(found):
    model = found["Qwen2.5-7B-Instruct"]
    assert (model.base, model.trained, model.context) == (1e6, 32_768, 32_768)
    expected = [2 * math.pi * 1e6 ** (2 * j / 128) for j in range(64)]
    assert model.wavelengths == pytest.approx(expected)
    assert model.unfinished == sum(wave > 32_768 for wave in expected)


def test_a_stretched_model_keeps_what_it_was_trained_on(found):
    """Llama 3.1 slows its slowest pairs by 8, for 131,072 instead of 8,192 tokens."""
    model = found["Llama-3.1-8B-Instruct"]
    assert (model.method, model.trained, model.context) == ("llama3", 8192, 131_072)
    assert model.wavelengths[0] == pytest.approx(2 * math.pi)
    assert model.wavelengths[-1] == pytest.approx(8 * 2 * math.pi * 500_000 ** (126 / 128))


def test_of_gemma_the_layers_that_see_the_whole_text_are_shown(found):
    """The sliding layers of Gemma have a base of 10,000."""
    assert found["Gemma-3-12b-it (text)"].base == 1e6


def test_each_model_is_a_row_of_the_chart(found):
    figure = rotary.models([*found.values()])
    fast, slow, trained, context, bases = figure.panels[0].marks
    for row, model in enumerate(found.values()):
        for points, turns in ((fast, True), (slow, False)):
            shown = [x for x, y in zip(points.x, points.y, strict=True) if y == row]
            waves = [w for w in model.wavelengths if math.isfinite(w)]
            assert shown == [w for w in waves if (w <= model.context) == turns]
        assert (trained.x[row], context.x[row]) == (model.trained, model.context)
        assert bases.labels[row] == f"base {model.base:,.0f}"
    assert len(figure.listed.rows) == len(found) == len(KINDS)
