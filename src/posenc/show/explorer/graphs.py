"""Graphs of encodings: each one's own Python, exported for an interpreter in the browser.

    {"inputs": {"pos": ["token"], …}, "constants": {"freqs": {"shape": [8], …}, …},
     "nodes": [["sin.default", ["$5"]], …], "outputs": {"scores": "$9", …}, …}

Values are numbered: inputs first, then constants, then nodes; "$5" is the sixth. A node may have
named arguments, and the dtype of what comes out, where that is not float64. A graph holds for any
number of tokens, and rounds where the encoding does. What it learns is as it is at
first: `torch.manual_seed(seed)`, then `create(name, dim, heads, **options)`, makes the same.

    embedded        x with what is added to it            from pos, x
    q, k            as they enter the dot product         from pos, q, k, hidden, head
    bias, scores    (1, 1, query, key), before softmax    from pos, q, k, hidden, head

`hidden` is the input of the layer, which some encodings read. All but `embedded` is of one head,
number `head`; the others are not computed, but where an encoding computes all of them at once.
Pairs that an encoding made for causal attention does not see are −∞.
"""

import base64
import inspect
import json
import re
import traceback
import warnings
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.overrides import TorchFunctionMode, resolve_name

from posenc.compat.tracing import with_matrix_functions
from posenc.core import hooks
from posenc.core.biases import ALL, FEW_QUERIES, ScoreBias, dense, pairs
from posenc.core.encoding import Encoding, placed
from posenc.core.masks import causal
from posenc.core.positions import folded
from posenc.core.prepared import Prepared
from posenc.properties.card import Card
from posenc.properties.probe import in_float64

DIM, HEADS, SEED = 16, 4, 0
SMALL_TABLES: dict[str, dict[str, Any]] = {"learned": {"length": 128}, "deberta": {"reach": 32}}
FIRST_TOKENS = 11  # unlike any other size, for torch takes sizes that are equal at first for one
# Numbers of tokens, within which no encoding chooses another way to compute the same: biases of
# content by offset have products of their own for few. The graph holds for all.
FEWEST_TOKENS, MOST_TOKENS = FEW_QUERIES + 1, 2048
OPERATION = type(torch.ops.aten.add.Tensor)
FEW_NUMBERS = 16  # values of a tensor that are written as numbers; more of them as bytes
SAME_WITHIN = 1e-13  # difference allowed between two ways to compute a head
IDENTITIES = {"alias.default", "clone.default", "detach.default", "detach_.default"}
# These return their input
IDENTITIES |= {"lift_fresh_copy.default", "contiguous.default"}
INTERPRETER = "interpreter.js"


class GraphInputs(NamedTuple):
    """The inputs of a graph: q and k (1, head, token, channel), x and hidden (1, token, width).

    Additive encodings add to x; the layer reads `hidden`. `head`, (1,), is the one that is shown.
    """

    pos: Tensor
    q: Tensor
    k: Tensor
    x: Tensor
    hidden: Tensor
    head: Tensor


class LastCall(TorchFunctionMode):
    """A record of the function of torch that was called last, to be named if it failed."""

    name = ""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.name = resolve_name(function) or getattr(function, "__name__", str(function))
        return function(*args, **(kwargs or {}))


class Hooks(nn.Module):
    """Module whose outputs are all that an encoding does before the softmax, by name."""

    def __init__(self, encoding: Encoding, alone: bool = False):
        super().__init__()
        self.encoding, self.alone, self.last = encoding, alone, LastCall()

    def forward(
        self, pos: Tensor, q: Tensor, k: Tensor, x: Tensor, hidden: Tensor, head: Tensor
    ) -> dict[str, Tensor]:
        with self.last:
            return outputs(self.encoding, GraphInputs(pos, q, k, x, hidden, head), self.alone)


def outputs(encoding: Encoding, content: GraphInputs, alone: bool = False) -> dict[str, Tensor]:
    """Compute all outputs of the graph. `alone`: scores are computed of the shown head only."""
    pos, q, k, x, hidden, head = content
    tensors, acts_on, at = {}, encoding.acts_on, encoding.prepare(pos)
    if "on_embeddings" in acts_on:
        tensors["embedded"] = hooks.applied("on_embeddings", placed(encoding, at, at), x)
    if "on_hidden" in acts_on:
        at = hooks.hidden(encoding, hidden, at)
    # By the channels of a head, to which `on_queries` may add some
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
    """Take one head: (1, head, …) -> (1, 1, …)."""
    return x if x.shape[1] == 1 else x.index_select(1, head)


def at_of_head(at: Any, head: Tensor) -> Any:
    """Take the part of a `Prepared` that belongs to this head, where it has heads."""
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
    """Test whether the hook of scores gives each head the same alone as among all heads.

    It does where no head has parameters of its own there: then the others need no scores. No rule
    says for which encodings, so the outputs are compared.
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
    """The bias of every pair in this head: by the function of one pair, where there is one."""
    of_pair = bias.pair()
    if of_pair is None:
        return of_head(bias.block(ALL, ALL, seen), head).expand(shape)
    b, _, i, j = pairs(shape)
    return of_pair(b, head.view(1, 1, 1, 1), i, j).expand(shape)


def make(card: Card, dim: int = DIM, heads: int = HEADS, **options: Any) -> Encoding:
    """Make the encoding as it begins, with small tables and the seed that the page shows."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return card.make(dim, heads, **SMALL_TABLES.get(card.slug, {}) | options)


def content(encoding: Encoding, tokens: int, dim: int = DIM, heads: int = HEADS) -> GraphInputs:
    """Seeded q, k, x and hidden, standing one after another; points fill a square or a cube.

    An encoding that adds no bias and names no number of heads does the same in each: one is enough.
    """
    dim, heads = encoding.dim or dim, encoding.heads or heads
    random, width = torch.Generator().manual_seed(SEED), encoding.width or dim * heads
    if not (encoding.heads or "on_scores" in encoding.acts_on):
        heads = 1
    q, k = (torch.randn(1, heads, tokens, dim, generator=random).double() for _ in "qk")
    x, hidden = (torch.randn(1, tokens, width, generator=random).double() for _ in range(2))
    return GraphInputs(folded(tokens, encoding.axes), q, k, x, hidden, torch.tensor([heads - 1]))


def with_tensors(encoding: Encoding, names: Collection[str] = ()) -> Encoding:
    """Copy an encoding into float64; these of its floats become tensors: constants of a graph."""
    twin = in_float64(encoding)
    for name in names:
        path, _, last = name.rpartition(".")
        module = vars(twin.get_submodule(path))
        module[last] = torch.tensor(module[last], dtype=torch.float64)
    return twin


def export(card: Card, encoding: Encoding, dim: int = DIM, heads: int = HEADS) -> ExportedProgram:
    """The program of all hooks, for any number of tokens.

    Raises ValueError, which names the operation, for what cannot be exported.
    """
    seeded = content(encoding, FIRST_TOKENS, dim, heads)
    tokens = Dim("tokens", min=FEWEST_TOKENS, max=MOST_TOKENS)
    hooks, example = Hooks(encoding, one_head_suffices(encoding, seeded)), tuple(seeded)
    dynamic = ({0: tokens}, {2: tokens}, {2: tokens}, {1: tokens}, {1: tokens}, None)
    try:
        with torch.no_grad(), with_matrix_functions(), warnings.catch_warnings():
            # torch warns about its own changes
            warnings.simplefilter("ignore", FutureWarning)
            program = torch.export.export(hooks, example, dynamic_shapes=dynamic, strict=False)
            return program.run_decompositions()
    except Exception as error:
        raise ValueError(_not_exported(card, encoding, hooks.last.name, error)) from error


def _not_exported(card: Card, encoding: Encoding, name: str, error: Exception) -> str:
    try:
        own = inspect.getfile(type(encoding))
    except (OSError, TypeError):
        own = ""  # the code was typed in
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    where = f" ({Path(own).name}, line {lines[-1]})" if lines else ""
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return (
        f"{card.name} cannot be exported: `{name}`{where} is not the same for every input; write it"
        f" with operations on tensors that read none of their values. It said: {why}"
    )


def graph(card: Card, dim: int = DIM, heads: int = HEADS, **options: Any) -> dict[str, Any]:
    """The graph of an encoding, ready to be written as JSON.

    Raises ValueError, which names the operation, for what cannot be exported, or not be run.
    """
    encoding = in_float64(make(card, dim, heads, **options))
    return written(card, encoding, export(card, encoding, dim, heads), dim, heads, **options)


def written(
    card: Card,
    encoding: Encoding,
    program: ExportedProgram,
    dim: int = DIM,
    heads: int = HEADS,
    **options: Any,
) -> dict[str, Any]:
    """Write a program as JSON. Raises ValueError for operations the interpreter does not have."""
    writer = Written(program)
    unknown = sorted(writer.operations - operations())
    if unknown:
        raise ValueError(
            f"{card.name} uses {', '.join(f'`{name}`' for name in unknown)}, which the explorer"
            " cannot run: write it with other operations on tensors."
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
        **writer.to_json(),
    }


@cache
def operations() -> frozenset[str]:
    """The operations that the interpreter has: read from its table, so it cannot lie."""
    code = (files("posenc.show.explorer") / INTERPRETER).read_text("utf-8")
    table = code.partition("const OPERATIONS")[2].partition("\n};")[0]
    return frozenset(re.findall(r'^  "([\w.]+)":', table, re.MULTILINE))


class Written:
    """A program as inputs, constants, nodes and outputs; what no output needs is left out."""

    def __init__(self, program: ExportedProgram):
        self.program = program
        self.references: dict[str, Any] = {}  # references by the name of a node
        self.inputs: dict[str, list[Any]] = {}
        self.constants: dict[str, Tensor] = {}
        self.nodes: list[list[Any]] = []
        self.outputs: dict[str, str] = {}
        self.output_nodes = output_nodes(program)
        self.needed = _needed(self.output_nodes.values())
        self._number_inputs()
        self._number_nodes()

    @property
    def operations(self) -> set[str]:
        return {node[0] for node in self.nodes}

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "constants": {name: numbers(value) for name, value in self.constants.items()},
            "nodes": self.nodes,
            "outputs": self.outputs,
        }

    def _number_inputs(self) -> None:
        values = inputs(self.program)
        holders = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        inner = {node: name for node, (name, value) in values.items() if value is not None}
        outer = [node for node in values if node not in inner and holders[node] in self.needed]
        kept = [node for node in inner if holders[node] in self.needed]
        for number, node in enumerate([*outer, *kept]):
            self.references[node] = f"${number}"
        for node in outer:
            shape = holders[node].meta["val"].shape
            self.inputs[node] = [size if isinstance(size, int) else "token" for size in shape]
        self.constants = {inner[node]: values[node][1] for node in kept}  # type: ignore[misc]

    def _number_nodes(self) -> None:
        first, same = len(self.references), {}
        for node in self.program.graph.nodes:
            if node.op != "call_function" or node not in self.needed:
                continue
            options = {key: self._argument(value) for key, value in node.kwargs.items()}
            options = {key: value for key, value in options.items() if value is not None}
            dtype = _dtype(node.meta["val"])
            written = [operation(node), self._argument(node.args)]
            if written[0] == "sym_size.int" and "pos" in self.inputs and _is_input(node.args[0]):
                # All inputs have as many tokens as `pos`
                written[1] = [self.references["pos"], 0]
            written += [options] if options or dtype else []
            written += [dtype] if dtype else []
            if written[0] in IDENTITIES:
                self.references[node.name] = written[1][0]
                continue
            # The same operation on the same values is done once
            key = json.dumps(written)
            if key not in same:
                same[key] = f"${first + len(self.nodes)}"
                self.nodes.append(written)
            self.references[node.name] = same[key]
        self.outputs = {
            name: self.references[node.name] for name, node in self.output_nodes.items()
        }

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.references[value.name]
        if isinstance(value, list | tuple):
            return [self._argument(item) for item in value]
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, float) and not abs(value) < torch.inf:
            # JSON has no inf, -inf or nan, so they are written as strings
            return str(value)
        if isinstance(value, torch.device | torch.layout | torch.memory_format):
            return None
        return value


def inputs(program: ExportedProgram) -> dict[str, tuple[str, Tensor | None]]:
    """List inputs by node, in order: (name, None) of arguments, (name, value) of constants."""
    by_node: dict[str, tuple[str, Tensor | None]] = {}
    for spec in program.graph_signature.input_specs:
        # A token orders the checks, and holds no value
        if spec.kind is InputKind.TOKEN:
            continue
        if spec.kind is InputKind.USER_INPUT:
            by_node[spec.arg.name] = spec.arg.name, None
            continue
        target = str(spec.target)
        value = program.state_dict.get(target, program.constants.get(target))
        assert isinstance(value, Tensor)
        by_node[spec.arg.name] = target.removeprefix("encoding."), value
    return by_node


def output_nodes(program: ExportedProgram) -> dict[str, fx.Node]:
    """The nodes of the outputs, by name."""
    nodes = {node.name: node for node in program.graph.nodes}
    output_values = [
        nodes[str(spec.arg.name)]
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    names = program.call_spec.out_spec.context  # type: ignore[union-attr]
    return dict(zip(names, output_values, strict=True))


def operation(node: fx.Node) -> str:
    """The name of an operation: "add.Tensor" of torch's, "py.mul" of Python's on sizes."""
    if isinstance(node.target, OPERATION):
        return str(node.target).removeprefix("aten.")
    return f"py.{getattr(node.target, '__name__', node.target)}"


def _is_input(value: Any) -> bool:
    return isinstance(value, fx.Node) and value.op == "placeholder"


def _dtype(value: Any) -> str:
    """The dtype of what comes out; empty for float64, and for sizes."""
    if not isinstance(value, Tensor) or value.dtype is torch.float64:
        return ""
    return str(value.dtype).removeprefix("torch.")


def _needed(outputs: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes that these outputs are computed from, without checks."""
    needed: set[fx.Node] = set()
    left = [*outputs]
    while left:
        node = left.pop()
        if node not in needed:
            needed.add(node)
            left += node.all_input_nodes
    return needed


def numbers(x: Tensor) -> dict[str, Any]:
    """Write a tensor in JSON: few values as numbers, many as bytes, of float32 if exact."""
    x = x.detach()
    form: dict[str, Any] = {"shape": [*x.shape], "dtype": str(x.dtype).removeprefix("torch.")}
    if x.numel() <= FEW_NUMBERS or not x.is_floating_point():
        return form | {"values": x.flatten().tolist()}
    short = torch.equal(x.float().double(), x.double())
    raw = x.float() if short else x.double()
    data = base64.b64encode(bytes(raw.cpu().flatten().view(torch.uint8).tolist()))
    return form | {"float32" if short else "float64": data.decode()}
