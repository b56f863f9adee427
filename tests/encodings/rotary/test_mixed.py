"""RoPE-Mixed against complex numbers, axial RoPE, and finite differences of its learned θ."""

import math

import pytest
import torch
from refusals import refused

from posenc import Mixed, RoPE, SelfAttention, attend, axial, masks, positions
from posenc.core.frequencies import frequencies

POINTS = positions.grid(2, 3)


def as_complex(x):
    return torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())


def turned(x, theta, points):
    """The definition, one number at a time; `theta` is (axis, head, pair)."""
    out = as_complex(x).clone()
    for text, head, token, pair in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        row, column = points[token].tolist()
        angle = row * theta[0, head, pair].item() + column * theta[1, head, pair].item()
        out[text, head, token, pair] *= complex(math.cos(angle), math.sin(angle))
    return torch.view_as_real(out).flatten(-2).float()


def test_each_head_turns_by_its_own_angles():
    encoding, (q, k) = Mixed(8, heads=3), torch.randn(2, 2, 3, 6, 8).unbind()
    torch.nn.init.normal_(encoding.freqs)
    made_q, made_k = encoding(q, k, POINTS)
    torch.testing.assert_close(made_q, turned(q, encoding.freqs, POINTS))
    torch.testing.assert_close(made_k, turned(k, encoding.freqs, POINTS))


def test_heads_that_turn_alike_are_rope_with_a_matrix():
    q = torch.randn(2, 3, 6, 8)
    theta = torch.rand(2, 4)
    for layout in ("interleaved", "half"):
        encoding = Mixed(8, heads=3, layout=layout)
        encoding.freqs.data = theta.unsqueeze(1).repeat(1, 3, 1)
        made, expected = encoding(q, q, POINTS)[0], RoPE(theta, layout=layout)(q, q, POINTS)[0]
        torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)  # but for the last bit


def test_begins_with_a_random_direction_for_each_head_and_the_one_across():
    row, column = Mixed(16, heads=50).freqs.detach()
    speed = torch.tensor([10 ** (-4 * j / 16) for j in range(4)])
    torch.testing.assert_close((row**2 + column**2).sqrt(), speed.repeat(2).expand(50, 8))
    along, across = (torch.atan2(column[:, half], row[:, half]) for half in (slice(4), slice(4, 8)))
    turn = 2 * math.pi
    torch.testing.assert_close(along, along[:, :1].expand(50, 4))
    torch.testing.assert_close((across - along) % turn, torch.full((50, 4), turn / 4))
    spread = (along[:, 0] % turn).sort().values
    assert spread[0] < 0.6
    assert spread[-1] > turn - 0.6
    assert spread.diff().max() < 1.0


def test_a_head_that_looks_along_the_rows_begins_as_axial_rope(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.zeros(*shape))
    theta = Mixed(16, heads=1, base=7.0).freqs[:, 0]
    torch.testing.assert_close(theta.double(), axial(16, base=7.0), rtol=0, atol=1e-7)


def test_the_first_axis_of_the_authors_is_the_column():
    encoding, q = Mixed(8, heads=2), torch.randn(1, 2, 6, 8)
    of_authors = encoding.freqs.detach().flip(0)  # (x and y, head, pair)
    t = torch.arange(6)
    x, y = t % 3, t // 3  # a page of two lines, three columns
    angle = x[:, None] * of_authors[0][:, None] + y[:, None] * of_authors[1][:, None]
    expected = as_complex(q) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(as_complex(encoding(q, q, POINTS)[0]), expected.to(torch.complex128))


def test_scores_depend_on_the_offset_along_each_axis_only():
    encoding, (q, k) = Mixed(16, heads=4), torch.randn(2, 1, 4, 6, 16).unbind()
    here, there = (encoding(q, k, POINTS + shift) for shift in (0, torch.tensor([500, 3000])))
    torch.testing.assert_close(here[0] @ here[1].mT, there[0] @ there[1].mT, rtol=0, atol=1e-4)


def test_images_of_a_batch_may_stand_at_points_of_their_own():
    encoding, q = Mixed(8, heads=3), torch.randn(2, 3, 6, 8)
    both = encoding(q, q, torch.stack((POINTS, 5 * POINTS)))[0]
    assert both[0].equal(encoding(q[:1], q[:1], POINTS)[0][0])
    assert both[1].equal(encoding(q[1:], q[1:], 5 * POINTS)[0][0])


def test_shared_keys_are_turned_for_every_head_that_shares_them():
    encoding, q = Mixed(8, heads=6), torch.randn(2, 6, 6, 8)
    k, v = torch.randn(2, 2, 3, 6, 8).unbind()
    at = encoding.prepare(POINTS)
    assert encoding.on_keys(k, at).equal(encoding.on_keys(k.repeat_interleave(2, 1), at))
    each = [x.repeat_interleave(2, 1) for x in (k, v)]
    for path in ("reference", "sdpa", "blocks"):
        made = attend(q, k, v, encoding, at, mask=masks.causal(), implementation=path)
        expected = attend(q, *each, encoding, at, mask=masks.causal(), implementation=path)
        torch.testing.assert_close(made, expected)


def test_rotated_keys_can_be_cached():
    encoding, k = Mixed(8, heads=2), torch.randn(1, 2, 6, 8)
    whole = encoding.on_keys(k, encoding.prepare(POINTS))
    assert whole[..., 4:, :].equal(encoding.on_keys(k[..., 4:, :], encoding.prepare(POINTS[4:])))


def test_learned_theta_gets_the_gradient_of_finite_differences():
    encoding, (q, k) = Mixed(4, heads=2).double(), torch.randn(2, 1, 2, 6, 4).double().unbind()
    like = encoding.freqs.detach().clone().requires_grad_()

    def made(theta):
        return torch.func.functional_call(encoding, {"freqs": theta}, (q, k, POINTS))

    assert torch.autograd.gradcheck(made, like, eps=1e-3, atol=1e-3)  # the table is in float32


def test_training_finds_the_direction_of_the_data():
    """Queries must attend two cells down, which only a trained θ can express."""
    encoding, cells = Mixed(8, heads=1), positions.grid(5, 5)
    layer_q = torch.randn(1, 1, 1, 8)
    down = (cells[:, None] - cells == torch.tensor([2, 0])).all(-1)
    step = torch.optim.Adam(encoding.parameters(), 0.05)
    losses = []
    for _ in range(60):
        q, k = encoding(layer_q.expand(1, 1, 25, 8), layer_q.expand(1, 1, 25, 8), cells)
        loss = -(q @ k.mT).log_softmax(-1)[0, 0][down].mean()
        losses.append(loss.item())
        step.zero_grad()
        loss.backward()
        step.step()
    assert losses[-1] < losses[0] - 0.1


def test_is_learned_and_saved():
    encoding, again = Mixed(8, heads=2), Mixed(8, heads=2)
    assert not encoding.freqs.equal(again.freqs)
    again.load_state_dict(encoding.state_dict())
    assert list(encoding.state_dict()) == ["freqs"]
    q = torch.randn(1, 2, 6, 8)
    assert again(q, q, POINTS)[0].equal(encoding(q, q, POINTS)[0])
    assert encoding.freqs.dtype == torch.float32


def test_trains_within_a_layer_with_grouped_heads():
    layer = SelfAttention(32, heads=4, encoding=Mixed(8, heads=4), groups=2)
    layer(torch.randn(2, 6, 32), POINTS).square().sum().backward()
    assert layer.encoding.freqs.grad.abs().amin((0, 2)).min() > 0


@pytest.mark.parametrize("dim", [2, 6, 0])
def test_says_how_many_channels_it_needs(dim):
    with refused(ValueError, "`dim`", 4, dim):
        Mixed(dim, heads=2)


def test_says_which_heads_do_not_fit(unchecked):
    encoding = Mixed(8, heads=4)
    at = encoding.prepare(POINTS)
    for given in (1, 3, 8):
        with refused(ValueError, 4, "`x`", given):
            encoding.on_queries(torch.randn(1, given, 6, 8), at)
    for given in (3, 8):
        with refused(ValueError, 4, "`x`", given):
            encoding.on_keys(torch.randn(1, given, 6, 8), at)


def test_takes_points_only(unchecked):
    with refused(ValueError, 2, "`pos`"):
        Mixed(8, heads=2).prepare(torch.arange(6))


def test_speeds_are_those_of_the_axial_form():
    assert Mixed(8, 1).freqs.norm(dim=0)[0, :2].tolist() == pytest.approx(
        frequencies(4, 10.0).tolist()
    )
