"""Biases of distance against their function, pair by pair."""

import pytest
import torch

from posenc.biases.distance import DistanceBias, looked_up

DIM, HEADS = 4, 2


@pytest.mark.parametrize("shape", [(7,), (3, 7), (3, 1, 7), (3, HEADS, 7), (1, HEADS, 7)], ids=str)
def test_a_table_of_few_offsets_says_what_is_learned_of_each(shape):
    """Against the weights, pair by pair, and so are the gradients of the weights."""
    weight = torch.randn(HEADS, 5, requires_grad=True)
    of_distance = lambda h, apart: weight[h, apart.clamp(-2, 2) + 2]  # noqa: E731
    q_pos, k_pos = torch.randint(9, shape), torch.randint(9, shape)
    bias = DistanceBias(of_distance, torch.zeros(3, HEADS, 7, DIM), q_pos, k_pos, reach=2)
    rows, keys = slice(2, 6), slice(1, 7)
    q, k = (pos.view(len(pos) if pos.ndim > 1 else 1, -1, 7) for pos in (q_pos, k_pos))
    apart = q[..., rows].unsqueeze(-1) - k[..., keys].unsqueeze(-2)
    expected = torch.stack([of_distance(h, apart[:, h % apart.shape[1]]) for h in range(HEADS)], 1)
    out = bias.block(rows, keys)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    pushed = torch.randn_like(out)
    of_out, of_expected = (torch.autograd.grad(x, weight, pushed)[0] for x in (out, expected))
    torch.testing.assert_close(of_out, of_expected)


def test_all_heads_look_up_what_each_looks_up_by_itself():
    """Against one index after another; heads in an order of their own too."""
    table, columns = torch.randn(3, 7), torch.randint(0, 7, (2, 1, 4, 5))
    for h in (torch.arange(3).view(1, 3, 1, 1), torch.tensor(2), torch.tensor([[2], [0]])):
        at = columns if h.ndim == 4 else columns[0, 0, 0]
        found = looked_up(table, h, at)
        heads, places = torch.broadcast_tensors(h, at)
        each = [table[one] for one in zip(heads.flatten(), places.flatten(), strict=True)]
        torch.testing.assert_close(found, torch.stack(each).view(heads.shape))


def test_steps_of_a_bias_are_those_of_its_positions():
    q = torch.randn(1, 2, 3, 4)
    f = lambda h, offset: -offset.abs()  # noqa: E731
    for pos, k_pos, expected in (
        (torch.arange(5, 8), torch.arange(8), (1, 5)),
        (torch.tensor([0, 2, 4]), torch.tensor([1, 3, 5, 7]), (2, -1)),
        (torch.tensor([0, 2, 5]), torch.arange(3), None),
    ):
        assert DistanceBias(f, q, pos, k_pos).steps == expected
