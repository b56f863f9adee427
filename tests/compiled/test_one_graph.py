"""One traced graph of an encoding works for texts of every length (F34): graphs are counted."""

import pytest
import torch

from posenc import masks
from posenc.attention.attend import attend
from posenc.attention.layer import SelfAttention
from posenc.core.encoding import Encoding, Sum
from posenc.core.frequencies import frequencies
from posenc.core.positions import sequence
from posenc.encodings.additive.learned import Learned
from posenc.encodings.additive.sinusoidal import Sinusoidal
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL
from posenc.encodings.rotary.extension import yarn, yarn_gain
from posenc.encodings.rotary.rope import RoPE
from posenc.encodings.rotary.xpos import XPos

LENGTHS = range(3, 23)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def count(graphs):
    """A backend that compiles nothing, and keeps the graphs it is handed."""

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    return backend


def one_graph(function, *inputs_of):
    """Check that `function` is traced once for twenty lengths, with the same results."""
    graphs = []
    traced = torch.compile(function, fullgraph=True, dynamic=True, backend=count(graphs))
    for tokens in LENGTHS:
        inputs = [make(tokens) for make in inputs_of]
        torch.testing.assert_close(traced(*inputs), function(*inputs))
    return len(graphs)


def yarned():
    return RoPE(yarn(frequencies(8), 4.0, 32), gain=yarn_gain(4.0))


def heads(tokens):
    return torch.randn(2, 4, tokens, 8)


def test_rope_is_one_graph():
    rope = RoPE(8)
    turned = lambda q, k, pos: rope(q, k, pos)  # noqa: E731
    assert one_graph(turned, heads, heads, sequence) == 1


def test_rope_that_finds_positions_itself_is_one_graph():
    rope = RoPE(8)
    assert one_graph(lambda q: rope(q, q), heads) == 1


@pytest.mark.parametrize("encoding", [Sinusoidal(32), Learned(64, 32)], ids=type)
def test_additive_encodings_are_one_graph(encoding):
    embeddings = lambda tokens: torch.randn(2, tokens, 32)  # noqa: E731
    with torch.no_grad():
        assert one_graph(lambda x, pos: encoding(x, pos), embeddings, sequence) == 1


@pytest.mark.parametrize(
    ("encoding", "path"),
    [
        *((RoPE(8), "sdpa"), (RoPE(8), "reference"), (ALiBi(4), "reference")),
        *((NoPE(), "sdpa"), (XPos(8), "sdpa"), (yarned(), "sdpa")),
        *((T5Bias(4), "auto"), (Shaw(8), "auto"), (DeBERTa(8, 4), "auto")),
        *((TransformerXL(8, 4), "auto"), (Sum(RoPE(8), ALiBi(4)), "auto")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_attention_is_one_graph(encoding, path):
    def run(q, k, v, pos):
        at, mask = encoding.prepare(pos), masks.causal(pos)
        return attend(q, k, v, encoding, at, mask=mask, implementation=path)

    with torch.no_grad():
        assert one_graph(run, heads, heads, heads, sequence) == 1


def test_a_whole_layer_trains_in_one_graph():
    layer = SelfAttention(32, 4, Sum(Sinusoidal(32), RoPE(8), ALiBi(4)))
    graphs = []
    traced = torch.compile(layer, fullgraph=True, dynamic=True, backend=count(graphs))
    for tokens in LENGTHS:
        x = torch.randn(2, tokens, 32)
        grads = []
        for run in (traced, layer):
            layer.zero_grad()
            run(x, sequence(tokens), masks.causal()).square().sum().backward()
            grads.append([p.grad.clone() for p in layer.parameters()])
        torch.testing.assert_close(*grads)
    assert len(graphs) == 1


@pytest.mark.compiler
def test_compiled_code_gives_what_eager_code_gives():
    rope = RoPE(8)
    traced = torch.compile(lambda q, k, pos: rope(q, k, pos), fullgraph=True, dynamic=True)
    for tokens in (5, 64):
        q, k, pos = heads(tokens), heads(tokens), sequence(tokens, start=100_000)
        torch.testing.assert_close(traced(q, k, pos), rope(q, k, pos))
    half = q.bfloat16()
    torch.testing.assert_close(traced(half, half, pos), rope(half, half, pos))


class Turned(Encoding):
    """VO-RoPE."""

    def __init__(self):
        super().__init__()
        self.turn = RoPE(8)

    def on_values(self, v, at):
        return self.turn.on_keys(v, self.turn.prepare(at))

    def on_output(self, out, at):
        return self.turn.on_queries(out, self.turn.prepare(-at))


@pytest.mark.parametrize("encoding", [Turned(), Sum(RoPE(8), ALiBi(4), Turned())], ids=type)
def test_turned_values_are_one_graph(encoding):
    attends = lambda q, pos: attend(q, q, q, encoding, pos, mask=masks.causal())  # noqa: E731
    with torch.no_grad():
        assert one_graph(attends, heads, sequence) == 1


@pytest.mark.parametrize("encoding", [NoPE(), ALiBi(4)], ids=type)
def test_softcap_and_sinks_are_one_graph(encoding):
    more = dict(softcap=0.7, sinks=torch.randn(4))
    attends = lambda q, pos: attend(q, q, q, encoding, pos, mask=masks.causal(), **more)  # noqa: E731
    with torch.no_grad():
        assert one_graph(attends, heads, sequence) == 1
