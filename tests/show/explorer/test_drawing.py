"""The numbers of the page's figures, in node: against counting by hand, and against numpy."""

import json
import math

import numpy as np
import pytest
from javascript import evaluate

SCALES = ["page/scales.js"]
COMPUTE = ["interpreter.js", "page/compute.js"]
PALETTE = {"paper": "#ffffff", "high": "#d55e00", "low": "#0072b2", "none": "#e4e6e9"}


@pytest.mark.parametrize(
    ("low", "high", "many", "wanted"),
    [
        (0, 63, 5, [0, 20, 40, 60]),
        (-0.3, 1, 7, [-0.2, 0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-63, 63, 4, [-50, 0, 50]),
        (5, 5, 4, [5]),
    ],
)
def test_ticks_are_round_and_inside(low, high, many, wanted):
    found = evaluate(SCALES, "([low, high, many]) => ticks(low, high, many)", [low, high, many])
    assert found == pytest.approx(wanted)


def test_a_logarithmic_axis_has_powers_of_ten():
    found = evaluate(SCALES, "([low, high]) => powers(low, high)", [6.28, 54410])
    assert found == [10, 100, 1000, 10000]


def test_colours_run_from_the_paper_to_both_ends():
    pixels = evaluate(
        SCALES,
        "([values, palette]) => {"
        "  const pixels = new Uint32Array(6);"
        "  colour(pixels, [...values, -Infinity], palette, true, 2);"
        "  return [...new Uint8Array(pixels.buffer)]; }",
        [[0, 2, -2, 1, 5], PALETTE],
    )
    zero, top, bottom, half, beyond, hidden = np.reshape(pixels, (6, 4)).tolist()
    assert zero == [255, 255, 255, 255]
    assert top == beyond == [0xD5, 0x5E, 0x00, 255]
    assert bottom == [0x00, 0x72, 0xB2, 255]
    assert half == pytest.approx([(255 + 0xD5) / 2, (255 + 0x5E) / 2, 127.5, 255], abs=1)
    assert hidden == [0xE4, 0xE6, 0xE9, 255]


def test_scores_by_offset_are_means_along_diagonals():
    scores = np.random.default_rng(0).normal(size=(9, 9))
    found = evaluate(
        COMPUTE,
        "(rows) => byOffset({ rows: 9, columns: 9, values: Float64Array.from(rows.flat()) })",
        scores.tolist(),
    )
    assert found["offsets"] == [*range(-8, 9)]
    for at, offset in enumerate(found["offsets"]):
        diagonal = np.diagonal(scores, -offset)
        assert found["mean"][at] == pytest.approx(diagonal.mean(), abs=1e-12)
        assert found["low"][at] == diagonal.min()
        assert found["high"][at] == diagonal.max()


@pytest.mark.parametrize("causal", [False, True])
def test_shares_are_those_of_a_softmax(causal):
    scores = np.random.default_rng(1).normal(size=(5, 5)) * 40
    found = evaluate(
        COMPUTE,
        "([rows, causal]) => [...softmax("
        "{ rows: 5, columns: 5, values: Float64Array.from(rows.flat()) }, causal).values]",
        [scores.tolist(), causal],
    )
    seen = np.where(np.tri(5, dtype=bool) | (not causal), scores, -np.inf)
    wanted = np.exp(seen - seen.max(1, keepdims=True))
    assert found == pytest.approx((wanted / wanted.sum(1, keepdims=True)).ravel())


def test_words_have_the_same_vectors_in_every_page():
    twice = evaluate(
        COMPUTE, "(word) => [[...vectorOf(word, 4000)], [...vectorOf(word, 4000)]]", "dog"
    )
    assert twice[0] == twice[1]
    assert np.mean(twice[0]) == pytest.approx(0, abs=4 / math.sqrt(4000))
    assert np.std(twice[0]) == pytest.approx(1, abs=0.05)


def test_a_shuffle_is_a_permutation():
    order = evaluate(COMPUTE, "([count, seed]) => shuffled(count, seed)", [24, 3])
    assert sorted(order) == [*range(24)]
    assert order != [*range(24)]


def test_numbers_read_as_they_are_written_in_print():
    numbers = [0, 1, -0.25, 1234567, 3e-7, 62831.853]
    found = evaluate(["page/words.js"], "(all) => all.map((one) => shown(one))", numbers)
    assert found == ["0", "1", "−0.25", "1,234,567", "3.0 · 10⁻⁷", "62,832"]
    assert json.dumps(found)


def test_a_study_is_drawn_task_by_task_from_the_seeds():
    curve = {"16": [1.0, 0.8], "32": [0.5, 0.1], "8": [1.0, 1.0]}
    rows = [
        {"task": "copy", "encoding": "RoPE", "bits": False, "curve": curve},
        {"task": "copy", "encoding": "NoPE", "bits": False, "curve": {}},  # every seed failed
    ]
    asked = "(study) => [studiesOf(study), studiesOf(null)]"
    studies, none = evaluate(["page/studies.js"], asked, {"rows": rows})
    (study,) = studies
    assert (study["task"], study["seeds"], len(study["curves"])) == ("copy", 2, 1)
    assert study["curves"][0]["lengths"] == [8, 16, 32]
    assert study["curves"][0]["mean"] == pytest.approx([1, 0.9, 0.3])
    assert study["curves"][0]["low"] == [1, 0.8, 0.1]
    assert none == []
