"""An adapted model, compiled and exported, against the same model without compilation."""

import pytest
import torch
import transformers as T
from thorough import some

from posenc import ALiBi, NoPE, RoPE, Sum, T5Bias
from posenc.models.adapter import apply

CONFIG = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=40)
CONFIG |= dict(intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64)
TEXTS = torch.randint(2, 40, (4, 9), generator=torch.Generator().manual_seed(1))
ENCODINGS = {
    "half": lambda: RoPE(8, layout="half"),  # by the model's own rotation
    "interleaved": lambda: RoPE(8),
    "T5": lambda: T5Bias(4, bidirectional=False),
    "ALiBi": lambda: ALiBi(4),
    "Sum": lambda: Sum(RoPE(8), ALiBi(4)),
    "NoPE": NoPE,
}
SOME = pytest.mark.parametrize("name", some(ENCODINGS, 2))


def adapted(make, **changed):
    torch.manual_seed(0)
    model = T.LlamaForCausalLM(T.LlamaConfig(**CONFIG | changed, initializer_range=0.3)).eval()
    apply(model, make())
    return model


@SOME
@pytest.mark.filterwarnings("ignore:.*eager backend ignoring")
def test_generating_with_a_static_cache_is_one_graph_that_is_never_traced_again(name):
    """Transformers tests this for its own models; the tokens are those of a growing cache."""
    torch.compiler.reset()
    model, graphs = adapted(ENCODINGS[name]), []
    options = dict(max_new_tokens=5, do_sample=False, pad_token_id=0, eos_token_id=None)
    expected = [model.generate(texts, **options) for texts in TEXTS.split(2)]

    def backend(graph, example, **ignored):
        graphs.append(graph)
        return graph

    compiling = T.CompileConfig(fullgraph=True, dynamic=False, backend=backend)
    compiling._compile_all_devices = True
    options |= dict(cache_implementation="static", compile_config=compiling)
    for texts, tokens in zip(TEXTS.split(2), expected, strict=True):
        assert torch.equal(model.generate(texts, **options), tokens)
    assert len(graphs) == 1


@SOME
def test_two_graphs_serve_all_lengths(name):
    """One for the first length, one for any. One layer: others show that two are in one graph."""
    torch.compiler.reset()
    model, graphs = adapted(ENCODINGS[name], num_hidden_layers=1), []
    compiled = torch.compile(
        model, fullgraph=True, backend=lambda graph, example: graphs.append(graph) or graph
    )
    with torch.no_grad():
        for tokens in (5, 7, 9, 8):
            texts = TEXTS[:2, :tokens]
            expected = model(texts, use_cache=False).logits
            torch.testing.assert_close(compiled(texts, use_cache=False).logits, expected)
    assert len(graphs) == 2


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


@SOME
def test_one_exported_graph_serves_all_lengths(name):
    model = Logits(adapted(ENCODINGS[name]))
    tokens = {1: torch.export.Dim("tokens", min=2, max=64)}
    with torch.no_grad():
        graph = torch.export.export(model, (TEXTS[:2],), dynamic_shapes=(tokens,)).module()
        for n in (2, 5, 9):
            torch.testing.assert_close(graph(TEXTS[:2, :n]), model(TEXTS[:2, :n]))
