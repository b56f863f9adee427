"""Every encoding compiles, exports, also to ONNX, and runs on meta and on fake tensors.

Positions are an input and `prepare` is inside, so that what it looks at is traced too. Held against
the same layer, untraced; a graph of ONNX also against its own checker, run by its own evaluator.
"""

import copy
import functools
import io

import numpy as np
import pytest
import torch
from thorough import THOROUGH, some
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc import masks
from posenc.attention.call import Implementation
from posenc.attention.layer import SelfAttention
from posenc.catalog import CATALOG, create
from posenc.core.encoding import Encoding
from posenc.core.positions import folded

DIM, HEADS = 8, 4
FIRST = 6  # tokens: unlike any other size, for torch takes sizes that are equal at first for one
# All tests of a card follow one another (scope), so that workers too share its exported program.
by_card = functools.partial(
    pytest.mark.parametrize, "card", ids=lambda card: card.slug, scope="module"
)
every = by_card(CATALOG)
# Each is exported or compiled, in a thorough run both. test_one_graph.py
# compiles one of each kind.
EXPORTED = some(CATALOG, 2)
COMPILED = [card for card in CATALOG if THOROUGH or card not in EXPORTED]


class Layer(torch.nn.Module):
    """`SelfAttention` with a mask that goes by positions, where they are numbers."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.path: Implementation = "auto"
        self.encoding = encoding
        self.layer = SelfAttention(DIM * HEADS, HEADS, encoding)

    def forward(self, x, pos):
        mask = masks.causal(pos) if self.encoding.axes == 1 else masks.causal()
        return self.layer(x, pos, mask, self.path)


def inputs(encoding, tokens, rows=()):
    pos = folded(tokens, encoding.axes)
    return torch.randn(2, tokens, DIM * HEADS), pos.expand(*rows, *pos.shape).clone()


@by_card(COMPILED)
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


@functools.cache
def exported(name, **options):
    """Return a layer with this encoding, and its exported program for any length."""
    layer = Layer(create(name, DIM, HEADS, **options)).requires_grad_(False)
    tokens = torch.export.Dim("tokens", max=512)
    dynamic = ({1: tokens}, {0: tokens})
    return layer, torch.export.export(layer, inputs(layer.encoding, FIRST), dynamic_shapes=dynamic)


@by_card(EXPORTED)
def test_every_encoding_exports_for_all_lengths(card):
    layer, program = exported(card.name)
    module = program.module()
    for length in (FIRST + 1, 131):
        x, pos = inputs(layer.encoding, length)
        torch.testing.assert_close(module(x, pos), layer(x, pos))


def to_onnx(program):
    """Return the checked graph of a program, and its evaluator."""
    onnx = pytest.importorskip("onnx", reason="onnx, of the extra `dev`, is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript, of the extra `dev`, is not installed")
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class GatherElements(OpRun):
        """The operator as ONNX defines it; the evaluator's own fails at axis -1."""

        op_domain = ""

        def _run(self, data, indices, axis):
            index = list(np.indices(indices.shape, sparse=True))
            index[axis] = indices
            return (data[tuple(index)],)

    converted = torch.onnx.export(program, optimize=False, verbose=False)
    assert converted is not None
    converted.save(file := io.BytesIO())
    graph = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(graph, full_check=True)
    names = [entry.name for entry in graph.graph.input]
    return names, ReferenceEvaluator(graph, new_ops=[GatherElements])


@pytest.fixture(scope="module")
def one_table_of_operators():
    """Reuse torch's translations to ONNX; reading them for each graph is half of the run time."""
    pytest.importorskip("onnxscript", reason="onnxscript, of the extra `dev`, is not installed")
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        once = functools.cache(ONNXRegistry.from_torchlib)
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(once))
        yield


def assert_is_a_valid_graph_of_onnx(name, **options):
    layer, program = exported(name, **options)
    names, evaluator = to_onnx(program)
    exact = copy.deepcopy(layer).double()
    for length in (FIRST, 33):
        x, pos = inputs(layer.encoding, length)
        (out,) = evaluator.run(None, dict(zip(names, (x.numpy(), pos.numpy()), strict=True)))
        # Large scores, as Integer's, make both lose digits: as many as the layer itself loses.
        expected = exact(x.double(), pos).float()
        lost = (layer(x, pos) - expected).abs().max().item()
        torch.testing.assert_close(torch.tensor(out), expected, atol=1e-5 + 4 * lost, rtol=1.3e-6)


@by_card(some(CATALOG, 4))
@pytest.mark.filterwarnings("ignore")  # warnings of torch and onnxscript
@pytest.mark.usefixtures("one_table_of_operators")
def test_every_encoding_is_a_valid_graph_of_onnx(card):
    assert_is_a_valid_graph_of_onnx(card.name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("one_table_of_operators")
def test_kerple_of_powers_is_a_valid_graph_of_onnx():
    assert_is_a_valid_graph_of_onnx("kerple", curve="power")


def assert_runs_in_shape(encoding, device):
    layer = Layer(encoding)
    layer = layer.to(device) if device == "meta" else layer
    for path in ("auto", "blocks"):
        layer.path = path
        x, pos = (x.to(device) for x in inputs(encoding, 150))
        out = layer(x, pos)
        assert (out.shape, out.device.type) == ((2, 150, DIM * HEADS), device)


@every
def test_every_encoding_runs_on_meta(card):
    assert_runs_in_shape(card.make(DIM, HEADS), "meta")


@every
def test_every_encoding_runs_on_fake_tensors(card):
    with FakeTensorMode():
        assert_runs_in_shape(card.make(DIM, HEADS), "cpu")
