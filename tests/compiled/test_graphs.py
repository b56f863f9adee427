"""Graphs, run by the interpreter in JavaScript, held against the hooks in Python, in float64."""

import functools
import json
import math
from typing import Any

import pytest
import torch
from javascript import evaluate
from thorough import THOROUGH

from posenc import masks
from posenc.attention.scores import scores
from posenc.catalog import CATALOG, create, find
from posenc.properties.probe import in_float64
from posenc.show.explorer import data, graphs, sliders

LENGTHS = 5, 23, 40  # none of them is that of the example that was exported
RUN = """({ graph, contents, wanted, instead }) => contents.map((content) => {
  const all = Object.entries({ ...content, ...instead });
  const given = Object.fromEntries(all.map(([n, one]) => [n, read(one)]));
  const shown = (x) => Array.from(values(x), (v) => (Number.isFinite(v) ? v : String(v)));
  const made = Object.entries(run(graph, given, wanted ?? undefined));
  return Object.fromEntries(made.map(([n, x]) => [n, { shape: x.shape, values: shown(x) }]));
})"""
SENTENCE = """({ graph }) => {
  try { run(graph, {}); } catch (error) {
    return [problem(graph), error.message, error instanceof UnknownOperation];
  }
}"""


def in_javascript(graph: dict[str, Any], contents: list[dict[str, Any]], **how: Any) -> Any:
    """The outputs for each content, as tensors by name."""
    written = [{n: graphs.numbers(x) for n, x in content.items()} for content in contents]
    argument = {"graph": graph, "contents": written} | how
    return [
        {
            n: torch.tensor([*map(float, x["values"])], dtype=torch.float64).view(x["shape"])
            for n, x in one
        }
        for one in (made.items() for made in evaluate(["interpreter.js"], RUN, argument))
    ]


def of_each_head(encoding, tokens):
    """The same content for each head that the graph can show."""
    content = graphs.content(encoding, tokens)
    return [content._replace(head=torch.tensor([head])) for head in range(content.q.shape[1])]


def expected(encoding, content):
    """All that the graph has, by the hooks, as attention calls them, in all heads."""
    acts_on, at = encoding.acts_on, encoding.prepare(content.pos)
    found = {}
    if "on_embeddings" in acts_on:
        found["embedded"] = encoding.on_embeddings(content.x, at)
        encoding = create("nope", graphs.DIM, graphs.HEADS)  # nothing else comes before softmax
        acts_on, at = (), content.pos
    mask = masks.causal() if encoding.causal else None
    reads = "on_hidden" in acts_on
    if reads:
        at = encoding.on_hidden(content.hidden, at)
    if {"on_queries", "on_keys"} & {*acts_on}:
        found["q"] = encoding.on_queries(content.q, at)
        found["k"] = encoding.on_keys(content.k, at)
    pos, x = content.pos, content.hidden if reads else None
    found["scores"] = scores(encoding, content.q, content.k, pos, pos, x=x, mask=mask)
    if "on_scores" in acts_on:
        plain = content.q @ content.k.mT * encoding.scale(content.q.shape[-1])
        found["bias"] = found["scores"] - plain
    return found


@functools.cache
def exported(card):
    """A card's encoding in float64, and its program: to export it takes most of the time."""
    encoding = in_float64(graphs.make(card))
    return encoding, graphs.export(card, encoding)


def exported_graph(slug):
    """As `graphs.graph(find(slug))`, from the program that other tests ask about too."""
    return graphs.written(find(slug), *exported(find(slug)))


ONE_HEAD = ["alibi", "t5", "kerple", "fire", "cope", "path", "wall", "fox", "shaw"]
# To export takes most of the time, and a packaged graph that is out of date gives other numbers
# than Python. So a run that is not thorough exports those that a test below asks about, and one for
# each other set of hooks; that all cards can be exported is shown in test_every_card.py.
ANEW = [*ONE_HEAD, "nope", "sinusoidal", "rope", "axial-rope", "selective-rope"]


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_encoding_runs_in_javascript_as_in_python_at_any_length(card):
    """The graph that is kept, and the one that is exported now."""
    encoding, each = in_float64(graphs.make(card)), [data.catalog()[card.slug]["graph"]]
    if THOROUGH or card.slug in ANEW:
        encoding, program = exported(card)
        now = graphs.written(card, encoding, program)
        each += [now] if now not in each else []
    contents = [content for tokens in LENGTHS for content in of_each_head(encoding, tokens)]
    for graph in each:
        made = in_javascript(graph, [one._asdict() for one in contents])
        for content, outputs in zip(contents, made, strict=True):
            assert_equal(outputs, encoding, content)


def test_of_each_set_of_hooks_a_graph_is_exported_anew():
    """Also of several axes, and of what counts what came before."""

    def kind(card):
        encoding = graphs.make(card)
        return frozenset(encoding.acts_on), encoding.axes > 1, encoding.causal

    assert {kind(find(slug)) for slug in ANEW} == {*map(kind, CATALOG)}


def assert_equal(outputs, encoding, content):
    with torch.no_grad():
        wanted = expected(encoding, content)
    assert outputs.keys() == wanted.keys()
    for name, value in wanted.items():
        if name != "embedded":
            value = value[:, content.head]
        seen = torch.ones_like(value, dtype=torch.bool)
        if encoding.causal and name in ("bias", "scores"):
            seen = seen.tril()
            assert (outputs[name][~seen] == -math.inf).all()
        torch.testing.assert_close(
            outputs[name][seen], value[seen].double(), atol=1e-12, rtol=1e-12
        )


@pytest.mark.parametrize("slug", ["rope", "sinusoidal", "axial-rope"])
def test_what_is_the_same_in_every_head_is_computed_once(slug):
    assert data.catalog()[slug]["graph"]["inputs"]["q"] == [1, 1, "token", graphs.DIM]


@pytest.mark.parametrize("slug", ONE_HEAD)
def test_no_pair_is_computed_for_a_head_that_is_not_shown(slug):
    """Nothing of all heads is as large as the scores: each node's shape, as torch exported it."""
    _, program = exported(find(slug))
    values = [node.meta.get("val") for node in program.graph.nodes]
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    pairs = [shape for shape in shapes if sum(not isinstance(size, int) for size in shape) == 2]
    assert pairs
    assert all(graphs.HEADS not in shape for shape in pairs)


def test_only_what_an_output_needs_has_to_be_given():
    graph = exported_graph("sinusoidal")
    pos = torch.tensor([3, 1000])
    (made,) = in_javascript(
        graph, [{"pos": pos, "x": torch.zeros(1, 2, 64).double()}], wanted=["embedded"]
    )
    encoding = create("sinusoidal", graphs.DIM, graphs.HEADS)
    rows = encoding.on_embeddings(torch.zeros(1, 2, 64), encoding.prepare(pos))
    torch.testing.assert_close(made["embedded"], rows.double(), atol=1e-12, rtol=0)


def test_constants_of_a_graph_can_be_replaced():
    """RoPE with another base, though the graph was exported with the usual one."""
    graph = exported_graph("rope")
    other = in_float64(create("rope", graphs.DIM, graphs.HEADS, base=500.0))
    content = graphs.content(other, 9)
    (made,) = in_javascript(graph, [content._asdict() | {"freqs": other.freqs}], wanted=["q"])
    turned = other.on_queries(content.q, other.prepare(content.pos))
    torch.testing.assert_close(made["q"], turned, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("slug", "option"),
    [
        ("rope", "base"),
        ("rope", "gain"),
        ("alibi", "strength"),
        ("fire", "length"),
        ("xpos", "span"),
    ],
)
def test_sliders_give_what_the_constructor_gives(slug, option):
    packaged = data.catalog()[slug]
    slider = packaged["sliders"][option]
    place = 3
    encoding = in_float64(graphs.make(find(slug), **{option: slider["values"][place]}))
    content = graphs.content(encoding, 12)
    instead = {name: each[place] for name, each in slider["constants"].items()}
    (made,) = in_javascript(packaged["graph"], [content._asdict()], instead=instead)
    with torch.no_grad():
        for name, wanted in graphs.outputs(encoding, content).items():
            torch.testing.assert_close(made[name], wanted.double(), atol=1e-12, rtol=1e-12)


def test_an_unknown_operation_is_named_in_a_sentence():
    graph = json.loads(json.dumps(exported_graph("alibi")))
    graph["nodes"][-1][0] = "teleport.default"
    sentence = "ALiBi cannot be shown: it uses `teleport.default`, which this page cannot run."
    said = evaluate(["interpreter.js"], SENTENCE, {"graph": graph})
    assert said == [sentence, sentence, True]


OWN = """
import torch
from torch import nn
from posenc import Encoding
from posenc.biases.distance import DistanceBias

class Mine(Encoding):
    def __init__(self, heads, strength=0.5):
        super().__init__()
        self.heads, self.strength = heads, strength

    def on_scores(self, q, k, q_at, k_at, scale):
        m, n = q_at[0, 0], k_at[0, 0]
        return lambda b, h, i, j: -self.strength * (m[i] - n[j]).abs().sqrt() / (1.0 + h)

class Reads(Mine):
    def prepare(self, pos):
        return pos * 2 if pos.max() > 3 else pos

class Spectral(Encoding):
    def on_queries(self, q, at):
        return torch.fft.fft(q).real
"""


LINE = r"Reads cannot be exported: `torch.Tensor.__bool__` \(my_module.py, line 18\)"


@pytest.fixture
def own(tmp_path):
    (tmp_path / "my_module.py").write_text(OWN)
    return lambda name: find(f"{tmp_path / 'my_module.py'}:{name}")


def test_an_encoding_of_ones_own_runs_too(own):
    graph = graphs.graph(own("Mine"))
    contents = of_each_head(graphs.make(own("Mine")), 17)
    each = in_javascript(graph, [one._asdict() for one in contents], wanted=["bias"])
    assert len(each) == graphs.HEADS
    offset = (torch.arange(17).unsqueeze(-1) - torch.arange(17)).abs().float().sqrt().double()
    for head, made in enumerate(each):
        wanted = -0.5 * offset / (1.0 + head)
        torch.testing.assert_close(made["bias"][0, 0], wanted, atol=1e-6, rtol=0)


def test_an_encoding_that_names_no_heads_may_tell_them_apart_all_the_same(tmp_path):
    (tmp_path / "plain.py").write_text(OWN.replace("self.heads, self", "heads, self"))
    graph = graphs.graph(find(f"{tmp_path / 'plain.py'}:Mine"))
    assert graph["inputs"]["q"][1] == graphs.HEADS


def test_what_cannot_be_exported_is_named_with_its_line(own):
    with pytest.raises(ValueError, match=LINE):
        graphs.graph(own("Reads"))


def test_what_the_page_cannot_run_is_named(own):
    with pytest.raises(ValueError, match=r"Spectral uses `_fft_\w+.default`.*cannot run"):
        graphs.graph(own("Spectral"))
    graph, _ = sliders.graph_or_sentence(own("Spectral"))
    assert "_fft_" in graph["sentence"]
    said = evaluate(["interpreter.js"], SENTENCE, {"graph": graph})
    assert said == [graph["sentence"]] * 2 + [True]
