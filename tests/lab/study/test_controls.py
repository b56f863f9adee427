"""Controls, against masks and targets that are written out."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import torch
from refusals import refused

from posenc.lab.study.cell import Cell
from posenc.lab.study.controls import draw_positions, mask_of

CELL = Cell("copy", "rope", 0)
ONE_WAY, BOTH_WAYS = (SimpleNamespace(longest=2, both_ways=way) for way in (False, True))
FULL, SHORT = (
    SimpleNamespace(inputs=torch.zeros(2, 4), lengths=lengths) for lengths in ([4, 4], [4, 2])
)


def dense(mask):
    """Who sees whom, (text, query, key)."""
    b, h = torch.arange(2).view(2, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.long)
    i, j = torch.arange(4).view(1, 1, 4, 1), torch.arange(4).view(1, 1, 1, 4)
    return mask(b, h, i, j).expand(2, 1, 4, 4)[:, 0].tolist()


def test_without_a_control_and_without_filling_nothing_is_hidden():
    assert mask_of(CELL, ONE_WAY, SHORT) is None  # what follows is hidden by the model
    assert mask_of(CELL, BOTH_WAYS, FULL) is None


def test_a_window_reaches_as_far_as_the_longest_text_of_training():
    mask = mask_of(replace(CELL, control="window"), ONE_WAY, FULL)
    near = [[abs(i - j) < 2 for j in range(4)] for i in range(4)]
    assert dense(mask) == [near, near]


def test_filling_is_hidden_where_a_text_is_read_both_ways():
    filled = [[[j < length for j in range(4)] for _ in range(4)] for length in (4, 2)]
    assert dense(mask_of(CELL, BOTH_WAYS, SHORT)) == filled
    both = mask_of(replace(CELL, control="window"), BOTH_WAYS, SHORT)
    expected = [
        [[abs(i - j) < 2 and j < length for j in range(4)] for i in range(4)] for length in (4, 2)
    ]
    assert dense(both) == expected


def test_random_positions_are_in_order_below_the_bound_and_each_once():
    rows = draw_positions(replace(CELL, positions="random 30"), (200, 8), Random(1)).tolist()
    assert all(row == sorted({*row}) and len(row) == 8 and 0 <= row[0] for row in rows)
    assert {x for row in rows for x in row} == {*range(30)}


def test_shuffled_positions_are_those_of_the_text_in_another_order():
    rows = draw_positions(replace(CELL, control="shuffled"), (50, 6), Random(1)).tolist()
    assert all(sorted(row) == [*range(6)] for row in rows)
    assert len({*map(tuple, rows)}) > 40


def test_plain_positions_are_left_to_the_model():
    assert draw_positions(CELL, (2, 5), Random(1)) is None


def test_too_few_positions_for_a_text_are_refused():
    with refused(ValueError, "`positions`", "'random 4'", 5):
        draw_positions(replace(CELL, positions="random 4"), (1, 5), Random(1))
