"""Positions against lists written out by hand."""

from itertools import product

import pytest
import torch
from refusals import refused

from posenc import positions
from posenc.core.positions import (
    arithmetic_progression,
    common_step,
    exact,
    folded,
    grid,
    packed,
    padded,
    sequence,
)


def test_a_sequence_counts_on_from_its_start():
    assert sequence(3).tolist() == [0, 1, 2]
    assert sequence(2, start=7).tolist() == [7, 8]
    assert sequence(2, start=-1).tolist() == [-1, 0]
    assert sequence(0).tolist() == []
    assert sequence(3, device="meta").device.type == "meta"
    assert sequence(3).dtype == torch.int64


def test_packed_documents_are_each_counted_from_0():
    assert packed([3, 0, 2]).tolist() == [0, 1, 2, 0, 1]
    assert positions.documents([3, 0, 2]).tolist() == [0, 0, 0, 2, 2]


@pytest.mark.parametrize(
    ("side", "tokens", "expected"),
    [
        ("right", None, [[0, 1, 2], [0, 0, 0]]),
        ("left", None, [[0, 1, 2], [0, 0, 0]]),
        ("right", 4, [[0, 1, 2, 0], [0, 0, 0, 0]]),
        ("left", 4, [[0, 0, 1, 2], [0, 0, 0, 0]]),
    ],
)
def test_padded_texts_count_their_own_tokens(side, tokens, expected):
    assert padded([3, 1], side, tokens).tolist() == expected


def test_a_grid_is_walked_row_by_row():
    assert grid(2, 3).tolist() == [[y, x] for y in range(2) for x in range(3)]
    assert grid(2, 1, 2).tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]
    assert grid(3).tolist() == [[0], [1], [2]]
    assert grid(0, 2).shape == (0, 2)


def test_a_folded_sequence_fills_a_square_or_a_cube():
    assert folded(4, axes=1).tolist() == [0, 1, 2, 3]
    assert folded(9, axes=2).tolist() == grid(3, 3).tolist()
    assert folded(28, axes=3).tolist() == grid(4, 4, 4)[:28].tolist()
    assert folded(27, axes=3).tolist() == grid(3, 3, 3).tolist()


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["int", "uint"])
def test_integers_of_any_width_become_int64(kind, width):
    pos = torch.tensor([0, 100], dtype=getattr(torch, f"{kind}{width}"))
    torch.testing.assert_close(exact(pos), torch.tensor([0, 100]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fractions_stay_as_they_are(dtype):
    times = torch.tensor([0.5, -2.25], dtype=dtype)
    assert exact(times) is times


def test_positions_that_cannot_count_are_refused():
    with refused(TypeError, "bfloat16", 256):
        exact(torch.arange(3).bfloat16())
    with refused(TypeError, "float16", 2048):
        exact(torch.arange(3).half())
    with refused(TypeError, "`mask.cumsum(-1)`"):
        exact(torch.ones(3, dtype=torch.bool))


def test_says_what_does_not_fit(unchecked):
    with refused(ValueError, "'left'", "'right'", "'top'"):
        padded([1], side="top")
    with refused(ValueError, 5, "`tokens`", 4):
        padded([2, 5], tokens=4)


@pytest.mark.parametrize(
    ("pos", "expected"),
    [
        ([3, 4, 5], (3, 1)),
        ([3, 7, 11], (3, 4)),
        ([[3, 4], [3, 4]], (3, 1)),
        ([9], (9, 0)),
        ([3, 3, 3], None),
        ([5, 4, 3], None),
        ([3, 4, 6], None),
        ([[3, 4], [4, 5]], None),
        ([0.0, 1.0], None),
        ([], None),
    ],
)
def test_a_line_has_one_step(pos, expected):
    assert arithmetic_progression(torch.tensor(pos)) == expected


def test_a_single_token_goes_with_any_step():
    assert common_step(torch.tensor([12]), 3 * sequence(4)) == (3, 12)
    assert common_step(3 * sequence(4), torch.tensor([12])) == (3, -12)
    assert common_step(torch.tensor([2]), torch.tensor([5])) == (1, -3)
    assert common_step(2 * sequence(4), 3 * sequence(4)) is None


def test_offsets_are_a_line_of_indices_wherever_one_is_found():
    """Against the offsets of all pairs, of positions that differ in start, step and number."""
    i, j = torch.arange(4).unsqueeze(-1), torch.arange(5)
    for start, step, k_start, k_step in product((-3, 0, 7), (1, 2, 3), (0, 2**40), (1, 2)):
        q_pos, k_pos = start + step * torch.arange(4), k_start + k_step * torch.arange(5)
        found = common_step(q_pos, k_pos)
        assert (found is not None) == (step == k_step)
        if found is not None:
            expected = q_pos.unsqueeze(-1) - k_pos
            torch.testing.assert_close(found[0] * (i - j) + found[1], expected, rtol=0, atol=0)


def test_positions_that_cannot_be_read_are_no_line():
    assert common_step(sequence(3, device="meta"), sequence(3)) is None


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_randomised_positions_are_drawn_from_all_in_order():
    drawn = [positions.randomised(3, 7, seeded(seed)).tolist() for seed in range(200)]
    assert all(pos == sorted({*pos}) and len(pos) == 3 for pos in drawn)
    assert {place for pos in drawn for place in pos} == {*range(7)}
    assert positions.randomised(5, 5).tolist() == [0, 1, 2, 3, 4]
    assert positions.randomised(0, 5).tolist() == []


def test_skipped_positions_leap_once_and_reach_all_offsets():
    """Like `train_preprocess_function_pose`: 1 … (n + 1) // 2 tokens stay, the rest move by u."""
    drawn = [positions.skipped(5, 9, seeded(seed)).tolist() for seed in range(400)]
    possible = [
        [*range(first), *range(first + u, 5 + u)] for first in (1, 2, 3) for u in range(9 - 5 + 1)
    ]
    assert {*map(tuple, drawn)} == {*map(tuple, possible)}
    assert positions.skipped(0, 5).tolist() == []


def test_each_text_is_moved_by_its_own_number():
    pos = torch.tensor([[0, 1, 2], [5, 6, 9]])
    moves = [(positions.moved(pos, 4, seeded(seed)) - pos).tolist() for seed in range(200)]
    assert all(len({*row}) == 1 for move in moves for row in move)
    assert {(a[0], b[0]) for a, b in moves} == set(product(range(4), repeat=2))
    assert (positions.moved(sequence(3), 4, seeded()) - sequence(3)).diff().eq(0).all()


def test_more_tokens_than_positions_are_refused():
    for draw in (positions.randomised, positions.skipped):
        with pytest.raises(
            ValueError, match=r"`most` must be at least `tokens`, got 3 .* 4 tokens"
        ):
            draw(4, 3)
