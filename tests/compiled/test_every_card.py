"""Every encoding of the catalogue compiles, exports and runs on meta and on fake tensors.

Positions are an input and `prepare` is inside, so that what it looks at is traced too. Held against
the same layer, untraced.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc import masks
from posenc.catalog import CATALOG
from posenc.encoding import Encoding
from posenc.layer import SelfAttention
from posenc.positions import folded

DIM, HEADS = 8, 4
FIRST = 6  # tokens: unlike any other size, for torch takes sizes that are equal at first for one
every = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)


class Layer(torch.nn.Module):
    """`SelfAttention` with a mask that goes by positions, where they are numbers."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.encoding = encoding
        self.layer = SelfAttention(DIM * HEADS, HEADS, encoding)

    def forward(self, x, pos, implementation="auto"):
        mask = masks.causal(pos) if self.encoding.axes == 1 else masks.causal()
        return self.layer(x, pos, mask, implementation)


def inputs(encoding, tokens, rows=()):
    pos = folded(tokens, encoding.axes)
    return torch.randn(2, tokens, DIM * HEADS), pos.expand(*rows, *pos.shape).clone()


@every
def test_every_encoding_is_one_graph_over_all_lengths(card):
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    layer = Layer(card.make(DIM, HEADS)).requires_grad_(False)
    traced = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for tokens in (FIRST, 131):
        x, pos = inputs(layer.encoding, tokens, rows=(2,))
        torch.testing.assert_close(traced(x, pos), layer(x, pos))
    assert len(graphs) == 1


@every
def test_every_encoding_exports_for_all_lengths(card):
    layer = Layer(card.make(DIM, HEADS))
    tokens = torch.export.Dim("tokens", max=512)
    dynamic = ({1: tokens}, {0: tokens}, None)
    args = (*inputs(layer.encoding, FIRST), "auto")
    program = torch.export.export(layer, args, dynamic_shapes=dynamic).module()
    for length in (FIRST + 1, 131):
        x, pos = inputs(layer.encoding, length)
        torch.testing.assert_close(program(x, pos, "auto"), layer(x, pos))


def assert_runs_in_shape(encoding, device):
    layer = Layer(encoding)
    layer = layer.to(device) if device == "meta" else layer
    for path in ("auto", "blocks"):
        x, pos = (x.to(device) for x in inputs(encoding, 150))
        out = layer(x, pos, path)
        assert (out.shape, out.device.type) == ((2, 150, DIM * HEADS), device)


@every
def test_every_encoding_runs_on_meta(card):
    assert_runs_in_shape(card.make(DIM, HEADS), "meta")


@every
def test_every_encoding_runs_on_fake_tensors(card):
    with FakeTensorMode():
        assert_runs_in_shape(card.make(DIM, HEADS), "cpu")
