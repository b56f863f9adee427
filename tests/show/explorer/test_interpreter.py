"""Single operations of the interpreter, at shapes that no encoding has, held against torch."""

import pytest
import torch
from javascript import evaluate

from posenc.show.explorer import graphs

RUN = """(cases) => cases.map(({ node, inputs }) => {
  const names = Object.keys(inputs);
  const given = Object.fromEntries(names.map((name) => [name, read(inputs[name])]));
  const empty = Object.fromEntries(names.map((name) => [name, []]));
  const outputs = { out: `$${names.length}` };
  const { out } = run({ name: "one", inputs: empty, constants: {}, nodes: [node], outputs }, given);
  const shown = Array.from(values(out), (v) => (Number.isFinite(v) ? v : String(v)));
  return { shape: out.shape, values: shown };
})"""


def assert_equal(cases, **close):
    """Return cases: the operation, tensors, other arguments, named arguments, and the result."""
    written = [
        {
            "node": [name, [*(f"${n}" for n in range(len(tensors))), *plain], named],
            "inputs": {f"x{n}": graphs.numbers(x) for n, x in enumerate(tensors)},
        }
        for name, tensors, plain, named, _ in cases
    ]
    for case, found in zip(cases, evaluate(["interpreter.js"], RUN, written), strict=True):
        got = torch.tensor([*map(float, found["values"])], dtype=torch.float64).view(found["shape"])
        torch.testing.assert_close(got, case[-1].double(), **close)


def random(*shape):
    return torch.randn(shape, dtype=torch.float64)


def test_products_of_odd_and_even_sizes():
    sizes = [(1, 1, 1), (2, 4, 4), (3, 5, 7), (4, 1, 9), (7, 16, 2), (8, 3, 12)]
    pairs = [(random(2, n, k), random(2, k, m)) for n, k, m in sizes]
    cases = [("bmm.default", pair, [], {}, pair[0] @ pair[1]) for pair in pairs]
    cases += [("mm.default", (a[0], b[0]), [], {}, a[0] @ b[0]) for a, b in pairs]
    assert_equal(cases, atol=1e-13, rtol=1e-13)


def test_products_of_triangles():
    """Zeros at the ends of rows and columns are left out; not where another number is infinite."""
    lower, upper = random(1, 70, 70).tril(-3), random(1, 70, 67).triu(9)
    band = random(1, 70, 70).tril(2).triu(-2)
    pairs = [(lower, lower), (lower, upper), (upper.mT, lower), (band, band.mT), (0 * band, lower)]
    beyond = lower.clone()
    beyond[0, 69, 0], beyond[0, 68, 3] = torch.inf, torch.nan
    pairs += [(lower, beyond), (beyond, band)]
    cases = [("bmm.default", pair, [], {}, pair[0] @ pair[1]) for pair in pairs]
    assert_equal(cases, atol=1e-12, rtol=1e-12, equal_nan=True)


def test_triangles_are_solved_from_either_side():
    cases = []
    for upper in (False, True):
        for left in (False, True):
            for unit in (False, True):
                for n, many in ((5, 1), (5, 4), (5, 6), (37, 3)):
                    a = random(2, 1, n, n) / n + 4 * torch.eye(n)
                    b = random(3, n, many) if left else random(3, many, n)
                    how = {"upper": upper, "left": left, "unitriangular": unit}
                    out = torch.linalg.solve_triangular(a, b, **how)
                    cases.append(("linalg_solve_triangular.default", (a, b), [], how, out))
    assert_equal(cases, atol=1e-11, rtol=1e-11)


def test_exp_of_matrices():
    """Small matrices, zeros, rotations of many turns, and multiples in any order."""
    skew, flat = random(3, 5, 5), torch.zeros(1, 3, 3).double()
    steps = torch.tensor([0, 1, 2, 2, 5, 3, 0, 40, 41, -1, 0.5, 1]).view(-1, 1, 1).double()
    shrinking, growing = torch.full((2, 2), -3.0).triu().double(), random(4, 4).float().double()
    each = [random(2, 4, 4), flat, 40 * (skew - skew.mT), random(1, 1, 1)]
    each += [
        steps * (skew[:1] - skew[:1].mT).float().double(),
        steps * shrinking,
        growing * steps / 16,
    ]
    cases = [("linalg_matrix_exp.default", (x,), [], {}, torch.matrix_exp(x)) for x in each]
    assert_equal(cases, atol=1e-11, rtol=1e-11)


def test_halves_sums_and_buckets():
    x, edges = random(2, 3, 4), torch.tensor([-1.0, 0.0, 0.0, 0.5]).double()
    on_edges = torch.tensor([-1.0, 0.0, 0.25, 0.5, 9.0]).double()
    cases = [
        (f"{name}.default", (x,), [shift], {}, getattr(torch, name)(x, shift))
        for name in ("tril", "triu")
        for shift in (-5, -2, 0, 1, 4, 9)
    ]
    cases += [("cumsum.default", (x,), [d], {}, x.cumsum(d)) for d in (0, 1, -1)]
    cases += [("sum.dim_IntList", (x.mT,), [[0, 2], True], {}, x.mT.sum((0, 2), keepdim=True))]
    cases += [("amax.default", (x,), [[1]], {}, x.amax(1))]
    for right in (False, True):
        out = torch.bucketize(on_edges, edges, right=right)
        cases.append(("bucketize.Tensor", (on_edges, edges), [], {"right": right}, out))
    assert_equal(cases, atol=1e-14, rtol=1e-14)


def test_steps_between_numbers_of_any_layout():
    """A transposed tensor, one that repeats, and a number, which all broadcast."""
    x, row = random(3, 4, 5), random(5)
    cases = [
        ("add.Tensor", (x.mT.contiguous().mT, row), [], {}, x + row),
        ("add.Tensor", (x, row), [], {"alpha": 3}, x + 3 * row),
        ("sub.Tensor", (x, row), [], {"alpha": 3}, x - 3 * row),
        ("where.self", ((x > 0).double(), x, row), [], {}, torch.where(x > 0, x, row)),
        ("clamp.default", (x,), [None, 0.5], {}, x.clamp(None, 0.5)),
        ("div.Tensor_mode", (x, row), [], {"rounding_mode": "floor"}, (x / row).floor()),
        ("div.Tensor_mode", (x, row), [], {"rounding_mode": "trunc"}, (x / row).trunc()),
    ]
    assert_equal(cases, atol=1e-15, rtol=1e-15)


def test_where_a_page_may_not_make_functions_of_text_all_operations_share_a_loop():
    script = """({ node, inputs }) => {
      globalThis.Function = function () { throw new EvalError("unsafe-eval"); };
      const graph = { name: "one", inputs: { x: [] }, constants: {}, nodes: [node] };
      const { out } = run({ ...graph, outputs: { out: "$1" } }, { x: read(inputs.x) });
      return Array.from(values(out));
    }"""
    x = torch.tensor([-1.0, 0.0, 2.0])
    inputs = {"x": graphs.numbers(x)}
    argument = {"node": ["relu.default", ["$0"]], "inputs": inputs}
    assert evaluate(["interpreter.js"], script, argument) == [0, 0, 2]


CHAIN = """({ inputs, nodes, share }) => {
  const Own = Function;
  if (share) globalThis.Function = function () { throw new EvalError("unsafe-eval"); };
  const names = Object.keys(inputs);
  const given = Object.fromEntries(names.map((name) => [name, read(inputs[name])]));
  const empty = Object.fromEntries(names.map((name) => [name, []]));
  const outputs = { out: `$${names.length + nodes.length - 1}` };
  const { out } = run({ name: "chain", inputs: empty, constants: {}, nodes, outputs }, given);
  globalThis.Function = Own;
  return { shape: out.shape, values: Array.from(values(out)) };
}"""


def test_products_with_a_row_that_repeats():
    x, row = random(1, 40, 70), random(70)
    nodes = [["expand.default", ["$1", [1, 70, 70]]], ["bmm.default", ["$0", "$2"]]]
    nodes += [["permute.default", ["$2", [0, 2, 1]]], ["bmm.default", ["$0", "$4"]]]
    nodes += [["sub.Tensor", ["$3", "$5"]]]
    wide = row.expand(1, 70, 70)
    inputs = {"x": graphs.numbers(x), "row": graphs.numbers(row)}
    found = evaluate(["interpreter.js"], CHAIN, {"inputs": inputs, "nodes": nodes, "share": False})
    got = torch.tensor(found["values"], dtype=torch.float64).view(found["shape"])
    torch.testing.assert_close(got, x @ wide - x @ wide.mT, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("share", [False, True])
def test_a_chain_of_steps_is_one_loop_with_the_same_numbers(share):
    """Steps through views, read once or twice, folded or multiplied in strips, against torch."""
    x, row, column, weights = random(70, 3, 40), random(40), random(70, 1, 1), random(40, 1)
    sums = [["mul.Tensor", ["$0", "$1"]], ["add.Tensor", ["$4", "$2"]], ["exp.default", ["$5"]]]
    stepped = (x * row + column).exp()
    twice = [*sums, ["mul.Tensor", ["$6", "$6"]], ["sub.Tensor", ["$7", "$6"]]]
    seen = [*sums, ["unsqueeze.default", ["$6", 1]], ["squeeze.dim", ["$7", 1]]]
    each = [
        (sums, stepped),
        (twice, stepped * stepped - stepped),
        ([*seen, ["sub.Tensor", ["$8", "$1"]]], stepped - row),
        ([*sums, ["view.default", ["$6", [210, 40]]], ["mm.default", ["$7", "$3"]]],
         stepped.view(210, 40) @ weights),
        ([*sums, ["sum.dim_IntList", ["$6", [-1]]]], stepped.sum(-1)),
        ([*sums, ["sum.dim_IntList", ["$6", [1, 2]]]], stepped.sum((1, 2))),
        ([*sums, ["sum.dim_IntList", ["$6", [0]]]], stepped.sum(0)),
        ([*sums, ["permute.default", ["$6", [2, 0, 1]]], ["neg.default", ["$7"]]],
         -stepped.permute(2, 0, 1)),
        ([*sums, ["flip.default", ["$6", [0]]], ["relu.default", ["$7"]]], stepped.flip(0)),
    ]  # fmt: skip
    tensors = {"x": x, "row": row, "column": column, "weights": weights}
    inputs = {name: graphs.numbers(one) for name, one in tensors.items()}
    for nodes, wanted in each:
        argument = {"inputs": inputs, "nodes": nodes, "share": share}
        found = evaluate(["interpreter.js"], CHAIN, argument)
        got = torch.tensor(found["values"], dtype=torch.float64).view(found["shape"])
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
