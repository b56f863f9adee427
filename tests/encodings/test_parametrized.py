"""Learned numbers that torch computes from others, as LoRA and weight norm do: against themselves.

`torch.nn.utils.parametrize` keeps what a parameter is computed from under the parameter's name in a
`ModuleDict`, so that no parameter may be called what a dictionary has already: `keys`, `values`.
"""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import register_parametrization

from posenc.attention.layer import SelfAttention
from posenc.catalog import CATALOG, create
from posenc.core.masks import causal
from posenc.core.positions import folded

DIM, HEADS, TOKENS = 8, 4, 7
LEARNED = [card for card in CATALOG if [*create(card.slug, DIM, HEADS).parameters()]]


class Same(nn.Module):
    def forward(self, x):
        return x


def same(module, name):
    register_parametrization(module, name, Same())


@pytest.mark.parametrize("compute", [same, weight_norm])
@pytest.mark.parametrize("card", LEARNED, ids=lambda card: card.slug)
def test_every_parameter_can_be_computed_from_others(card, compute):
    layer = SelfAttention(DIM * HEADS, HEADS, create(card.slug, DIM, HEADS)).double()
    named = [
        (module, name)
        for module in layer.encoding.modules()
        for name, _ in module.named_parameters(recurse=False)
    ]
    for module, name in named:  # the norm of zeros has no direction
        nn.init.uniform_(getattr(module, name), 0.1, 1.0)
    x, mask = torch.randn(2, TOKENS, DIM * HEADS, dtype=torch.float64), causal()
    pos = folded(TOKENS, layer.encoding.axes)
    expected = layer(x, pos, mask)
    for module, name in named:
        compute(module, name)
    out = layer(x, pos, mask)
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    for name, parameter in layer.encoding.named_parameters():
        assert parameter.grad is not None, name
