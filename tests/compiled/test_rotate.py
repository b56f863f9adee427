"""Under `torch.compile` and `torch.export` the rotation is the plain formula, and one graph."""

import pytest
import torch

from posenc import RoPE, frequencies
from posenc.rotation.rotate import rotate
from posenc.rotation.table import turn

layouts = pytest.mark.parametrize("layout", ["interleaved", "half"])
widths = pytest.mark.parametrize(("start", "channels"), [(None, 32), (0, 40), (8, 40)])


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def heads(tokens, channels=32):
    return torch.randn(2, 3, tokens, channels)


def names(graph):
    return {str(node.target) for node in graph.graph.nodes}


@layouts
@widths
def test_one_graph_of_plain_operations_over_all_lengths(layout, start, channels):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    both = lambda q, k, by: [rotate(x, by, layout, start) for x in (q, k)]  # noqa: E731
    traced = torch.compile(both, fullgraph=True, dynamic=True, backend=backend)
    for tokens in range(5, 12):
        q, k = heads(tokens, channels), heads(tokens, channels)[:, :1]
        by = turn(torch.arange(tokens), frequencies(32))
        torch.testing.assert_close(traced(q, k, by), both(q, k, by))
    assert len(graphs) == 1
    assert not any("complex" in name or "posenc" in name for name in names(graphs[0]))


@layouts
def test_exported_without_complex_numbers(layout):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rope = RoPE(32, layout=layout)

        def forward(self, q, pos):
            return self.rope(q, q, pos)

    q, pos, model = heads(7), torch.arange(7), Model()
    tokens = torch.export.Dim("tokens")
    program = torch.export.export(model, (q, pos), dynamic_shapes=({2: tokens}, {0: tokens}))
    assert not any("complex" in name for name in names(program.graph_module))
    q, pos = heads(11), torch.arange(11)
    torch.testing.assert_close(program.module()(q, pos), model(q, pos))


@pytest.mark.compiler
@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_code_gives_what_eager_code_gives(layout, dtype):
    by = turn(torch.arange(7) * 1001, frequencies(32))
    x, weights = heads(7).to(dtype).requires_grad_(), heads(7).to(dtype)
    traced = torch.compile(lambda x: rotate(x, by, layout), fullgraph=True)
    made, expected = traced(x), rotate(x, by, layout)
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 0)
    (grad,) = torch.autograd.grad(made, x, weights)
    (exact,) = torch.autograd.grad(expected, x, weights)
    torch.testing.assert_close(grad, exact)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@layouts
def test_traced_without_complex_numbers(layout):
    by = turn(torch.arange(7), frequencies(32))
    traced = torch.jit.trace(lambda x: rotate(x, by, layout), heads(7), check_trace=False)
    assert "complex" not in str(traced.graph).lower()
