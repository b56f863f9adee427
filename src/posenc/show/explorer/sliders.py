"""Sliders of the explorer: the constants of an encoding's graph for many values of an option.

    {"base": {"values": [1000, …, 10000, …], "at": 5, "marked": [10000, 50000, …],
              "constants": {"freqs": …}}, …}

An option has a slider if it is a float and the graph with the constants of another value gives the
same results as an encoding made with that value. This is tested for each option. The n-th constant
belongs to value n, number `at` is the default, and values of published models are marked. Only one
of several sliders that change the same constant can differ from its default.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, TypedDict

import torch
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.core.positions import folded
from posenc.properties.card import Card
from posenc.properties.probe import in_float64
from posenc.show.explorer import graphs
from posenc.show.explorer.recording import run, tensors_of

BASES = [digit * 10**power for power in range(3, 7) for digit in (1, 1.5, 2, 3, 5, 7)] + [10**7]
STEPS, DOUBLING = 20, 2  # values on either side of the default; steps that double the value
SHARES = 20  # steps between 0 and 1
TOKENS_SERVED = 256  # text length in tokens with which each value must work
TOLERANCE = 1e-12
NEVER = {"dim", "heads", "width", "freqs"}
Graph = Mapping[str, Any]


class Slider(TypedDict):
    values: list[float]
    at: int  # index of the default value
    marked: list[float]  # values in published models
    constants: dict[str, list[dict[str, Any]]]  # constants by name, one for each value


def graph_and_sliders(
    card: Card,
    bases: Sequence[float] = (),
    dim: int = graphs.DIM,
    heads: int = graphs.HEADS,
    **options: Any,
) -> tuple[dict[str, Any], dict[str, Slider]]:
    """Return an encoding's graph, and a slider for each of its numeric options, by name.

    `bases`, between a thousand and ten million, are the values of `base` to try and mark.
    Raises ValueError with the name of the operation that cannot be exported or run.
    """
    known = [base for base in bases if BASES[0] <= base <= BASES[-1]]
    return SliderMaker(card, dim, heads, options, known).graph()


def graph_or_sentence(
    card: Card, bases: Sequence[float] = ()
) -> tuple[dict[str, Any], dict[str, Slider]]:
    """Export an encoding's graph and sliders; if this fails, return the reason and no sliders."""
    try:
        return graph_and_sliders(card, bases)
    except ValueError as error:
        return {"name": card.name, "slug": card.slug, "sentence": str(error)}, {}


@dataclass
class SliderMaker:
    """A builder of one encoding's sliders, which tries many values of each option."""

    card: Card
    dim: int
    heads: int
    options: dict[str, Any]
    bases: Sequence[float]
    kept: list[str] = field(default_factory=list)  # floats of the encoding that a slider changes

    def graph(self) -> tuple[dict[str, Any], dict[str, Slider]]:
        encoding = self.encoding()
        turned = floats(self.card, encoding)
        self.kept = sorted({name for option in turned.items() for name in self.changed(*option)})
        graph = self.export(encoding)
        sliders = {name: self.slider(graph, name, value) for name, value in turned.items()}
        return graphs.written(graph), {name: one for name, one in sliders.items() if one}

    def encoding(self, **options: Any) -> Encoding:
        encoding = graphs.make(self.card, self.dim, self.heads, **self.options | options)
        return in_float64(encoding)

    def export(self, encoding: Encoding) -> Graph:
        """Record the graph of an encoding.

        If possible, each number that a slider changes becomes a constant of the graph.

        A float on which a branch depends cannot be a constant.
        """
        if self.kept:
            with suppress(ValueError):
                twin = graphs.with_tensors(self.encoding(), self.kept)
                graph = graphs.export(self.card, twin, self.dim, self.heads, **self.options)
                if self.is_right(graph):
                    return graph
            self.kept = []
        return graphs.export(self.card, encoding, self.dim, self.heads, **self.options)

    def slider(self, graph: Graph, name: str, default: float) -> Slider | None:
        marked = self.bases if name == "base" else ()
        tried = steps(default, marked)
        candidates = ((value, self.constants(graph, name, value)) for value in tried)
        by_value = {value: constants for value, constants in candidates if constants}
        changed = [
            constant
            for constant, usual in self.constants(graph, name, default).items()
            if not all(torch.equal(usual, tensors[constant]) for tensors in by_value.values())
        ]
        values = [*by_value]
        if not changed or default not in by_value:
            return None
        ends = {values[0], values[-1], values[len(values) // 3]} - {default}
        if not all(self.is_right(graph, **{name: value}) for value in ends):
            return None
        numbers = {
            constant: [graphs.numbers(tensors[constant]) for tensors in by_value.values()]
            for constant in changed
        }
        marked = [value for value in marked if value in by_value]
        at = values.index(default)
        return {"values": values, "at": at, "marked": marked, "constants": numbers}

    def changed(self, name: str, default: float) -> Iterator[str]:
        """Yield the paths of the encoding's float attributes that change with the option `name`."""
        with suppress(TypeError, ValueError):
            first, moved = self.encoding(), self.encoding(**{name: default * 0.875})
            for path, module in moved.named_modules():
                before = vars(first.get_submodule(path))
                for key, value in vars(module).items():
                    if isinstance(value, float) and value != before.get(key):
                        yield f"{path}.{key}".lstrip(".")

    def constants(self, graph: Graph, name: str, value: float) -> dict[str, Tensor]:
        """Return a graph's constants for one value of an option; {} if the encoding rejects it."""
        try:
            encoding = self.encoding(**{name: value})
            encoding.prepare(folded(TOKENS_SERVED, encoding.axes))
        except (TypeError, ValueError, IndexError):
            return {}
        return constants(graph, graphs.with_tensors(encoding, self.kept))

    def is_right(self, graph: Graph, **options: float) -> bool:
        """Test whether the graph computes the outputs of the encoding with these options."""
        encoding = self.encoding(**options)
        content = graphs.content(encoding, graphs.TOKENS[0], self.dim, self.heads)
        moved = constants(graph, graphs.with_tensors(self.encoding(**options), self.kept))
        with torch.no_grad():
            wanted, got = graphs.outputs(encoding, content), run(graph, content._asdict() | moved)
        return all(
            torch.allclose(
                got[name].double(), x.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
            )
            for name, x in wanted.items()
        )


def floats(card: Card, encoding: Encoding) -> dict[str, float]:
    """Return the numeric options of an encoding with their defaults.

    >>> from posenc import RoPE
    >>> from posenc.catalog import find
    >>> floats(find("rope"), RoPE(8))
    {'base': 10000.0, 'gain': 1.0, 'logit_gain': 1.0}
    """
    source = getattr(card.make, "source", card.make)  # the class of a user's own encoding
    if isinstance(source, Encoding):
        return {}
    asked = [*signature(source).parameters.values()]
    if any(option.kind is Parameter.VAR_KEYWORD for option in asked):
        asked += signature(type(encoding)).parameters.values()
    return {
        option.name: float(option.default)
        for option in asked
        if option.name not in NEVER and _is_float(option) and 0 < option.default < torch.inf
    }


def _is_float(option: Parameter) -> bool:
    # An integer default of a float option, as in `span: float = 512`
    if isinstance(option.default, int):
        return option.annotation in (float, "float") and not isinstance(option.default, bool)
    return isinstance(option.default, float)


def steps(default: float, bases: Collection[float] = ()) -> list[float]:
    """Return the values of a slider for an option, given its default.

    For `base`, these are published and round values. Otherwise, they are shares of 1 for a default
    from 0 to 1, or halves and doubles of the default.
    """
    if bases and BASES[0] <= default <= BASES[-1]:
        return sorted({*map(float, BASES), *bases, default})
    if default < 1:
        return sorted({*(n / SHARES for n in range(1, SHARES + 1)), default})
    return [default * 2 ** (n / DOUBLING) if n else default for n in range(-STEPS, STEPS + 1)]


def constants(graph: Mapping[str, Any], encoding: Encoding) -> dict[str, Tensor]:
    """Return the tensors of an encoding that can be inputs of its recorded graph, by name.

    Constants that the encoding lacks, or has in another shape, are left out.
    """
    own, known = tensors_of(encoding), graph["constants"]
    return {
        name: own[name].detach()
        for name, value in known.items()
        if name in own and own[name].shape == value.shape
    }
