"""Export encodings as graphs of torch operations for the interpreter in the browser.

    {"inputs": {"pos": ["token"], …}, "constants": {"freqs": {"shape": [8], …}, …},
     "nodes": [["sin.default", ["$5"]], …], "outputs": {"scores": "$9", …}, …}

Values are numbered: inputs first, then constants, then nodes; "$5" is the sixth. A node may have
named arguments, and the dtype of its result if that is not float64. A graph is valid for any
number of tokens, and rounds where the encoding does. Parameters have their initial values:
`torch.manual_seed(seed)`, then `create(name, dim, heads, **options)`, gives the same ones.

    embedded        x plus the added rows                 from pos, x
    q, k            as they enter the dot product         from pos, q, k, hidden, head
    bias, scores    (1, 1, query, key), before softmax    from pos, q, k, hidden, head

`hidden` is the input of the layer, which some encodings read. All outputs except `embedded` are of
one head, number `head`; other heads are computed only if an encoding computes all of them at once.
Later keys have the score −∞ if the encoding is made for causal attention.
"""

import base64
import inspect
import re
import traceback
from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from posenc.core import hooks
from posenc.core.biases import ALL, ScoreBias, dense, pairs
from posenc.core.encoding import Encoding, placed
from posenc.core.masks import causal
from posenc.core.positions import folded
from posenc.core.prepared import Prepared
from posenc.properties.card import Card
from posenc.properties.probe import in_float64
from posenc.show.explorer.recording import Differs, Graph, Recording, tensors_of

DIM, HEADS, SEED = 16, 4, 0
SMALL_TABLES: dict[str, dict[str, Any]] = {"learned": {"length": 128}, "deberta": {"reach": 32}}
# Text lengths in tokens at which hooks are recorded. One graph must fit all lengths, although some
# biases compute other products for up to 8 queries, and running sums use chunks of 64 tokens.
TOKENS = 11, 13, 97
FEW_NUMBERS = 16  # tensors of at most this size are written as numbers, larger ones as bytes
SAME_WITHIN = 1e-13  # difference allowed between two ways to compute a head
INTERPRETER = "interpreter.js"


class GraphInputs(NamedTuple):
    """The inputs of an encoding's graph: positions, queries, keys, embeddings, hidden states, head.

    q and k are (1, head, token, channel), x and hidden (1, token, width). Additive encodings add
    to x; the layer reads `hidden`. `head`, (1,), is the number of the shown head.
    """

    pos: Tensor
    q: Tensor
    k: Tensor
    x: Tensor
    hidden: Tensor
    head: Tensor


class LastCall(TorchFunctionMode):
    """A torch function mode that records the name of the last called function.

    Error messages of the export quote this name.
    """

    name = ""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.name = resolve_name(function) or getattr(function, "__name__", str(function))
        return function(*args, **(kwargs or {}))


def outputs(encoding: Encoding, content: GraphInputs, alone: bool = False) -> dict[str, Tensor]:
    """Run all hooks of an encoding, and return their outputs for one head.

    If `alone`, the bias is computed for this head only, not for all heads.
    """
    pos, q, k, x, hidden, head = content
    tensors, acts_on, at = {}, encoding.acts_on, encoding.prepare(pos)
    if "on_embeddings" in acts_on:
        tensors["embedded"] = hooks.applied("on_embeddings", placed(encoding, at, at), x)
    if "on_hidden" in acts_on:
        at = hooks.hidden(encoding, hidden, at)
    # The scale depends on the channels of a head; `on_queries` may append further channels
    scale = encoding.scale(q.shape[-1])
    if {"on_queries", "on_keys"} & {*acts_on}:
        q, k = hooks.queries_and_keys(placed(encoding, at, at), q, k)
        tensors |= {"q": of_head(q, head), "k": of_head(k, head)}
    shape = (1, 1, q.shape[2], k.shape[2])
    scores = of_head(q, head) @ of_head(k, head).mT * scale
    seen = dense(causal(), shape) if encoding.causal else None
    if alone:
        q, k, at, head = of_head(q, head), of_head(k, head), at_of_head(at, head), 0 * head
    bias = hooks.bias_of(placed(encoding, at, at), q, k, scale)
    if bias is not None:
        tensors["bias"] = bias_of_head(bias, head, shape, seen)
        scores = scores + tensors["bias"]
    tensors["scores"] = scores
    if seen is not None:
        hidden_pairs = {name: tensors[name] for name in ("bias", "scores") if name in tensors}
        tensors |= {name: x.masked_fill(~seen, -torch.inf) for name, x in hidden_pairs.items()}
    return tensors


def of_head(x: Tensor, head: Tensor) -> Tensor:
    """Select one head: (1, head, …) -> (1, 1, …)."""
    return x if x.shape[1] == 1 else x.index_select(1, head)


def at_of_head(at: Any, head: Tensor) -> Any:
    """Select one head in the tensors that an encoding's `prepare` computes from positions.

    Fields without a head dimension are unchanged.
    """
    if not isinstance(at, Prepared):
        return at
    shapes = (at.shape,) * len(at.places) if isinstance(at.shape, str) else at.shape
    # Every Prepared is a named tuple
    fields: Any = at
    return at.with_fields(
        field_of_head(*field_and_shape, head)
        for field_and_shape in zip(fields, shapes, strict=True)
    )


def field_of_head(field: Any, shape: str, head: Tensor) -> Any:
    if isinstance(field, Prepared):
        return at_of_head(field, head)
    names = shape.split()
    axis = names.index("head") - len(names) if "head" in names else 0
    return field.index_select(axis, head) if axis and field.shape[axis] > 1 else field


def one_head_suffices(encoding: Encoding, content: GraphInputs) -> bool:
    """Test whether a head's scores stay the same if the other heads are not computed.

    If so, the scores of the other heads need not be computed. No attribute of an encoding
    states this, so the outputs are compared.
    """
    if "on_scores" not in encoding.acts_on:
        return False
    heads = content.q.shape[1]
    contents = [content._replace(head=torch.tensor([head])) for head in range(heads)]
    try:
        with torch.no_grad():
            alone, among = (
                [outputs(encoding, x, only) for x in contents] for only in (True, False)
            )
    except (TypeError, ValueError, LookupError, RuntimeError):
        return False
    return heads > 1 and all(
        x[name].shape == y[name].shape
        and torch.allclose(x[name], y[name], rtol=0, atol=SAME_WITHIN)
        for x, y in zip(alone, among, strict=True)
        for name in y
    )


def bias_of_head(
    bias: ScoreBias, head: Tensor, shape: tuple[int, int, int, int], seen: Tensor | None
) -> Tensor:
    """Compute one head's bias for all query–key pairs, without the other heads if possible."""
    of_pair = bias.pair()
    if of_pair is None:
        return of_head(bias.block(ALL, ALL, seen), head).expand(shape)
    b, _, i, j = pairs(shape)
    return of_pair(b, head.view(1, 1, 1, 1), i, j).expand(shape)


def make(card: Card, dim: int = DIM, heads: int = HEADS, **options: Any) -> Encoding:
    """Make an encoding from its card, with small learned tables and seeded random parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return card.make(dim, heads, **SMALL_TABLES.get(card.slug, {}) | options)


def content(encoding: Encoding, tokens: int, dim: int = DIM, heads: int = HEADS) -> GraphInputs:
    """Make random inputs of a graph, with a fixed seed and consecutive positions.

    For an encoding of several axes, the positions are points of a square or cube.

    An encoding without a bias and without a number of heads is the same in each head, so one head
    is enough.
    """
    dim, heads = encoding.dim or dim, encoding.heads or heads
    random, width = torch.Generator().manual_seed(SEED), encoding.width or dim * heads
    if not (encoding.heads or "on_scores" in encoding.acts_on):
        heads = 1
    q, k = (torch.randn(1, heads, tokens, dim, generator=random).double() for _ in "qk")
    x, hidden = (torch.randn(1, tokens, width, generator=random).double() for _ in range(2))
    return GraphInputs(folded(tokens, encoding.axes), q, k, x, hidden, torch.tensor([heads - 1]))


def with_tensors(encoding: Encoding, names: Collection[str]) -> Encoding:
    """Replace float attributes by tensors, so that an exported graph records them as constants."""
    for name in names:
        path, _, last = name.rpartition(".")
        module = vars(encoding.get_submodule(path))
        module[last] = torch.tensor(module[last], dtype=torch.float64)
    return encoding


def export(
    card: Card, encoding: Encoding, dim: int = DIM, heads: int = HEADS, **options: Any
) -> dict[str, Any]:
    """Record an encoding's hooks at a few text lengths, and merge the recordings into one graph.

    Its constants are tensors, which `written` puts in JSON. Raises ValueError, which names the
    operation, if the encoding cannot be exported, or its graph not be run.
    """
    last, recordings = LastCall(), []
    alone = one_head_suffices(encoding, content(encoding, TOKENS[0], dim, heads))

    def hooks(*tensors: Tensor) -> dict[str, Tensor]:
        with last:
            return outputs(encoding, GraphInputs(*tensors), alone)

    try:
        for tokens in TOKENS:
            # A table may have no row for the last of the longest text
            with suppress(IndexError) if recordings else nullcontext():
                given = content(encoding, tokens, dim, heads)._asdict()
                recordings.append(Recording(given, tensors_of(encoding), hooks))
        graph = Graph(recordings).to_json()
    except Exception as error:
        name = error.operation if isinstance(error, Differs) else last.name
        raise ValueError(_not_exported(card, encoding, name, error)) from error
    if unknown := sorted({node[0] for node in graph["nodes"]} - operations()):
        raise ValueError(
            f"{card.name} uses {', '.join(f'`{name}`' for name in unknown)}, which the explorer"
            " cannot run. Use other operations on tensors."
        )
    return {
        "name": card.name,
        "slug": card.slug,
        "dim": encoding.dim or dim,
        "heads": encoding.heads or heads,
        "width": encoding.width or dim * heads,
        "axes": encoding.axes,
        "causal": encoding.causal,
        "seed": SEED,
        "options": SMALL_TABLES.get(card.slug, {}) | options,
        "learns": any(True for _ in encoding.parameters()),
        **graph,
    }


def _not_exported(card: Card, encoding: Encoding, name: str, error: Exception) -> str:
    try:
        own = inspect.getfile(type(encoding))
    except (OSError, TypeError):
        own = ""  # code that was typed into a session has no file
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    where = f" ({Path(own).name}, line {lines[-1]})" if lines else ""
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return (
        f"{card.name} cannot be exported, because `{name}`{where} depends on values of tensors."
        f" Use only operations that read no values. The error of torch: {why}"
    )


def graph(card: Card, dim: int = DIM, heads: int = HEADS, **options: Any) -> dict[str, Any]:
    """Return the graph of an encoding as data for JSON.

    Raises ValueError, which names the operation, if the encoding cannot be exported, or its graph
    not be run.
    """
    encoding = in_float64(make(card, dim, heads, **options))
    return written(export(card, encoding, dim, heads, **options))


def written(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the constant tensors of an exported graph to data for JSON."""
    constants = {name: numbers(value) for name, value in graph["constants"].items()}
    return {**graph, "constants": constants}


@cache
def operations() -> frozenset[str]:
    """Return the names of the operations of the browser's interpreter, read from its source."""
    code = (files("posenc.show.explorer") / INTERPRETER).read_text("utf-8")
    table = code.partition("const OPERATIONS")[2].partition("\n};")[0]
    return frozenset(re.findall(r'^  "([\w.]+)":', table, re.MULTILINE))


def numbers(x: Tensor) -> dict[str, Any]:
    """Convert a tensor to data for JSON: numbers if it is short, otherwise base64 of its bytes.

    The bytes are float32 if that is exact, otherwise float64.
    """
    x = x.detach()
    form: dict[str, Any] = {"shape": [*x.shape], "dtype": str(x.dtype).removeprefix("torch.")}
    if x.numel() <= FEW_NUMBERS or not x.is_floating_point():
        return form | {"values": x.flatten().tolist()}
    short = torch.equal(x.float().double(), x.double())
    raw = x.float() if short else x.double()
    data = base64.b64encode(bytes(raw.cpu().flatten().view(torch.uint8).tolist()))
    return form | {"float32" if short else "float64": data.decode()}
