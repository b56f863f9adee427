"""RoPE against the four forms that its texts give, and the rotations of transformers."""

import cmath

import numpy as np
import pytest
import torch
from refusals import refused
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama

from posenc import MRoPE, RoPE, XPos, attend, create, masks, positions, rotate, turn
from posenc.core.frequencies import frequencies
from posenc.encodings.rotary.extension import ntk

FAR = torch.tensor([0, 1, 7, -100, 4095])


def theta(dim):
    return [10_000 ** (-2 * j / dim) for j in range(dim // 2)]


def as_complex(x):
    return np.asarray(x[..., 0::2]) + 1j * np.asarray(x[..., 1::2])


def test_all_forms_of_the_texts_are_the_same():
    x = torch.randn(5, 8, dtype=torch.float64)
    out = rotate(x.view(1, 1, 5, 8), turn(FAR, frequencies(8)), "interleaved")[0, 0]
    for token, p in enumerate(FAR.tolist()):
        x1, x2, x3, x4, x5, x6, x7, x8 = row = x[token].tolist()
        cos = np.repeat([np.cos(p * t) for t in theta(8)], 2)
        sin = np.repeat([np.sin(p * t) for t in theta(8)], 2)
        pairs, sparse, points = [], np.zeros((8, 8)), []
        for j, t in enumerate(theta(8)):
            block = np.array([[np.cos(p * t), -np.sin(p * t)], [np.sin(p * t), np.cos(p * t)]])
            sparse[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = block
            pairs += [*block @ row[2 * j : 2 * j + 2]]
            point = complex(*row[2 * j : 2 * j + 2]) * cmath.exp(1j * p * t)
            points += [point.real, point.imag]
        elementwise = row * cos + np.array([-x2, x1, -x4, x3, -x6, x5, -x8, x7]) * sin
        for form in (pairs, sparse @ row, points, elementwise):
            np.testing.assert_allclose(out[token], form, atol=1e-6)


def test_layouts_differ_by_a_permutation_of_channels():
    x, to_half = torch.randn(2, 3, 5, 8), [0, 2, 4, 6, 1, 3, 5, 7]
    interleaved, half = (RoPE(8, layout=name) for name in ("interleaved", "half"))
    made, expected = half(x[..., to_half], x, FAR)[0], interleaved(x, x, FAR)[0][..., to_half]
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)  # but for the last bit


def test_equals_the_rotations_of_transformers():
    q, k = torch.randn(2, 2, 3, 5, 16).unbind()
    angle = FAR[:, None] * torch.tensor(theta(16), dtype=torch.float64)
    cos, sin = angle.cos().float()[None], angle.sin().float()[None]
    expected = llama(q, k, torch.cat((cos, cos), -1), torch.cat((sin, sin), -1))
    torch.testing.assert_close(RoPE(16, layout="half")(q, k, FAR), expected)
    expected = gptj(q.transpose(1, 2), sin, cos).transpose(1, 2)
    torch.testing.assert_close(RoPE(16)(q, k, FAR)[0], expected)


def test_partial_turns_the_first_channels_and_leaves_the_rest_alone():
    q, k = torch.randn(2, 2, 3, 5, 16).unbind()
    part = RoPE(4, dim=16, layout="half")(q, k, FAR)
    assert part[0][..., 4:].equal(q[..., 4:])
    assert part[0][..., :4].equal(RoPE(4, layout="half")(q[..., :4], k[..., :4], FAR)[0])
    angle = FAR[:, None] * torch.tensor(theta(4) * 2, dtype=torch.float64)
    expected = neox(q, k, angle.cos().float()[None], angle.sin().float()[None])
    torch.testing.assert_close(part, expected)


def test_rotated_keys_can_be_cached():
    rope, k = RoPE(8), torch.randn(1, 2, 6, 8)
    whole = rope.on_keys(k, rope.prepare(torch.arange(6)))
    tail = rope.on_keys(k[..., 4:, :], rope.prepare(torch.arange(4, 6)))
    assert whole[..., 4:, :].equal(tail)


def test_packed_texts_are_turned_as_if_separate():
    rope, (q, k, v) = RoPE(8), torch.randn(3, 1, 2, 7, 8).unbind()
    at = rope.prepare(positions.packed([4, 3]))
    alone = masks.documents(positions.documents([4, 3]))
    packed = attend(q, k, v, rope, at, mask=alone)
    for text in (slice(0, 4), slice(4, 7)):
        one = q[..., text, :], k[..., text, :], v[..., text, :]
        torch.testing.assert_close(packed[..., text, :], attend(*one, rope))
    assert rope.on_keys(k, at)[..., 4:, :].equal(
        rope.on_keys(k[..., 4:, :], rope.prepare(torch.arange(3)))
    )


def test_each_text_of_a_batch_may_stand_at_positions_of_its_own():
    q, pos = torch.randn(2, 3, 5, 8), torch.stack((FAR, FAR.flip(0)))
    both = RoPE(8)(q, q, pos)[0]
    for text in range(2):
        assert both[text].equal(RoPE(8)(q[text : text + 1], q[:1], pos[text])[0][0])


def test_gain_scales_queries_and_keys():
    q, k = torch.randn(2, 1, 2, 5, 8).unbind()
    plain, loud = RoPE(8)(q, k, FAR), RoPE(8, gain=1.25)(q, k, FAR)
    for a, b in zip(plain, loud, strict=True):
        torch.testing.assert_close(1.25 * a, b)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_point_turns_by_the_sum_over_its_axes(axes):
    freqs = torch.rand(axes, 4, dtype=torch.float64)
    pos, x = torch.randint(-9, 9, (5, axes)), torch.randn(1, 1, 5, 8, dtype=torch.float64)
    by_points = RoPE(freqs)(x, x, pos)[0][0, 0]
    for token in range(5):
        angle = sum(pos[token, a].item() * freqs[a].numpy() for a in range(axes))
        expected = as_complex(x[0, 0, token]) * np.exp(1j * angle)
        np.testing.assert_allclose(as_complex(by_points[token]), expected, atol=1e-6)
    assert RoPE(freqs).axes == axes


def test_a_key_turned_beforehand_is_found_that_far_away():
    rope, q, keys_at = RoPE(64), torch.randn(1, 1, 1, 64), torch.arange(2001)
    key = rope.on_keys(q, rope.prepare(torch.tensor([777])))
    keys = rope.on_keys(key.expand(1, 1, 2001, 64), rope.prepare(keys_at))
    query = rope.on_queries(q, rope.prepare(torch.tensor([2000])))
    assert (query @ keys.mT).argmax() == 2000 - 777


def test_ones_see_each_other_less_the_further_apart():
    ones = torch.ones(1, 1, 2, 64)
    query, key = RoPE(64)(ones, ones, torch.tensor([0, 1000]))
    assert (query @ key.mT)[0, 0, 0].tolist() == pytest.approx([64.0, 17.9], abs=0.05)


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        (["`dim`", 2, 7], lambda q: RoPE(7)),
        ([16, "`dim`", 8], lambda q: RoPE(16, dim=8)),
        (["'interleaved'", "'half'", "'neox'"], lambda q: RoPE(8, layout="neox")),
        ([16, 8], lambda q: RoPE(16)(q, q)),
        ([16, 8], lambda q: RoPE(8, dim=16)(q, q)),
        ([6, "`x`", 8], lambda q: rotate(q, turn(FAR, frequencies(6)), "half")),
        ([5, 2, 1], lambda q: RoPE(8)(q, q, FAR[:1])),
        (
            [5, 2, 6],
            lambda q: RoPE(8)(q, q, FAR.repeat(2)[:6]),
        ),
        ([2, 3], lambda q: RoPE(8)(q, q, FAR.expand(3, 5))),
        ([2, "`pos`"], lambda q: RoPE(torch.ones(2, 4))(q, q, FAR)),
    ],
)
def test_says_what_does_not_fit(says, wrong, unchecked):
    with refused(ValueError, *says):
        wrong(torch.randn(2, 3, 5, 8))


@pytest.mark.parametrize("make", [RoPE, XPos])
def test_a_base_is_that_of_the_frequencies(make):
    theta = 500_000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    assert make(8, base=500_000).freqs.allclose(theta, rtol=1e-12)
    assert make(8).freqs.equal(frequencies(8, 10_000.0))


@pytest.mark.parametrize("make", [RoPE, XPos])
def test_a_base_of_frequencies_that_are_made_is_refused(make):
    with refused(ValueError, "`base`", "`RoPE(64, base=5.0)`"):
        make(frequencies(8), base=5.0)


@pytest.mark.parametrize(
    "name", ["rope", "xpos", "p-rope", "axial-rope", "axial-rope-3-d", "m-rope"]
)
def test_every_rotation_by_powers_takes_a_base_and_says_it(name):
    assert "base=250000" in repr(create(name, dim=48, heads=2, base=250_000))
    assert "base=10000," in repr(create(name, dim=48, heads=2))


def test_frequencies_that_are_no_powers_say_no_base():
    assert "base" not in repr(RoPE(torch.tensor([1.0, 0.3, 0.2], dtype=torch.float64)))
    assert "base" not in repr(RoPE(ntk(frequencies(8), 4.0) * 0.9))


def keys(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(0)).to(dtype)


MOVABLE = {
    "half": RoPE(16, layout="half"),
    "trailing, with a gain": RoPE(8, dim=16, trailing=True, gain=1.3),
    "m-rope": MRoPE(16, sections=(2, 3, 3)),
}
EACH = torch.tensor([[3], [-40]]) + torch.arange(5)


@pytest.mark.parametrize("name", MOVABLE)
@pytest.mark.parametrize("by", [7, -3, 2.5, EACH])
def test_moved_keys_are_those_of_later_positions(name, by):
    """The same keys, rotated by the sums of positions at once."""
    rope, at = MOVABLE[name], torch.arange(5)
    by = torch.as_tensor(by)
    if rope.axes > 1:
        at, by = torch.stack([at, at * 2, at + 9], -1), torch.stack([by, -by, 2 * by], -1)
        whole = at + by
    else:
        whole = at + by
    moved = rope.moved(rope.on_keys(keys(), rope.prepare(at)), by)
    expected = rope.on_keys(keys(), rope.prepare(whole))
    torch.testing.assert_close(moved, expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("dtype", "epsilon"), [(torch.bfloat16, 2**-7), (torch.float16, 2**-10)])
def test_each_move_in_16_bits_adds_an_error_of_at_most_half_an_epsilon(dtype, epsilon):
    """The moved keys against the stored ones, rotated in float64 as complex numbers."""
    rope = RoPE(16)
    stored = rope.on_keys(keys(dtype), rope.prepare(torch.arange(5)))
    moved, turned = (
        stored,
        torch.view_as_complex(stored.double().unflatten(-1, (8, 2)).contiguous()),
    )
    for number in range(1, 9):
        moved = rope.moved(moved, 1001)
        exact = turned * torch.exp(1j * number * 1001 * torch.tensor(theta(16)))
        error = (torch.view_as_complex(moved.double().unflatten(-1, (8, 2))) - exact).norm(dim=-1)
        assert (error <= number * 1.01 * epsilon / 2 * turned.norm(dim=-1)).all()
        assert error.max() > 0


def test_moving_keys_of_another_size_is_refused():
    with refused(ValueError, "`keys`", "16 channels", "got 8"):
        RoPE(16).moved(torch.zeros(1, 1, 2, 8), 3)
    with refused(ValueError, "3 axes", "(2,)"):
        MOVABLE["m-rope"].moved(keys(), torch.tensor([3, 4]))


def test_one_number_moves_points_on_all_axes():
    """Text after a picture that is cut from a cache: its ids are equal on all axes."""
    rope = MOVABLE["m-rope"]
    alike, each = rope.moved(keys(), 7), rope.moved(keys(), torch.tensor([7, 7, 7]))
    torch.testing.assert_close(alike, each)
    later = rope.prepare(torch.full((5, 3), 7))
    torch.testing.assert_close(alike, rope.on_keys(keys(), later))
