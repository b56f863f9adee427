"""Arcs against angles counted one by one: which of 720 parts of a circle each distance falls in."""

import math

import pytest
import torch

from posenc.analysis.dials import by_method, dials
from posenc.analysis.frequencies import stretched
from posenc.encodings.rotary.theta import frequencies

PARTS, FINE = 720, 256  # of a circle; of a token


def visited(theta, tokens):
    """Parts of the circle that the distances 0 … tokens − 1 reach, in fine steps."""
    steps = torch.arange(tokens * FINE, dtype=torch.float64) / FINE
    return {*(steps * theta / (2 * math.pi) % 1 * PARTS).long().tolist()}


@pytest.mark.parametrize("method", ["none", "interpolate", "ntk", "dynamic_ntk", "yarn", "llama3"])
def test_shares_are_those_of_the_angles_that_are_visited(method):
    theta, trained, target = frequencies(24, 500.0), 64, 512
    now = stretched(theta, trained, 8.0)[method][0]
    for n, dial in enumerate(by_method(theta, trained, target)[method]):
        met, used = visited(theta[n], trained), visited(now[n], target)
        assert dial.met == pytest.approx(len(met) / PARTS, abs=2 / PARTS), n
        assert dial.new == pytest.approx(len(used - met) / PARTS, abs=3 / PARTS), n
        assert dial.wavelength == pytest.approx(2 * math.pi / now[n])


def test_interpolation_and_yarn_show_no_new_angle_and_no_extension_shows_some():
    """Llama 2's RoPE, base 10,000 over 128 channels: 92 of them complete a turn in 4,096 tokens."""
    found = by_method(frequencies(128, 1e4), 4096, 32_768)
    new = {name: sum(dial.new > 0 for dial in those) for name, those in found.items()}
    assert (new["none"], new["interpolate"], new["yarn"]) == (64 - 92 // 2, 0, 0)
    assert sum(dial.met == 1 for dial in found["none"]) == 92 // 2


def test_a_pair_that_stands_still_has_an_empty_dial():
    (dial,) = dials([0.1], [0.0], 10, 100)
    assert (dial.met, dial.new, dial.wavelength) == (0, 0, math.inf)


def test_a_configured_extension_comes_second():
    found = by_method(
        frequencies(8, 1e4),
        16,
        64,
        configured=[turn / 4 for turn in frequencies(8, 1e4)],
        long=[4.0] * 4,
    )
    assert [*found][:2] == ["none", "configured"]
    assert [d.new for d in found["configured"]] == [d.new for d in found["longrope"]] == [0] * 4


def test_of_a_single_pair_what_takes_two_is_left_out():
    """NTK-aware scaling and YaRN go from the fastest pair to the slowest."""
    found = by_method(frequencies(2, 1e4), 100, 400)
    assert {"none", "interpolate", "llama3"} <= found.keys()
    two = {"ntk", "dynamic_ntk", "yarn"}
    assert not two & found.keys()
    assert by_method(frequencies(4, 1e4), 100, 400).keys() >= two
