"""Record operations of torch at several text lengths, and merge them into one graph.

    recordings = [Recording(inputs_of(tokens), constants, function) for tokens in (11, 13, 97)]
    graph = Graph(recordings).to_json()

Torch runs the function as usual, and each operation is noted with its arguments. A size that
differs between recordings follows from the number of tokens; anything else that differs cannot be
recorded: it was read from the values of a tensor. `run` computes a graph in Python.
"""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functionalize

from posenc.compat.private_torch import DispatchMode
from posenc.compat.tracing import recording

IDENTITIES = {"alias", "clone", "detach", "lift_fresh", "lift_fresh_copy", "contiguous"}
NOT_WRITTEN = torch.device | torch.layout | torch.memory_format
INFINITE = "inf", "-inf", "nan"


@dataclass(frozen=True)
class Value:
    """A reference to a recorded value, such as a tensor, by its index in the recording."""

    number: int


@dataclass(frozen=True)
class Operation:
    """A recorded operation of torch, such as "add.Tensor", or of Python, such as "py.mul"."""

    name: str
    arguments: list[Any]
    options: dict[str, Any]
    dtype: str  # dtype of the result; empty for float64, and for numbers


class Recording(DispatchMode):
    """The record of all operations that torch performs in one call of a function.

    `constants` names the tensors that the function may read beside its inputs; others get numbers.
    """

    def __init__(
        self,
        inputs: Mapping[str, Tensor],
        constants: Mapping[str, Tensor],
        function: Callable[..., Mapping[str, Tensor]],
    ):
        super().__init__()
        # References to all tensors, so that no two of them have the same address
        self.values: list[Any] = [*inputs.values(), *constants.values()]
        self.numbers = {id(value): number for number, value in enumerate(self.values)}
        self.inputs = dict(enumerate(inputs))
        self.constants = dict(enumerate(constants, start=len(inputs)))
        self.calls: dict[int, Operation] = {}  # by the number of the result
        with torch.no_grad(), recording(), self:
            # Tensors that the function writes into become new tensors
            made = functionalize(function, remove="mutations")(*inputs.values())
        self.outputs = {name: self.numbers[id(value)] for name, value in made.items()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.data_dependent_output in func.tags:
            raise ValueError(
                "the encoding reads values of a tensor in Python, which a graph cannot record"
            )
        with self:
            simpler = (decompositions().get(func) or func.decompose)(*args, **kwargs)
        if simpler is not NotImplemented:
            return simpler
        out = func(*args, **kwargs)
        options = {name: self._written(value) for name, value in kwargs.items()}
        call = Operation(str(func).removeprefix("aten."), self._written(args), options, _dtype(out))
        number = self._add(out, call)
        for place, part in enumerate(out if isinstance(out, tuple | list) else ()):
            self._add(part, Operation("py.getitem", [Value(number), place], {}, _dtype(part)))
        return out

    def _add(self, value: Any, call: Operation | None = None) -> int:
        number = self.numbers[id(value)] = len(self.values)
        self.values.append(value)
        if call:
            self.calls[number] = call
        return number

    def _written(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in self.numbers:
                number = self._add(value)
                self.constants[number] = f"constant_{number}"
            return Value(self.numbers[id(value)])
        if isinstance(value, list | tuple):
            return [*map(self._written, value)]
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, float) and not abs(value) < inf:
            # JSON has no inf, -inf or nan, so they are written as strings
            return str(value)
        return None if isinstance(value, NOT_WRITTEN) else value


class Differs(ValueError):
    """Raised if an operation differs between text lengths, so that no single graph fits all."""

    def __init__(self, operation: str):
        super().__init__("it differs with the number of tokens")
        self.operation = operation


class Graph:
    """The graph that computes the recorded function for any number of tokens.

    Values that no output needs are left out, and equal operations on equal values are one node.
    Raises `Differs` for an argument that depends on the number of tokens otherwise than by sums and
    products.
    """

    def __init__(self, recordings: Sequence[Recording]):
        self.recordings, self.first = recordings, recordings[0]
        _check_alike(recordings)
        self.tokens = [one.values[0].shape[0] for one in recordings]
        needed = _needed(self.first)
        self.inputs = {n: name for n, name in self.first.inputs.items() if n in needed}
        self.constants = {n: name for n, name in self.first.constants.items() if n in needed}
        places = enumerate([*self.inputs, *self.constants])
        self.references = {number: f"${place}" for place, number in places}
        self.before, self.nodes, self.same = len(self.references), [], {}
        for number in sorted(needed & self.first.calls.keys()):
            self.references[number] = self._reference(number)

    def to_json(self) -> dict[str, Any]:
        """Return the graph as plain data; only its constants are tensors."""
        return {
            "inputs": {name: self._shape(n) for n, name in self.inputs.items()},
            "constants": {
                name: self.first.values[n].detach() for n, name in self.constants.items()
            },
            "nodes": self.nodes,
            "outputs": {name: self.references[n] for name, n in self.first.outputs.items()},
        }

    def _reference(self, number: int) -> str:
        calls = [one.calls[number] for one in self.recordings]
        name, dtype = calls[0].name, calls[0].dtype
        try:
            arguments = self._merged([call.arguments for call in calls])
            options = {
                key: self._merged([call.options[key] for call in calls]) for key in calls[0].options
            }
        except (ValueError, KeyError):
            raise Differs(name) from None
        if name.partition(".")[0] in IDENTITIES:
            return arguments[0]
        return self._node(
            name, arguments, {k: v for k, v in options.items() if v is not None}, dtype
        )

    def _node(
        self, name: str, arguments: list[Any], options: Mapping[str, Any] = {}, dtype: str = ""
    ) -> str:
        written = [
            name,
            arguments,
            *([options] if options or dtype else []),
            *([dtype] if dtype else []),
        ]
        key = json.dumps(written)
        if key not in self.same:
            self.same[key] = f"${self.before + len(self.nodes)}"
            self.nodes.append(written)
        return self.same[key]

    def _merged(self, values: Sequence[Any]) -> Any:
        """Merge an argument's values at several text lengths into one that holds for any length."""
        first = values[0]
        if isinstance(first, list):
            return [self._merged(parts) for parts in zip(*values, strict=True)]
        if all(value == first for value in values):
            return self.references[first.number] if isinstance(first, Value) else first
        return self._size(values)

    def _size(self, values: Sequence[int]) -> Any:
        """Express a size as a formula of the number of tokens n.

        `values` are the sizes in the recordings, each with its own n.

        The formula is n · a + b with |b| < n, where a is a number or another such formula.
        """
        if len({*values}) == 1:
            return values[0]
        for below in (0, 1):
            rests = {value % n - below * n for value, n in zip(values, self.tokens, strict=True)}
            if len(rests) == 1:
                (rest,) = rests
                factor = self._size(
                    [(v - rest) // n for v, n in zip(values, self.tokens, strict=True)]
                )
                size = (
                    self._tokens()
                    if factor == 1
                    else self._node("py.mul", [self._tokens(), factor])
                )
                return self._node("py.add", [size, rest]) if rest else size
        raise ValueError

    def _tokens(self) -> str:
        number, shape = next((n, s) for n in self.inputs if "token" in (s := self._shape(n)))
        return self._node("sym_size.int", [self.references[number], shape.index("token")])

    def _shape(self, number: int) -> list[int | str]:
        shapes = zip(*(one.values[number].shape for one in self.recordings), strict=True)
        return [sizes[0] if len({*sizes}) == 1 else "token" for sizes in shapes]


def _check_alike(recordings: Sequence[Recording]) -> None:
    """Raise `Differs` unless recordings at all text lengths have equal operations and constants."""
    first, *others = recordings
    names = [[(n, call.name) for n, call in one.calls.items()] for one in recordings]
    for alike in zip_longest(*names, fillvalue=(0, "the end")):
        if len({*alike}) > 1:
            raise Differs(alike[0][1])
    for other in others:
        for number, name in first.constants.items():
            if not torch.equal(first.values[number], other.values[number]):
                raise Differs(name)


def _needed(recording: Recording) -> set[int]:
    """Return the indices of all recorded values on which the outputs depend."""
    needed: set[int] = set()
    left: list[Any] = [*map(Value, recording.outputs.values())]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, Value) and value.number not in needed:
            needed.add(value.number)
            if call := recording.calls.get(value.number):
                left += [call.arguments, *call.options.values()]
    return needed


def run(graph: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Run a graph, and return its outputs by name.

    - `tensors`: all inputs by name, and constants that replace those of the graph
    """
    known = {**graph["constants"], **tensors}
    values = [known[name] for name in (*graph["inputs"], *graph["constants"])]

    def read(written: Any) -> Any:
        if isinstance(written, list):
            return [*map(read, written)]
        if isinstance(written, str) and written.startswith("$"):
            return values[int(written[1:])]
        return float(written) if written in INFINITE else written

    for name, arguments, *more in graph["nodes"]:
        options = {key: read(value) for key, value in (more[0] if more else {}).items()}
        if "dtype" in options:
            options["dtype"] = getattr(torch, options["dtype"])
        values.append(_function(name)(*read(arguments), **options))
    return {name: read(reference) for name, reference in graph["outputs"].items()}


def _function(name: str) -> Callable[..., Any]:
    operation, _, overload = name.partition(".")
    if operation == "py":
        return getattr(operator, overload)
    if operation == "view":  # graphs leave out `contiguous`, without which `view` can fail
        return torch.reshape
    return getattr(getattr(torch.ops.aten, operation), overload)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return torch's decomposition table, which rewrites composite operations as simpler ones."""
    return dict(torch.export.default_decompositions())


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return all tensors of a module by path: parameters, buffers and plain attributes."""
    return {
        f"{path}.{name}".lstrip("."): value
        for path, part in module.named_modules()
        for name, value in {**vars(part), **part._parameters, **part._buffers}.items()
        if isinstance(value, Tensor)
    }


def _dtype(value: Any) -> str:
    """Return the name of a tensor's dtype, or "" for float64 and for values other than tensors."""
    if not isinstance(value, Tensor) or value.dtype is torch.float64:
        return ""
    return str(value.dtype).removeprefix("torch.")
