"""A layer of attention against its steps done one by one, and against torch's own layer."""

import pytest
import torch
from refusals import refused
from torch import nn

from posenc import masks
from posenc.attention.attend import attend
from posenc.attention.block import Block
from posenc.attention.layer import SelfAttention
from posenc.catalog import CATALOG, create
from posenc.core.encoding import Sum
from posenc.core.positions import folded, sequence
from posenc.encodings.additive.sinusoidal import Sinusoidal
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.nope import NoPE
from posenc.encodings.rotary.rope import RoPE

every = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)


def test_without_positions_it_is_the_layer_of_torch():
    ours, theirs = SelfAttention(32, 4, NoPE()), nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([to.weight for to in (ours.q, ours.k, ours.v)]))
        theirs.in_proj_bias.copy_(torch.cat([to.bias for to in (ours.q, ours.k, ours.v)]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    x, ahead = torch.randn(2, 5, 32), torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0])
    torch.testing.assert_close(ours(x, mask=masks.causal()), theirs(x, x, x, attn_mask=ahead)[0])


@every
def test_a_layer_is_project_encode_attend_project(card):
    layer = SelfAttention(32, 4, card.make(8, 4))
    x, pos, encoding = torch.randn(2, 5, 32), folded(5, layer.encoding.axes), layer.encoding
    at = encoding.prepare(pos)
    embedded = encoding.on_embeddings(x, at)
    q, k, v = (torch.stack(to(embedded).split(8, -1), 1) for to in (layer.q, layer.k, layer.v))
    at = encoding.on_hidden(embedded, at)
    made = attend(q, k, v, encoding, at, mask=masks.causal())
    expected = layer.out(torch.cat(made.unbind(1), -1))
    torch.testing.assert_close(layer(x, pos, masks.causal()), expected)


@every
def test_every_parameter_gets_a_gradient(card):
    layer = SelfAttention(32, 4, card.make(8, 4), groups=2)
    x, pos = torch.randn(2, 5, 32), folded(5, layer.encoding.axes)
    layer(x, pos, masks.causal()).square().sum().backward()
    for name, parameter in layer.named_parameters():
        if name != "k.bias":  # adds the same to all scores of a query, unless positions differ
            assert parameter.grad.abs().max() > 1e-6, name


@every
def test_gradients_by_torch_func_are_those_of_backward(card):
    tokens = 140  # in blocks, which backward makes again
    layer = SelfAttention(32, 4, card.make(8, 4))
    x, pos = torch.randn(2, tokens, 32), folded(tokens, layer.encoding.axes)
    weights = torch.randn(2, tokens, 32)

    def loss(parameters):
        out = torch.func.functional_call(layer, parameters, (x, pos, masks.causal()))
        return (weights * out).sum()

    own = dict(layer.named_parameters())
    made = torch.func.grad(loss)(own)
    expected = torch.autograd.grad(loss(own), list(own.values()))
    for name, of_backward in zip(own, expected, strict=True):
        torch.testing.assert_close(made[name], of_backward, rtol=1e-3, atol=2e-4)


@every
@pytest.mark.parametrize("tokens", [5, 140])
def test_nothing_is_made_on_a_default_device_that_the_inputs_are_not_on(card, tokens):
    """The meta device takes the place of a GPU: tensors made there have no values, or fail."""
    layer = SelfAttention(32, 4, card.make(8, 4))
    x, pos = torch.randn(2, tokens, 32), folded(tokens, layer.encoding.axes)
    results = []
    for device in ("cpu", "meta"):
        layer.zero_grad()
        with torch.device(device):
            given = pos if layer.encoding.axes > 1 else None
            with torch.no_grad():
                results.append([layer(x, given, masks.causal())])
                results[-1].append(layer(x, pos))
            layer(x, pos, masks.causal()).square().sum().backward()
        results[-1] += [parameter.grad for parameter in layer.parameters()]
    for on_cpu, elsewhere in zip(*results, strict=True):
        torch.testing.assert_close(elsewhere, on_cpu)


def test_positions_left_out_are_0_1_2():
    for encoding in (Sinusoidal(32), RoPE(8), ALiBi(4), Sum(Sinusoidal(32), RoPE(8), ALiBi(4))):
        layer, x = SelfAttention(32, 4, encoding), torch.randn(2, 5, 32)
        assert layer(x).equal(layer(x, sequence(5)))
        assert not layer(x).allclose(layer(x, 3 * sequence(5)))


def test_groups_share_keys_and_values():
    few = SelfAttention(32, 4, RoPE(8), groups=2)
    assert few.k.weight.shape == few.v.weight.shape == (16, 32)
    many, x = SelfAttention(32, 4, RoPE(8)), torch.randn(2, 5, 32)
    state = few.state_dict()
    for name in ("k.weight", "k.bias", "v.weight", "v.bias"):  # each group, once for both heads
        state[name] = state[name].unflatten(0, (2, 8)).repeat_interleave(2, 0).flatten(0, 1)
    many.load_state_dict(state)
    torch.testing.assert_close(few(x), many(x))


def test_the_implementation_can_be_chosen():
    layer, x = SelfAttention(32, 4, ALiBi(4)), torch.randn(1, 5, 32)
    torch.testing.assert_close(layer(x, implementation="blocks"), layer(x))
    with pytest.raises(ValueError, match="does not support a bias"):
        layer(x, implementation="sdpa")


def test_a_layer_keeps_the_dtype_of_its_model():
    layer, x = SelfAttention(32, 4, Sum(Sinusoidal(32), RoPE(8), ALiBi(4))), torch.randn(1, 5, 32)
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    assert layer.double()(x.double()).dtype == torch.float64


@pytest.mark.parametrize(("heads", "groups"), [(3, None), (4, 3), (0, None), (4, 0), (-4, None)])
def test_says_which_heads_do_not_fit(heads, groups):
    with refused(ValueError, "`heads`", "`width`", 32, "`groups`"):
        SelfAttention(32, heads, NoPE(), groups)


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_the_name_of_an_encoding_makes_it_for_the_sizes_of_the_layer(card):
    torch.manual_seed(0)
    named = SelfAttention(32, 4, card.slug)
    torch.manual_seed(0)
    made = SelfAttention(32, 4, create(card.slug, dim=8, heads=4))
    made.load_state_dict(named.state_dict())
    x, pos = torch.randn(2, 5, 32), folded(5, made.encoding.axes)
    assert named(x, pos, masks.causal()).equal(made(x, pos, masks.causal()))


def test_a_mistyped_name_is_answered_with_what_was_meant():
    with refused(LookupError, "'roep'"):
        SelfAttention(32, 4, "roep")
    with refused(LookupError, "'roep'"):
        Block(32, 4, "roep")
