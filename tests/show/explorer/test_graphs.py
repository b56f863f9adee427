"""Graphs, run by the interpreter in JavaScript, held against the hooks in Python, in float64."""

import functools
import math
from typing import Any

import pytest
import torch
from javascript import evaluate

from posenc import masks
from posenc.attention.scores import scores
from posenc.catalog import CATALOG, create, find
from posenc.properties.probe import in_float64
from posenc.show.explorer import data, graphs, sliders
from posenc.show.explorer.recording import run

LENGTHS = 5, 23, 40  # none of them is that of an example that is recorded
RUN = """(all) => all.map(({ graph, contents, wanted, instead }) => contents.map((content) => {
  const all = Object.entries({ ...content, ...instead });
  const given = Object.fromEntries(all.map(([n, one]) => [n, read(one)]));
  const shown = (x) => Array.from(values(x), (v) => (Number.isFinite(v) ? v : String(v)));
  const made = Object.entries(run(graph, given, wanted ?? undefined));
  return Object.fromEntries(made.map(([n, x]) => [n, { shape: x.shape, values: shown(x) }]));
}))"""
SENTENCE = """({ graph }) => {
  try { run(graph, {}); } catch (error) {
    return [problem(graph), error.message, error instanceof UnknownOperation];
  }
}"""


def in_javascript(graph: dict[str, Any], contents: list[dict[str, Any]], **how: Any) -> Any:
    """The outputs for each content, as tensors by name."""
    return many_in_javascript([graph], [contents], **how)[0]


def many_in_javascript(many: list[dict[str, Any]], each: list[Any], **how: Any) -> list[Any]:
    """The outputs of several graphs, each for contents of its own."""
    arguments = [
        {
            "graph": graph,
            "contents": [{n: graphs.numbers(x) for n, x in one.items()} for one in some],
        }
        for graph, some in zip(many, each, strict=True)
    ]
    found = evaluate(["interpreter.js"], RUN, [one | how for one in arguments])
    return [[{n: read(x) for n, x in made.items()} for made in outputs] for outputs in found]


def read(x):
    values = torch.tensor([*map(float, x["values"])], dtype=torch.float64)
    return values.view(x["shape"])


def of_each_head(encoding, tokens):
    """The same content for each head that the graph can show."""
    content = graphs.content(encoding, tokens)
    return [content._replace(head=torch.tensor([head])) for head in range(content.q.shape[1])]


def expected(encoding, content):
    """All that the graph has, by the hooks, as attention calls them, in all heads."""
    pos, acts_on, at = content.pos, encoding.acts_on, encoding.prepare(content.pos)
    found = {}
    if "on_embeddings" in acts_on:
        found["embedded"] = encoding.on_embeddings(content.x, at)
        encoding = create("nope", graphs.DIM, graphs.HEADS)  # nothing else comes before softmax
        pos, acts_on = torch.arange(len(pos)), ()
    mask = masks.causal() if encoding.causal else None
    reads = "on_hidden" in acts_on
    if reads:
        at = encoding.on_hidden(content.hidden, at)
    if {"on_queries", "on_keys"} & {*acts_on}:
        found["q"] = encoding.on_queries(content.q, at)
        found["k"] = encoding.on_keys(content.k, at)
    x = content.hidden if reads else None
    found["scores"] = scores(encoding, content.q, content.k, pos, pos, x=x, mask=mask)
    if "on_scores" in acts_on:
        plain = content.q @ content.k.mT * encoding.scale(content.q.shape[-1])
        found["bias"] = found["scores"] - plain
    return found


@functools.cache
def exported(slug):
    """A card's encoding in float64, and its graph, whose constants are tensors."""
    encoding = in_float64(graphs.make(find(slug)))
    return encoding, graphs.export(find(slug), encoding)


ONE_HEAD = ["alibi", "t5", "kerple", "fire", "cope", "path", "wall", "fox", "shaw"]


def each_content(encoding):
    return [content for tokens in LENGTHS for content in of_each_head(encoding, tokens)]


@functools.cache
def all_in_javascript():
    """Outputs of each card's graph on the page, computed by JavaScript in one browser."""
    packaged = data.catalog()
    graphs_of = [packaged[card.slug]["graph"] for card in CATALOG]
    each = [[one._asdict() for one in each_content(exported(card.slug)[0])] for card in CATALOG]
    return dict(
        zip([card.slug for card in CATALOG], many_in_javascript(graphs_of, each), strict=True)
    )


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_encoding_runs_in_javascript_as_in_python_at_any_length(card):
    """Against the hooks; and the graph without sliders, as `run` computes it in Python."""
    encoding, graph = exported(card.slug)
    made = all_in_javascript()[card.slug]
    for content, outputs in zip(each_content(encoding), made, strict=True):
        assert_equal(outputs, encoding, content)
        with torch.no_grad():
            assert_equal(run(graph, content._asdict()), encoding, content)


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
            outputs[name][seen].double(), value[seen].double(), atol=1e-12, rtol=1e-12
        )


@pytest.mark.parametrize("slug", ["rope", "sinusoidal", "axial-rope"])
def test_what_is_the_same_in_every_head_is_computed_once(slug):
    assert data.catalog()[slug]["graph"]["inputs"]["q"] == [1, 1, "token", graphs.DIM]


@pytest.mark.parametrize("slug", ONE_HEAD)
def test_no_pair_is_computed_for_a_head_that_is_not_shown(slug):
    """Nothing of all heads is as large as the scores: the shape of each value of the graph."""
    encoding, graph = exported(slug)
    count = len(graph["inputs"]) + len(graph["constants"]) + len(graph["nodes"])
    every = graph | {"outputs": {str(number): f"${number}" for number in range(count)}}
    with torch.no_grad():
        values = run(every, graphs.content(encoding, 23)._asdict()).values()
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    pairs = [shape for shape in shapes if [*shape].count(23) == 2]
    assert pairs
    assert all(graphs.HEADS not in shape for shape in pairs)


def test_only_what_an_output_needs_has_to_be_given():
    graph = graphs.graph(find("sinusoidal"))
    pos = torch.tensor([3, 1000])
    (made,) = in_javascript(
        graph, [{"pos": pos, "x": torch.zeros(1, 2, 64).double()}], wanted=["embedded"]
    )
    encoding = create("sinusoidal", graphs.DIM, graphs.HEADS)
    rows = encoding.on_embeddings(torch.zeros(1, 2, 64), encoding.prepare(pos))
    torch.testing.assert_close(made["embedded"], rows.double(), atol=1e-12, rtol=0)


def test_constants_of_a_graph_can_be_replaced():
    """RoPE with another base, though the graph was exported with the usual one."""
    graph = graphs.graph(find("rope"))
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
    graph = graphs.graph(find("alibi"))
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


LINE = r"Reads cannot be exported, because `torch.Tensor.__bool__` \(my_module.py, line 18\)"


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
