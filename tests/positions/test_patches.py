"""Test the orders of patches against loops."""

import pytest
import torch
from refusals import refused

from posenc.positions import patches


def places(rows, columns, *sides):
    """List the patches by loops over cells of each side, the largest first."""

    def within(top, left, bottom, right, sides):
        if not sides:
            return [[row, column] for row in range(top, bottom) for column in range(left, right)]
        found = []
        for row in range(top, bottom, sides[0]):
            for column in range(left, right, sides[0]):
                lower, outer = min(row + sides[0], bottom), min(column + sides[0], right)
                found += within(row, column, lower, outer, sides[1:])
        return found

    return within(0, 0, rows, columns, sides)


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (6, 10), (2, 2), (12, 4)])
def test_orders_equal_loops_over_windows_blocks_and_rows(rows, columns):
    """Sizes include windows that are cut off at the right and at the lower edge."""
    assert patches(rows, columns).tolist() == places(rows, columns)
    assert patches(rows, columns, order="blocks", merge=2).tolist() == places(rows, columns, 2)
    windows = patches(rows, columns, order="windows", merge=2, window=4)
    assert windows.tolist() == places(rows, columns, 4, 2)
    alone = patches(rows, columns, order="windows", window=3)
    assert alone.tolist() == places(rows, columns, 3)


def test_frames_of_a_video_follow_each_other_in_every_order():
    frame = patches(4, 6, order="windows", merge=2, window=4)
    video = patches(3, 4, 6, order="windows", merge=2, window=4)
    for number, points in enumerate(video.split(24)):
        torch.testing.assert_close(points[:, 1:], frame)
        assert points[:, 0].unique().tolist() == [number]


def test_sizes_that_contradict_each_other_are_refused_with_both_numbers():
    with refused(ValueError, "`merge`", "rows", 2, 5):
        patches(5, 6, order="blocks", merge=2)
    with refused(ValueError, "`merge`", "columns", 3, 8):
        patches(6, 8, order="blocks", merge=3)
    with refused(ValueError, "`merge`", "`window`", 2, 3):
        patches(4, 4, order="windows", merge=2, window=3)
    with refused(ValueError, "`order`", "spiral"):
        patches(4, 4, order="spiral")
    with refused(ValueError, "`sizes`", 1):
        patches(4)
