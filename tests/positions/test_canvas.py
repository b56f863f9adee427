"""The canvas of MiniCPM-V against ids written by hand; `test_multimodal.py` runs the model."""

import pytest
import torch

from posenc.positions import multimodal

# Text, <image>, a thumbnail of 1 × 2, </image>, two slices of 2 × 1 side by side, text
PICTURE = [0, 4, 1, 1, 4, 5, 1, 1, 4, 5, 1, 1, 4, 0]
GRIDS = [(1, 4, 8), (1, 8, 4), (1, 8, 4)]


def test_slices_and_thumbnail_share_a_canvas():
    ids, delta = multimodal(torch.tensor([PICTURE]), "minicpmv4_7", images=GRIDS)
    expected = [(0, 0, 0), (1, 0, 0)]  # the mark in front of a picture is one behind its corner
    expected += [(1, 1, 1), (1, 1, 2), (1, 3, 3)]  # the thumbnail spans 2 × 2, its mark the end
    expected += [(1, 1, 1), (1, 1, 1), (1, 2, 1), (1, 2, 1)]
    expected += [(1, 1, 2), (1, 1, 2), (1, 2, 2), (1, 2, 2)]
    assert ids[0].tolist() == [list(row) for row in [*expected, (4, 4, 4)]]
    assert delta.tolist() == [4 + 1 - len(PICTURE)]


def test_a_line_break_begins_a_row_of_slices():
    rows = [*PICTURE[:8], 4, 4, *PICTURE[9:]]
    ids, _ = multimodal(torch.tensor([rows]), "minicpmv4_7", images=GRIDS)
    assert ids[0, 9].tolist() == [1, 2, 2]  # at the right edge of the last row above
    assert ids[0, 11:13].tolist() == [[1, 3, 1], [1, 4, 1]]
    assert ids[0, -1].tolist() == [6] * 3


def test_a_picture_without_its_mark_is_refused():
    with pytest.raises(
        ValueError, match=r"`kinds` must have a mark before each picture \(4\).*got 0 before token"
    ):
        multimodal(torch.tensor([[0, 1, 1]]), "minicpmv4_7", images=[(1, 4, 8)])


def test_a_slice_of_another_size_is_refused():
    grids = [*GRIDS[:2], (1, 4, 4)]
    with pytest.raises(ValueError, match=r"`images`.*1 tokens.*for 2 tokens"):
        multimodal(torch.tensor([PICTURE]), "minicpmv4_7", images=grids)
