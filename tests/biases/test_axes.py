"""Points on a line against their coordinates."""

import pytest
import torch
from refusals import refused

from posenc.biases.axes import along_axes, on_a_line


@pytest.mark.parametrize(("axes", "most"), [(2, 2**30), (3, 2**19), (4, 2**14)])
def test_a_difference_on_the_line_gives_the_offset_along_each_axis(axes, most):
    generator = torch.Generator().manual_seed(axes)
    near = torch.randint(-5, 6, (40, axes), generator=generator)
    far = torch.randint(0, most, (40, axes), generator=generator)
    points = torch.cat((near, far, torch.full((1, axes), most - 1), torch.zeros(1, axes).long()))
    line = on_a_line(points, "Test")
    found = torch.stack(along_axes(line[:, None] - line, axes), -1)
    expected = points[:, None] - points
    inside = (expected.abs() < most).all(-1)
    assert inside.sum() > 40**2
    assert found[inside].equal(expected[inside])


def test_a_common_shift_changes_nothing_even_if_it_is_large():
    points = torch.tensor([[0, 0], [3, 8]])
    for shift in (10**6, 2**31 - 9):
        line = on_a_line(points + shift, "Test")
        assert [int(x) for x in along_axes(line[1] - line[0], 2)] == [3, 8]


def test_refuses_fractions():
    with refused(TypeError, "`pos`", "Test"):
        on_a_line(torch.rand(3, 2), "Test")
