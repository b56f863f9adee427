"""Critical dimensions by the paper's formula; extensions by what each promises, pair by pair.

Similarity, reach, smallest bases and single pairs are held to Men et al. 2024 in
tests/models/test_inspection.py.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from published import MODELS

from posenc.analysis.base_search import search
from posenc.analysis.frequencies import BASES, LONGEST, critical, extended, reach, smallest_base
from posenc.encodings.rotary.theta import frequencies


@pytest.mark.parametrize(
    ("dim", "base", "trained"), [(128, 1e4, 4096), (64, 1e4, 128), (32, 1e4, 64), (128, 5e5, 8192)]
)
def test_the_critical_dimension_is_that_of_the_papers_formula(dim, base, trained):
    expected = 2 * math.ceil(dim / 2 * math.log(trained / (2 * math.pi), base))
    assert critical(frequencies(dim, base), trained) == expected


def test_most_pairs_of_a_small_model_never_complete_a_turn():
    assert 32 - critical(frequencies(64, 1e4), 128) // 2 == 21
    assert 16 - critical(frequencies(32, 1e4), 64) // 2 == 11


def test_each_method_does_what_it_says():
    found = extended(frequencies(128, 1e4), 4096, 8.0)
    slower = {name: [pair.slower for pair in one.pairs] for name, one in found.methods.items()}
    assert (found.target, found.critical, found.channels) == (32768, 92, 128)
    assert slower["none"] == [1] * 64
    assert slower["interpolate"] == pytest.approx([8] * 64)
    assert slower["ntk"] == pytest.approx([8 ** (j / 63) for j in range(64)])
    assert slower["dynamic_ntk"] == pytest.approx([57 ** (j / 63) for j in range(64)])  # 8·8 − 7
    turns = [4096 / (2 * math.pi * 10000 ** (2 * j / 128)) for j in range(64)]
    for name, slow, fast in (("by_parts", 1, 32), ("llama3", 1, 4)):
        for found_slower, r in zip(slower[name], turns, strict=True):
            kept = min(max((r - slow) / (fast - slow), 0), 1)
            assert found_slower == pytest.approx(1 / (kept + (1 - kept) / 8))
    kinds = [pair.change for pair in found.methods["yarn"].pairs]
    assert kinds[0] == "kept"
    assert kinds[-1] == "interpolated"
    assert kinds.index("stretched") < kinds.index("interpolated")
    assert found.methods["yarn"].gain == pytest.approx(1 + 0.1 * math.log(8))
    assert {one.gain for name, one in found.methods.items() if name != "yarn"} == {1}


def test_reach_grows_as_frequencies_are_stretched():
    """1,707 is where the sum of 64 cosines first turns negative."""
    reach = {
        name: one.reach for name, one in extended(frequencies(128, 1e4), 1024, 4.0).methods.items()
    }
    assert reach["none"] == 1707
    assert reach["interpolate"] == 4096  # that is, nowhere: 4 · 1,707 is beyond the target
    assert reach["none"] < reach["ntk"] <= 4096


def test_longrope_takes_the_factors_of_a_published_model():
    model = MODELS["Phi-3.5-mini-instruct"]
    long, trained = model["rope_scaling"]["long_factor"], model["original_max_position_embeddings"]
    factor = model["max_position_embeddings"] / trained
    theta = frequencies(model["head_dim"], model["rope_theta"])
    one = extended(theta, trained, factor, long).methods["longrope"]
    assert [pair.slower for pair in one.pairs] == pytest.approx(long)
    assert one.gain == pytest.approx(1.190238, abs=1e-6)
    assert "longrope" not in extended(theta, trained, factor).methods


@pytest.mark.parametrize("theta", [frequencies(128, 3e4), [1.0] * 3 + [0.01] * 9, [0.0, 0.3, 0.2]])
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_reach_is_found_where_each_distance_with_its_cosines_says(theta, factor):
    slower = [turn / factor for turn in theta]
    m = torch.arange(12_000, dtype=torch.float64)[:, None]
    below = ((m * torch.tensor(slower, dtype=torch.float64)).cos().sum(-1) < 0).nonzero()
    assert reach(slower, 12_000) == (int(below[0]) if len(below) else 12_000)
    assert reach([-turn for turn in slower], 12_000) == reach(slower[::-1], 12_000)


@pytest.mark.parametrize("limit", [3, 4096, 131_072])
@pytest.mark.parametrize("theta", [frequencies(128, 3e4), frequencies(8, 10.0), [0.0, 0.0], [2.0]])
def test_without_torch_reach_is_the_same(theta, limit):
    """A fresh Python that has not imported torch, beside products of matrices."""
    code = (
        "import sys; from posenc.analysis.frequencies import reach;"
        f"print(reach({theta!r}, {limit}), 'torch' in sys.modules)"
    )
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert alone.stdout.split() == [str(reach(theta, limit)), "False"]


TABLE = Path(frequencies.__code__.co_filename).parents[2] / "analysis/smallest_bases.json"
ROWS = {int(dim): rows for dim, rows in json.loads(TABLE.read_text()).items()}


@pytest.mark.parametrize("dim", ROWS)
def test_bases_that_are_looked_up_are_those_of_the_search(dim):
    """The bases of each row reach exactly the lengths stated there."""
    places, lengths = zip(*ROWS[dim], strict=True)
    assert [*places] == sorted(places)
    assert [*lengths] == sorted(set(lengths))
    assert lengths[-1] >= LONGEST
    for length in (512, 4096, 40_000):
        assert smallest_base(dim, length) == BASES[search(dim, length, BASES)]
    row = len(places) // 3
    assert reach(frequencies(dim, BASES[places[row]])) == lengths[row]
    assert smallest_base(dim, lengths[row]) == BASES[places[row]]
    assert smallest_base(dim, lengths[row] + 1) == BASES[places[row + 1]]


def test_bases_of_other_widths_are_searched_for():
    assert smallest_base(20, 1000) == BASES[search(20, 1000, BASES)]
