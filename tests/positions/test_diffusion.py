"""Position ids of diffusion models against those of diffusers, which `tools/diffusion_ids.py`
recorded, and against ids written by hand.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc.positions import text_and_grid
from posenc.positions.diffusion import DIFFUSION

RECORDED = json.loads(
    (Path(__file__).parent.parent / "data/diffusion_positions.json").read_text("utf-8")
)["cases"]


def assert_equal(name: str, case: dict[str, Any]) -> None:
    """The tables of diffusers are float32, so ids between whole numbers are known to 1e-4."""
    rest = {key: case[key] for key in ("references", "rate") if key in case}
    ids = text_and_grid(case.get("text", 0), case["grid"], name, **rest)
    expected = torch.tensor(case["ids"], dtype=ids.dtype)
    torch.testing.assert_close(ids, expected, rtol=0, atol=1e-4 if ids.is_floating_point() else 0)


def test_every_rule_is_recorded_on_fifty_grids():
    assert {name: len(cases) for name, cases in RECORDED.items()} == dict.fromkeys(DIFFUSION, 50)


@pytest.mark.parametrize("name", RECORDED)
def test_ids_are_those_of_diffusers(name: str):
    for case in RECORDED[name]:
        assert_equal(name, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFUSION)
def test_ids_are_those_of_an_installed_diffusers(name: str):
    """On 50 grids that are not in the record; `make kernels` installs diffusers."""
    pytest.importorskip("diffusers")
    from tools.diffusion_ids import record

    for seed in range(1_000, 1_050):
        assert_equal(name, record(name, seed))


def test_two_references_of_flux_2_lie_at_10_and_20():
    ids = text_and_grid(2, (1, 1, 2), "flux2", references=[(1, 1, 1), (1, 2, 1)])
    expected = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]
    assert ids.tolist() == [*expected, [10, 0, 0, 0], [20, 0, 0, 0], [20, 1, 0, 0]]


def test_text_lies_behind_the_largest_picture_of_qwen_image():
    ids = text_and_grid(1, (1, 2, 2), "Qwen-Image", references=[(1, 3, 9)])
    assert ids[0].tolist() == [4] * 3
    assert ids[5].tolist() == [1, -2, -5]


def test_a_second_of_ltx_is_a_twentieth():
    """25 frames a second, of which 8 make one patch: 100 patches are 32 seconds, 1.6 · 20."""
    ids = text_and_grid(0, (101, 1, 65), "LTX", rate=25)
    assert ids[0].tolist() == [-1, -1, -1]
    torch.testing.assert_close(ids[-1], torch.tensor([2 * 1.6 - 1, -1, 1]).double())


WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"rule": "Wan", "text": 3}, ("`text`", "0", "3")),
    ({"rule": "Wan", "references": [(1, 2, 2)] * 2}, ("`references`", "empty", "2")),
    ({"rule": "Wan", "rate": 25}, ("`rate`", "None", "25")),
    ({"rule": "LTX"}, ("`rate`", "got None", "25")),
    ({"rule": "LTX", "rate": 0}, ("`rate`", "positive", "0")),
    ({"rule": "FLUX.1", "grid": (2, 2, 2)}, ("`grid`", "1 frame", "got 2")),
    ({"rule": "FLUX.1", "grid": (2, 2)}, ("`grid`", "3 numbers", "got 2")),
    ({"rule": "FLUX.1", "grid": (1, 0, 2)}, ("`grid`", "at least 1", "0")),
    ({"rule": "FLUX.3"}, ("`rule`", "'FLUX.3'", "FLUX.")),
    ({"rule": "SD"}, ("`rule`", "'SD'", "Z-Image")),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_what_a_model_does_not_take_is_refused(arguments: dict[str, Any], words: tuple[str, ...]):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the words are compared below
        text_and_grid(**({"text": 0, "grid": (1, 2, 2)} | arguments))
    for word in words:
        assert word in str(caught.value)
