"""Turned values and outputs against sums of complex numbers in float64, on every path."""

import math
from itertools import product

import pytest
import torch
from refusals import refused

from posenc import masks
from posenc.attention.attend import attend
from posenc.core.encoding import Encoding, Sum
from posenc.core.frequencies import frequencies
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL
from posenc.encodings.rotary.rope import RoPE

DIM, HEADS, CHANNELS = 8, 4, 6


class TurnedValues(Encoding):
    """VO-RoPE: values turned by where keys stand, the output turned back by where queries do."""

    def __init__(self, channels=CHANNELS):
        super().__init__()
        self.turn = RoPE(channels)

    def on_values(self, v, at):
        return self.turn.on_keys(v, self.turn.prepare(at))

    def on_output(self, out, at):
        return self.turn.on_queries(out, self.turn.prepare(-at))


class Doubled(Encoding):
    """Doubles values, and adds 1 to the output: the order in which outputs are turned shows."""

    def on_values(self, v, at):
        return 2 * v

    def on_output(self, out, at):
        return out + 1


def heads(heads, tokens, channels=DIM):
    return torch.randn(2, heads, tokens, channels, dtype=torch.float64)


def turned(weights, v, q_pos, k_pos):
    """Σ weight · exp(i (pⱼ − pᵢ) θ) vⱼ, with neighbouring channels as one complex number."""
    z = torch.view_as_complex(v.unflatten(-1, (-1, 2)))  # (batch, head, key, pair)
    angle = (k_pos - q_pos.unsqueeze(-1)).unsqueeze(-1) * frequencies(v.shape[-1])
    out = torch.einsum("bhij,bhjp,ijp->bhip", weights.to(z.dtype), z, torch.exp(1j * angle))
    return torch.view_as_real(out).flatten(-2)


def weights_of(encoding, q, k, *options):
    """Return the attention weight of each key, using one-hot values."""
    one_hot = torch.eye(k.shape[2], dtype=q.dtype).expand(*k.shape[:3], -1)
    return attend(q, k, one_hot, encoding, *options, implementation="reference")


CASES = {  # queries, keys, mask
    "everything": (torch.arange(5), torch.arange(5), None),
    "causal": (torch.arange(6), torch.arange(6), masks.causal()),
    "window": (torch.arange(150), torch.arange(150), masks.causal() & masks.window(9)),
    "cached keys": (
        *(torch.tensor([7]), torch.arange(8)),
        masks.causal(torch.tensor([7]), torch.arange(8)),
    ),
    "some unseen": (torch.tensor([3, 1, 9]), torch.tensor([4, 1, 2, 0]), masks.padding([4, 2])),
}
BESIDE = {
    "nothing": NoPE,
    "a rotation": lambda: RoPE(DIM),
    "a bias": lambda: ALiBi(HEADS),
    "a learned bias": lambda: T5Bias(HEADS),
    "rows of a table": lambda: TransformerXL(DIM, HEADS),
}


def carries(path, case, beside):
    if path == "sdpa":  # torch's own kernel
        return beside in ("nothing", "a rotation")
    band = case != "some unseen" and beside in ("nothing", "a rotation", "a bias")
    return band or path != "toeplitz"


PATHS = ("auto", "reference", "blocks", "sdpa", "toeplitz")
SERVED = [some for some in product(PATHS, CASES, BESIDE) if carries(*some)]


@pytest.mark.parametrize(("path", "case", "beside"), SERVED)
def test_turned_values_are_turned_by_the_offset(path, case, beside):
    q_pos, k_pos, mask = CASES[case]
    if case == "some unseen":
        mask = masks.padding([4, 2], tokens=4) & masks.Mask(lambda b, h, i, j: b + i + j < 4)
    other = BESIDE[beside]().double()
    q, k, v = heads(HEADS, len(q_pos)), heads(2, len(k_pos)), heads(2, len(k_pos), CHANNELS)
    leaves = [q, k, v]
    for x in leaves:
        x.requires_grad_()
    weights = weights_of(other, q, k, q_pos, k_pos, mask)
    expected = turned(weights, v.repeat_interleave(2, 1), q_pos, k_pos)
    out = attend(q, k, v, Sum(other, TurnedValues()), q_pos, k_pos, mask, implementation=path)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
    grad = heads(HEADS, len(q_pos), CHANNELS)
    found, true = (torch.autograd.grad((x * grad).sum(), leaves) for x in (out, expected))
    torch.testing.assert_close(found, true, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 40])
def test_turned_values_without_gradients_take_the_fast_paths_too(tokens):
    q_pos, k_pos = torch.arange(300 - tokens, 300), torch.arange(300)
    mask = masks.causal(q_pos, k_pos)
    for make in BESIDE.values():
        other = make().double()
        with torch.no_grad():
            q, k, v = heads(HEADS, tokens), heads(2, 300), heads(2, 300, CHANNELS)
            weights = weights_of(other, q, k, q_pos, k_pos, mask)
            out = attend(q, k, v, Sum(other, TurnedValues()), q_pos, k_pos, mask)
        expected = turned(weights, v.repeat_interleave(2, 1), q_pos, k_pos)
        torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


def test_what_is_added_by_weight_is_turned_with_the_output():
    q, v, pos = heads(HEADS, 5), heads(HEADS, 5), torch.arange(5)
    shaw, turn = Shaw(DIM).double(), TurnedValues(DIM)
    expected = turn.on_output(attend(q, q, turn.on_values(v, pos), shaw), pos)
    torch.testing.assert_close(attend(q, q, v, Sum(turn, shaw)), expected)


def test_a_query_that_sees_nothing_has_an_output_of_zero():
    q, v = heads(HEADS, 3), heads(HEADS, 3, CHANNELS)
    out = attend(q, q, v, TurnedValues(), mask=masks.padding([3, 0]))
    assert out[1].eq(0).all()
    assert out[0].ne(0).all()


def test_a_sum_turns_back_first_what_was_turned_last():
    q, v, turn, twice = heads(HEADS, 4), heads(HEADS, 4, CHANNELS), TurnedValues(), Doubled()
    pos, whole = torch.arange(4), Sum(turn, NoPE(), twice)
    assert whole.acts_on == ("on_values", "on_output")
    plain = attend(q, q, 2 * turn.on_values(v, pos), NoPE())
    torch.testing.assert_close(attend(q, q, v, whole), turn.on_output(plain + 1, pos))


def test_called_by_itself_it_says_where_it_belongs():
    q = heads(HEADS, 3)
    with refused(TypeError, "TurnedValues"):
        TurnedValues()(q, q)
    with pytest.raises(TypeError, match="acts on queries and keys, values and output"):
        Sum(RoPE(DIM), TurnedValues())(q, q)


def test_values_may_be_given_more_heads_than_keys():
    class PerHead(Encoding):
        def on_values(self, v, at):
            return v.repeat_interleave(2, 1) * torch.arange(1, 5).view(1, 4, 1, 1)

    q, k, v = heads(HEADS, 3), heads(2, 3), heads(2, 3)
    factor = torch.arange(1, 5).view(1, 4, 1, 1)
    for path in ("reference", "sdpa", "toeplitz", "blocks"):
        out = attend(q, k, v, PerHead(), implementation=path)
        torch.testing.assert_close(out, attend(q, k, v, NoPE()) * factor)


def test_the_scale_of_angles_is_radians_per_token():
    """Half a turn on the first pair: the value comes back with its sign changed."""
    turn = TurnedValues(2)
    turn.turn = RoPE(torch.tensor([math.pi]))
    v = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64).view(1, 1, 2, 2)
    q = torch.tensor([[0.0], [0.0]], dtype=torch.float64).view(1, 1, 2, 1)
    only_other = masks.Mask(lambda b, h, i, j: i != j)
    out = attend(q, q, v, turn, mask=only_other)
    torch.testing.assert_close(out, -v.flip(2), rtol=1e-6, atol=1e-6)
