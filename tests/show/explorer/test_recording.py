"""Recordings of small functions, held against the functions themselves at other lengths."""

import pytest
import torch
from torch import nn

from posenc.show.explorer.recording import Differs, Graph, Recording, run, tensors_of

TOKENS = 11, 13, 31


def inputs(tokens):
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, 4, generator=generator, dtype=torch.float64)
    return {"pos": torch.arange(tokens), "x": x}


def graph_of(function, constants=None):
    recordings = [Recording(inputs(n), constants or {}, function) for n in TOKENS]
    return Graph(recordings).to_json()


def check(function, constants=None):
    """The graph gives what the function gives, of 2 tokens as of 50."""
    graph = graph_of(function, constants)
    for tokens in (2, 50):
        given = inputs(tokens)
        made, wanted = run(graph, given), function(*given.values())
        assert made.keys() == wanted.keys()
        for name, value in wanted.items():
            torch.testing.assert_close(made[name], value)
    return graph


def test_sizes_follow_from_the_number_of_tokens():
    """n, n², 2 n − 1 and 4 n + 3, and a size that is the same for all."""

    def function(pos, x):
        n = len(pos)
        offsets = torch.arange(2 * n - 1).double() - (n - 1)
        flat, long = (x @ x.mT).reshape(n * n), torch.ones(4 * n + 3, dtype=x.dtype)
        return {"offsets": offsets, "flat": flat, "long": long, "few": x[:2].reshape(8)}

    graph = check(function)
    names = {node[0] for node in graph["nodes"]}
    assert {"sym_size.int", "py.mul", "py.add"} <= names
    assert graph["inputs"] == {"x": ["token", 4]} | graph["inputs"]


def test_a_size_that_is_no_sum_of_products_is_refused():
    with pytest.raises(Differs) as refused:
        graph_of(lambda pos, x: {"half": x[: len(pos) // 2]})
    assert refused.value.operation == "slice.Tensor"


def test_other_operations_for_longer_texts_are_refused():
    with pytest.raises(Differs) as refused:
        graph_of(lambda pos, x: {"y": x.sin() if len(pos) < 20 else x.cos()})
    assert refused.value.operation == "sin.default"


@pytest.mark.parametrize(
    "reads",
    [
        lambda pos, x: {"y": x * 2 if x.sum() > 0 else x},
        lambda pos, x: {"y": x * x.sum().item()},
        lambda pos, x: {"y": x[: int(pos.max())]},
        lambda pos, x: {"y": x * torch.tensor(x.tolist(), dtype=x.dtype)},
        lambda pos, x: {"y": x * torch.from_numpy(x.numpy().copy())},
    ],
)
def test_values_are_not_read(reads):
    with pytest.raises((ValueError, RuntimeError)):
        graph_of(reads)


def test_what_a_function_writes_into_its_own_tensors_is_recorded():
    """A row is replaced, a transposed view is added to, and a mask is filled."""

    def function(pos, x):
        y = torch.zeros(len(pos), 4, dtype=x.dtype)
        y[0] = x[1] * 3
        y.mT.add_(1)
        y.masked_fill_(x > 0, 7.0)
        return {"y": y}

    check(function)


def test_several_results_of_one_operation_are_told_apart():
    check(lambda pos, x: dict(zip("abc", x.split([1, 2, 1], -1), strict=True)))


def test_the_same_on_the_same_is_done_once_and_what_nothing_needs_is_left_out():
    def function(pos, x):
        x.exp()
        return {"y": x.sin() + x.sin()}

    assert [node[0] for node in graph_of(function)["nodes"]] == ["sin.default", "add.Tensor"]


def test_constants_have_the_names_of_the_module():
    """Parameters, buffers, other tensors and those of parts; one of numbers gets a name too."""
    part = nn.Linear(4, 4).double()
    part.register_buffer("shift", torch.ones(4).double())
    whole = nn.Sequential(part)
    whole.scale = torch.tensor(3.0).double()

    def function(pos, x):
        y = part(x) + part.shift + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return {"y": y * whole.scale}

    with torch.no_grad():
        graph = check(function, tensors_of(whole))
        *named, other = graph["constants"]
        assert {*named} == {"0.weight", "0.bias", "0.shift", "scale"}
        assert graph["constants"][other].tolist() == [1, 2, 3, 4]
        moved = run(graph, inputs(5) | {"scale": torch.tensor(6.0).double()})
        torch.testing.assert_close(moved["y"], 2 * function(*inputs(5).values())["y"])


def test_infinite_numbers_and_dtypes_are_written_as_text():
    def function(pos, x):
        return {"y": x.masked_fill(x > 0, -torch.inf), "z": pos.to(torch.float32)}

    nodes = check(function)["nodes"]
    assert any("-inf" in node[1] for node in nodes)
    assert {"dtype": "float32"} in [node[2] for node in nodes if len(node) > 2]
