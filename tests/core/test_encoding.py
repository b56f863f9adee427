"""The parts of every encoding: hooks, callable forms, sums; against the same steps one by one."""

import pytest
import torch
from refusals import refused
from torch import nn

from posenc.attention.attend import attend
from posenc.attention.scores import scores
from posenc.catalog import CATALOG
from posenc.core.encoding import HOOKS, Encoding, Sum
from posenc.core.positions import folded, sequence
from posenc.encodings.additive.learned import Learned
from posenc.encodings.additive.sinusoidal import Sinusoidal
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.rotary.axial import axial
from posenc.encodings.rotary.rope import RoPE

every = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)


# The base: neutral in every place


def test_a_bare_encoding_changes_nothing():
    bare, x = Encoding(), torch.randn(2, 4, 5, 8)
    at = bare.prepare(sequence(5))
    assert bare.on_embeddings(x, at) is x
    assert bare.on_hidden(x, at) is at
    assert bare.on_queries(x, at) is x
    assert bare.on_keys(x, at) is x
    assert bare.on_scores(x, x, at, at, 1.0) is None
    assert bare.on_values(x, at) is x
    assert bare.by_weight(x, at, at, slice(None)) is None
    assert bare.on_output(x, at) is x
    assert bare.scale(16) == 0.25
    assert attend(x, x, x, bare).equal(attend(x, x, x, NoPE()))


def test_positions_are_checked_even_where_nothing_is_made_of_them():
    assert Encoding().prepare(torch.arange(3, dtype=torch.int16)).dtype == torch.int64
    with refused(TypeError, 256):
        NoPE().prepare(torch.arange(3).bfloat16())


class Late(Encoding):
    def on_keys(self, k, at):
        return k

    def by_weight(self, weights, q_at, k_at, rows):
        return None


class Gated(Encoding):
    def on_hidden(self, x, at):
        return at

    def on_queries(self, q, at):
        return q


class Turns(Encoding):
    def on_values(self, v, at):
        return v

    def on_output(self, out, at):
        return out


@pytest.mark.parametrize(
    ("encoding", "hooks"),
    [
        (NoPE(), ()),
        (Sinusoidal(8), ("on_embeddings",)),
        (RoPE(8), ("on_queries", "on_keys")),
        (ALiBi(4), ("on_scores",)),
        (Shaw(8), ("on_scores", "by_weight")),
        (Late(), ("on_keys", "by_weight")),
        (Sum(), ()),
        (Sum(NoPE(), NoPE()), ()),
        (Gated(), ("on_hidden", "on_queries")),
        (Sum(Shaw(8), Sinusoidal(8), Gated(), Turns(), RoPE(8)), HOOKS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_acts_on_is_read_from_the_code(encoding, hooks):
    assert encoding.acts_on == hooks


@every
def test_state_dict_holds_learned_tensors_only(card):
    encoding = card.make(8, 4)
    encoding.prepare(folded(9, encoding.axes))
    assert set(encoding.state_dict()) == dict(encoding.named_parameters()).keys()
    assert not list(encoding.buffers())
    assert all(p.requires_grad for p in encoding.parameters())


@every
def test_every_encoding_names_itself_on_one_line(card):
    encoding = card.make(8, 4)
    assert repr(encoding).startswith(type(encoding).__name__ + "(")
    assert "\n" not in repr(encoding)


def test_repr_tells_what_matters():
    part = "RoPE(first 4 of 8 channels, base=10000, layout='interleaved')"
    assert repr(RoPE(4, dim=8)) == part
    assert "(0): RoPE(8 channels" in repr(Sum(RoPE(8), ALiBi(4)))


def test_an_encoding_is_a_module_like_any_other():
    model = nn.ModuleDict({"a": T5Bias(4), "b": Sum(Learned(8, 4), RoPE(8))})
    assert set(model.state_dict()) == {"a.weight", "b.parts.0.table"}
    again = nn.ModuleDict({"a": T5Bias(4), "b": Sum(Learned(8, 4), RoPE(8))})
    again.load_state_dict(model.state_dict())
    assert again["a"].weight.equal(model["a"].weight)


# Called by itself


def test_an_additive_encoding_is_called_with_embeddings():
    x, pos, encoding = torch.randn(2, 5, 16), torch.tensor([3, 1, 4, 1, 5]), Sinusoidal(16)
    expected = encoding.on_embeddings(x, encoding.prepare(pos))
    assert encoding(x, pos).equal(expected)
    assert not encoding(x).equal(expected)
    assert encoding(x).equal(encoding(x, sequence(5)))


def test_a_rotary_encoding_is_called_with_queries_and_keys():
    q, k, rope = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), RoPE(8)
    pos = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    at = rope.prepare(pos)
    turned_q, turned_k = rope(q, k, pos)
    assert turned_q.equal(rope.on_queries(q, at))
    assert turned_k.equal(rope.on_keys(k, at))
    by_default, by_name = rope(q, k), rope(q, k, sequence(5))
    assert by_default[0].equal(by_name[0])
    assert by_default[1].equal(by_name[1])


def test_a_bias_is_called_with_positions():
    alibi, q_pos, k_pos = ALiBi(2), torch.tensor([4, 0]), torch.tensor([1, 2, 9])
    expected = -alibi.slopes.view(2, 1, 1) * (q_pos.view(2, 1) - k_pos).abs()
    assert alibi(q_pos, k_pos).shape == (1, 2, 2, 3)
    assert alibi(q_pos, k_pos).equal(expected.unsqueeze(0))
    assert alibi(q_pos).equal(alibi(q_pos, q_pos))


def test_a_bias_of_a_batch_has_its_axis():
    t5, pos = T5Bias(2), torch.tensor([[0, 1, 2], [5, 9, 0]])
    both = t5(pos, sequence(4))
    assert both.shape == (2, 2, 3, 4)
    for row in range(2):
        torch.testing.assert_close(both[row : row + 1], t5(pos[row], sequence(4)))


def test_the_bias_is_what_attention_adds_to_its_scores():
    q, k, pos, encoding = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), sequence(5), T5Bias(2)
    added = scores(encoding, q, k, pos, pos) - scores(NoPE(), q, k, pos, pos)
    torch.testing.assert_close(added, encoding(pos, pos))


def test_a_bias_can_be_learned_through_its_call():
    t5 = T5Bias(2)
    t5(sequence(5)).sum().backward()
    assert t5.weight.grad.sum() == 2 * 5 * 5


def test_points_are_positions_too():
    q, pos, rope = torch.randn(1, 4, 6, 8), folded(6, 2), RoPE(axial(8))
    assert rope(q, q, pos)[0].equal(rope.on_queries(q, rope.prepare(pos)))


def test_says_how_it_is_called(unchecked):
    x = torch.randn(1, 4, 5, 8)
    with refused(TypeError, "RoPE", 1):
        RoPE(8)(x)
    with refused(TypeError, 3):
        Sinusoidal(8)(x, x, x)
    for encoding in (Shaw(8), DeBERTa(8, 4), Sum(ALiBi(4), Shaw(8))):
        name = type(encoding).__name__
        with refused(TypeError, name):
            encoding(sequence(5), sequence(5))


@pytest.mark.parametrize("given", [0, 3])
def test_a_bias_says_how_it_is_called(unchecked, given):
    with refused(TypeError, "ALiBi", "q_pos", given):
        ALiBi(4)(*[sequence(5)] * given)


def test_says_which_positions_do_not_fit(unchecked):
    x, q = torch.randn(1, 5, 8), torch.randn(1, 4, 5, 8)
    with refused(ValueError, "(4, 8)", "`x`", "(5, 8)"):
        Sinusoidal(8)(x, sequence(4))
    with refused(ValueError, "(5, 6)", "`x`", "(5, 8)"):
        Sinusoidal(6)(x)
    with refused(ValueError, 5, 4):
        RoPE(8)(q, q, sequence(4))
    with refused(ValueError, 5, 1, 3):
        RoPE(8)(q, q, sequence(5).expand(3, 5))


def test_rows_of_another_batch_are_refused(unchecked):
    for batch in (1, 2):
        with pytest.raises(ValueError, match="batch"):
            Sinusoidal(8)(torch.randn(batch, 5, 8), sequence(5).expand(3, 5))


def test_what_acts_in_two_places_is_not_called_by_itself(unchecked):
    with refused(TypeError, "Sum", "embeddings, queries and keys", "`SelfAttention`"):
        Sum(Sinusoidal(8), RoPE(8))(torch.randn(1, 3, 8))
    with refused(TypeError, "Gated", "queries and keys, the input of a layer", "`SelfAttention`"):
        Gated()(torch.randn(1, 1, 3, 8), torch.randn(1, 1, 3, 8))


def test_a_models_own_softmax_scale_is_taken_by_attend_and_in_a_sum():
    """Against `scale` given to `attend`."""
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    nope, alibi = NoPE(), ALiBi(2)
    nope.softmax_scale = 0.7
    assert torch.equal(attend(q, k, v, nope), attend(q, k, v, NoPE(), scale=0.7))
    both = attend(q, k, v, Sum(nope, alibi))
    torch.testing.assert_close(both, attend(q, k, v, alibi, scale=0.7))


class Recorder(Encoding):
    """Records the shapes of the positions that its hooks receive."""

    def on_queries(self, q, at):
        self.seen["q"] = tuple(at.shape)
        return q

    def on_scores(self, q, k, q_at, k_at, scale):
        self.seen["scores"] = tuple(q_at.shape), tuple(k_at.shape)
        return -(q_at[..., :, None] - k_at[..., None, :]).abs().to(q.dtype)


class AtPoints(Recorder):
    axes = 2

    def on_scores(self, q, k, q_at, k_at, scale):
        self.seen["scores"] = tuple(q_at.shape), tuple(k_at.shape)


@pytest.mark.parametrize("prepare", [True, False], ids=["prepared", "bare positions"])
@pytest.mark.parametrize(
    ("shape", "expected"), [((5,), (1, 1, 5)), ((2, 5), (2, 1, 5)), ((2, 4, 5), (2, 4, 5))]
)
def test_hooks_receive_positions_of_one_shape(shape, expected, prepare):
    """Whatever the caller passes: for each token, text or head; numbers and points alike."""
    q = torch.randn(2, 4, 5, 8)
    for encoding, trailing in ((Recorder(), ()), (AtPoints(), (2,))):
        encoding.seen, pos = {}, torch.randint(9, (*shape, *trailing))
        attend(q, q, q, encoding, encoding.prepare(pos) if prepare else pos)
        due = (*expected, *trailing)
        assert encoding.seen == {"q": due, "scores": (due, due)}


class Rows(Encoding):
    width = 8

    def on_embeddings(self, x, at):
        self.seen = tuple(at.shape)
        return x + at.unsqueeze(-1)


@pytest.mark.parametrize(("shape", "expected"), [((5,), (1, 5)), ((2, 5), (2, 5))])
def test_what_acts_on_embeddings_receives_positions_without_heads(shape, expected):
    rows, pos, x = Rows(), torch.randint(9, shape), torch.randn(2, 5, 8)
    assert rows(x, pos).equal(x + pos.expand(2, 5).unsqueeze(-1))
    assert rows.seen == expected
