"""Maps of images: cosines written out for every patch, and the slant of RoPE-Mixed."""

import math

import pytest
import torch
from refusals import refused

from posenc import Mixed, RoPE, axial
from posenc.analysis.grids import to_patch
from posenc.encodings.rotary.dinov3 import dinov3


def test_axial_rope_sees_rows_and_columns_apart():
    found = to_patch(RoPE(axial(16, 2, base=100.0)), 5, 7, (1, 4))
    assert (found.height, found.width, len(found.heads)) == (5, 7, 1)
    for y in range(5):
        for x in range(7):
            theta = [100.0 ** (-j / 4) for j in range(4)]
            waves = [math.cos((1 - y) * t) + math.cos((4 - x) * t) for t in theta]
            assert found.heads[0][y][x] == pytest.approx(sum(waves) / 8, abs=1e-5)


def test_mixed_sees_slanted_bands_with_every_head_its_own():
    mixed = Mixed(8, heads=2)
    found = to_patch(mixed, 4, 6, (2, 3))
    assert len(found.heads) == 2
    for head in range(2):
        down, across = mixed.freqs[:, head].tolist()
        for y in range(4):
            for x in range(6):
                waves = [
                    math.cos((2 - y) * a + (3 - x) * b) for a, b in zip(down, across, strict=True)
                ]
                assert found.heads[head][y][x] == pytest.approx(sum(waves) / 4, abs=1e-5)


def test_the_map_moves_with_the_patch():
    rope = RoPE(axial(16, 2))
    first, second = (
        torch.tensor(to_patch(rope, 8, 8, chosen).heads[0]) for chosen in ((2, 2), (5, 3))
    )
    assert second[3:, 1:].allclose(first[:5, :7], atol=1e-5)


def test_places_in_the_image_stay_as_patches_get_finer():
    rope = RoPE(dinov3(32))
    coarse, fine = (to_patch(rope, n, n, (n // 2, n // 2), unit=True) for n in (5, 15))
    for n in (0, 2, 4):
        assert fine.heads[0][7][3 * n + 1] == pytest.approx(coarse.heads[0][2][n], abs=1e-5)


def test_what_is_no_image_is_refused():
    with refused(ValueError, "RoPE", 1):
        to_patch(RoPE(8), 4, 4, (0, 0))
    with refused(ValueError, 4, 5, "(4, 0)"):
        to_patch(RoPE(axial(8, 2)), 4, 5, (4, 0))
