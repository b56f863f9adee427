"""Sliders of the page, held against what constructors take and against formulas."""

import json
from importlib.resources import files

import pytest

from posenc.show.explorer import data, graphs

CONFIGS = json.loads((files("posenc.models") / "published.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def encodings():
    return {one["slug"]: one for one in json.loads(data.to_json(data.page()))["encodings"]}


def test_sliders_turn_what_the_constructor_takes(encodings):
    for one in encodings.values():
        options = {option["name"] for option in one["options"]}
        for name, slider in one["sliders"].items():
            assert name in options
            assert slider["values"] == sorted(slider["values"])
            for constants in slider["constants"].values():
                assert len(constants) == len(slider["values"])
                assert constants[slider["at"]] != constants[0]


def test_the_base_of_theta_can_be_turned(encodings):
    """θⱼ = base^(−2j/d), for each base of the slider."""
    slider = encodings["rope"]["sliders"]["base"]
    assert slider["values"][slider["at"]] == 10_000
    for base, theta in zip(slider["values"], slider["constants"]["freqs"], strict=True):
        wanted = [base ** (-2 * j / graphs.DIM) for j in range(graphs.DIM // 2)]
        assert theta["values"] == pytest.approx(wanted, rel=1e-14)


def test_published_bases_can_be_set_and_are_marked(encodings):
    """Exactly the bases of published configs, and round values from 10³ to 10⁷ between them."""
    for name in ("rope", "sinusoidal"):
        slider = encodings[name]["sliders"]["base"]
        published = {config["rope_theta"] for config in CONFIGS.values() if "rope_theta" in config}
        within = {base for base in published if 1e3 <= base <= 1e7}
        assert len(within) > 8
        assert within <= {*slider["marked"]} <= {*slider["values"]}
        assert (slider["values"][0], slider["values"][-1]) == (1e3, 1e7)


def test_the_strength_of_alibi_can_be_turned(encodings):
    slider = encodings["alibi"]["sliders"]["strength"]
    for strength, slopes in zip(slider["values"], slider["constants"]["slopes"], strict=True):
        wanted = [strength * 2 ** (-8 * (h + 1) / 4) for h in range(4)]
        assert [abs(slope) for slope in slopes["values"]] == pytest.approx(wanted)
