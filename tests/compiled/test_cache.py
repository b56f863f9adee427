"""A compiled layer that reads a text token by token, with a cache, against the layer as it is."""

import copy

import pytest
import torch
from thorough import some

from posenc import CATALOG, ALiBi, Cache, RoPE, SelfAttention, Sum, masks
from posenc.core.positions import folded

DIM, HEADS, WIDTH, TOKENS = 8, 4, 32, 12
# A position of `Normalized` is a fraction of the length, so it cannot decode.
CARDS = {card.slug: card.make for card in CATALOG if card.slug != "normalized"}
CARDS["sum"] = lambda dim, heads: Sum(RoPE(dim), ALiBi(heads))
# One graph for the first token, one for the second, one for later ones with any number of keys
MOST_GRAPHS = 3


def compiled(layer, **options):
    """The layer, traced whole, and the graphs that it was traced to so far."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    return torch.compile(layer, fullgraph=True, backend=backend, **options), graphs


@pytest.mark.parametrize("dynamic", some([None, True], 2), ids=str)
@pytest.mark.parametrize("name", CARDS)
@torch.no_grad()
def test_a_few_graphs_serve_all_tokens_that_a_cache_brings(name, dynamic):
    """Positions are passed; the tokens of twelve calls, and of a second text."""
    layer = SelfAttention(WIDTH, HEADS, CARDS[name](DIM, HEADS), groups=2)
    traced, graphs = compiled(layer, dynamic=dynamic)
    pos = folded(TOKENS, layer.encoding.axes)
    for _ in range(2):
        x, cache, eager = torch.randn(2, TOKENS, WIDTH), Cache(), Cache()
        for n in range(TOKENS):
            token, here = x[:, n : n + 1], pos[n : n + 1]
            out = traced(token, here, masks.causal(), cache=cache)
            torch.testing.assert_close(out, layer(token, here, masks.causal(), cache=eager))
        assert cache.tokens == TOKENS
    assert len(graphs) <= MOST_GRAPHS


@pytest.mark.parametrize("name", ["nope", "rope", "alibi", "shaw", "deberta", "fox", "sum"])
@torch.no_grad()
def test_positions_left_out_after_a_prompt_need_no_more_graphs(name):
    """A prompt of seven tokens, then one by one, in a cache, its branch, and one cut back."""
    layer = SelfAttention(WIDTH, HEADS, CARDS[name](DIM, HEADS))
    traced, graphs = compiled(layer)
    x, cache = torch.randn(2, TOKENS, WIDTH), Cache()
    whole = layer(x, mask=masks.causal())
    close = lambda ours, expected: torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)  # noqa: E731
    close(traced(x[:, :7], mask=masks.causal(), cache=cache), whole[:, :7])
    for branch in (copy.copy(cache), cache):
        for n in range(7, TOKENS):
            out = traced(x[:, n : n + 1], mask=masks.causal(), cache=branch)
            close(out, whole[:, n : n + 1])
    assert len(graphs) <= 1 + MOST_GRAPHS
