"""Results of hooks that attention cannot use: each error message names the class and the hook."""

import ast
from pathlib import Path

import pytest
import torch
from refusals import refused
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from posenc import RoPE, SelfAttention, Sum, attend
from posenc.attention import flex
from posenc.core import encoding as encodings
from posenc.core.encoding import HOOKS, Encoding

DIM, HEADS, TOKENS = 8, 4, 6
PATHS = ("auto", "reference", "blocks")


def heads(count=HEADS, tokens=TOKENS):
    return torch.randn(2, count, tokens, DIM)


def returning(hook, value):
    """Return an encoding with a hook that returns `value`, or `value(*arguments of the hook)`."""
    act = value if callable(value) else lambda *given: value
    return type("Wrong", (Encoding,), {hook: lambda self, *given: act(*given)})()


WRONG = {
    "on_queries drops heads": ("on_queries", lambda q, at: q[:, 1:]),
    "on_queries drops tokens": ("on_queries", lambda q, at: q[:, :, 1:]),
    "on_queries returns nothing": ("on_queries", None),
    "on_queries returns integers": ("on_queries", lambda q, at: q.long()),
    "on_keys adds an axis": ("on_keys", lambda k, at: k[None]),
    "on_keys makes up heads": ("on_keys", lambda k, at: k.repeat(1, 3, 1, 1)),
    "on_values drops tokens": ("on_values", lambda v, at: v[:, :, 1:]),
    "on_values drops a text": ("on_values", lambda v, at: v[1:]),
    "on_output returns nothing": ("on_output", None),
    "queries of another dtype": ("on_queries", lambda q, at: q.double()),
    "keys of another dtype": ("on_keys", lambda k, at: k.bfloat16()),
    "values of another dtype": ("on_values", lambda v, at: v.double()),
    "outputs of another dtype": ("on_output", lambda out, at: out.double()),
    "on_output drops tokens": ("on_output", lambda out, at: out[:, :, 1:]),
    "by_weight of other tokens": ("by_weight", lambda w, q_at, k_at, rows: torch.zeros(5, DIM)),
    "a bias of other tokens": ("on_scores", torch.zeros(TOKENS, TOKENS - 1)),
    "a bias of other heads": ("on_scores", torch.zeros(HEADS + 1, TOKENS, TOKENS)),
    "a bias of 5 axes": ("on_scores", torch.zeros(1, 1, 1, TOKENS, TOKENS)),
    "a bias of True and False": ("on_scores", torch.ones(TOKENS, TOKENS).tril().bool()),
    "a bias of complex numbers": ("on_scores", torch.zeros(TOKENS, TOKENS) * 1j),
    "a pair's bias of True and False": ("on_scores", lambda *given: lambda b, h, i, j: i >= j),
    "a bias of queries and keys alone": ("on_scores", lambda *given: lambda i, j: i - j),
    "a pair's bias of 8 axes": (
        "on_scores",
        lambda *given: lambda b, h, i, j: torch.zeros(1, 1, TOKENS, TOKENS, 2, 1, 1, 1),
    ),
}


@pytest.mark.parametrize(("hook", "value"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("path", PATHS)
def test_a_hook_that_gives_back_another_shape_is_named(unchecked, hook, value, path):
    q = heads()
    with refused(TypeError, f"`Wrong.{hook}`"):
        attend(q, q, q, returning(hook, value), implementation=path)


def test_a_part_of_a_sum_is_named_by_itself(unchecked):
    q, encoding = heads(), Sum(RoPE(DIM), returning("on_values", lambda v, at: v[:, :, 1:]))
    with refused(TypeError, "`Wrong.on_values`", 2, 4):
        attend(q, q, q, encoding)


def test_queries_and_keys_of_unlike_channels_are_refused(unchecked):
    wider = returning("on_queries", lambda q, at: torch.cat((q, q), -1))
    with refused(TypeError, 16, 8):
        attend(heads(), heads(), heads(), wider)


def test_what_is_no_bias_is_refused(unchecked):
    for value, got in ((3, "3"), (lambda *given: lambda i, j: i - j, "(i, j)")):
        with refused(TypeError, "`Wrong.on_scores`", "(batch, head, query, key)", got):
            attend(heads(), heads(), heads(), returning("on_scores", value))


def test_a_function_of_a_pair_may_take_more_than_it_needs():
    q = heads()
    for f in (
        lambda b, h, i, j, slope=2.0: slope * (j - i),
        lambda *index: 2 * (index[3] - index[2]),
    ):
        out = attend(q, q, q, returning("on_scores", lambda *given, f=f: f))
        lines = 2.0 * (torch.arange(TOKENS) - torch.arange(TOKENS).unsqueeze(-1))
        torch.testing.assert_close(out, attend(q, q, q, returning("on_scores", lines)))


def test_a_mask_in_the_place_of_a_bias_is_told_where_it_belongs(unchecked):
    q, seen = heads(), torch.ones(TOKENS, TOKENS).bool()
    with refused(TypeError, "bool"):
        attend(q, q, q, returning("on_scores", seen))


def test_under_autocast_a_hook_may_return_what_torch_makes_there():
    turn = torch.nn.Linear(DIM, DIM)
    encoding, q = returning("on_queries", lambda q, at: turn(q)), heads()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attend(q, q, q, encoding)
    torch.testing.assert_close(out.float(), attend(q, q, q, encoding), rtol=0.1, atol=0.1)


def test_embeddings_keep_their_dtype(unchecked):
    layer = SelfAttention(32, 4, returning("on_embeddings", lambda x, at: x.double()))
    with refused(TypeError, "float32"):
        layer(torch.randn(2, 5, 32))


def test_embeddings_keep_their_shape(unchecked):
    layer = SelfAttention(32, 4, returning("on_embeddings", lambda x, at: x[:, 1:]))
    with refused(TypeError, "`Wrong.on_embeddings`", 2):
        layer(torch.randn(2, 5, 32))


@pytest.mark.parametrize("path", ["auto", "reference", "blocks", "flex"])
@pytest.mark.parametrize(
    "shape", [(), (TOKENS,), (TOKENS, 1), (HEADS, 1, TOKENS), (2, 1, TOKENS, TOKENS)], ids=str
)
@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@torch.no_grad()
def test_a_tensor_is_a_bias(path, shape, monkeypatch):
    """Against softmax(q · kᵀ / √d + bias) · v, written out."""
    monkeypatch.setattr(flex, "_compiled", lambda on_cpu: flex_attention)  # in Python, not in C++
    bias, (q, k, v) = torch.randn(shape), (heads() for _ in range(3))
    out = attend(q, k, v, returning("on_scores", bias), implementation=path)
    expected = (q @ k.mT / DIM**0.5 + bias).softmax(-1) @ v
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_a_tensor_that_is_learned_has_its_gradient():
    """Against autograd of the formula."""
    bias = torch.randn(HEADS, TOKENS, TOKENS, requires_grad=True)
    q, k, v = (heads() for _ in range(3))
    grads = [
        torch.autograd.grad(out.square().sum(), bias)[0]
        for out in (
            attend(q, k, v, returning("on_scores", bias)),
            (q @ k.mT / DIM**0.5 + bias).softmax(-1) @ v,
        )
    ]
    torch.testing.assert_close(*grads)


class Marking(Encoding):
    """Writes its number into what passes it, in the order in which hooks are called."""

    def __init__(self, number, passed):
        super().__init__()
        self.number, self.passed = number, passed

    def on_values(self, v: Tensor, at):
        self.passed.append(("on_values", self.number))
        return v

    def on_output(self, out: Tensor, at):
        self.passed.append(("on_output", self.number))
        return out


def test_outputs_are_turned_back_in_reverse():
    passed, q = [], heads()
    attend(q, q, q, Sum(Marking(1, passed), Sum(Marking(2, passed))))
    assert passed == [("on_values", 1), ("on_values", 2), ("on_output", 2), ("on_output", 1)]


LIBRARY = Path(encodings.__file__).parent.parent
CALLING = [
    file
    for room in ("core", "biases", "attention")
    for file in sorted((LIBRARY / room).rglob("*.py"))
    if file.name != "hooks.py"
]


@pytest.mark.parametrize("file", CALLING, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_hook_is_called_where_its_result_is_checked(file):
    """Against every call in the source: `super().on_scores(…)` would be one too."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            by_check = isinstance(of, ast.Name) and of.id == "hooks"
            assert node.func.attr not in HOOKS or by_check, f"line {node.lineno}"


OF_A_PART = {
    "on_embeddings": lambda whole, x, at: whole.on_embeddings(x[:, 0], at),
    "on_queries": lambda whole, x, at: whole.on_queries(x, at),
    "on_keys": lambda whole, x, at: whole.on_keys(x, at),
    "on_scores": lambda whole, x, at: whole.on_scores(x, x, at, at, 1.0),
    "on_values": lambda whole, x, at: whole.on_values(x, at),
    "by_weight": lambda whole, x, at: whole.by_weight(x @ x.mT, at, at, slice(None)),
    "on_output": lambda whole, x, at: whole.on_output(x, at),
    "on_hidden": lambda whole, x, at: whole.on_hidden(x[:, 0], at),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_sum_that_is_called_by_itself_checks_each_part(unchecked, hook):
    value = None if hook == "on_hidden" else torch.ones(3, 5).bool()
    whole, x = Sum(RoPE(DIM), Sum(returning(hook, value))), heads()
    with refused(TypeError, f"`Wrong.{hook}`"):
        OF_A_PART[hook](whole, x, whole.prepare(torch.arange(TOKENS)))


def test_an_encoding_that_is_called_by_itself_checks_its_hooks(unchecked):
    pos, q = torch.arange(TOKENS), heads()
    for hook, given in (("on_queries", (q, q)), ("on_keys", (q, q)), ("on_embeddings", (q[0],))):
        with refused(TypeError, f"`Wrong.{hook}`"):
            returning(hook, torch.ones(TOKENS, DIM).bool())(*given, pos)
    with refused(TypeError, "`Wrong.on_scores`"):
        returning("on_scores", torch.ones(TOKENS, TOKENS).bool())(pos)


def test_a_layer_names_a_hook_that_forgets_to_return_its_positions(unchecked):
    layer = SelfAttention(32, 4, returning("on_hidden", None))
    with refused(TypeError, "`Wrong.on_hidden`", "None"):
        layer(torch.randn(2, 5, 32))
