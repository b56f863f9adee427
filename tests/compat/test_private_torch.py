"""A torch whose private parts are elsewhere, against the definition; and where they are reached."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from refusals import refused
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap

from posenc import attend, masks
from posenc.compat import private_torch
from posenc.compat.tracing import beyond_gradients, is_eager_cpu, transformed
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.fire import FIRE
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.rotary.rope import RoPE

OWN = private_torch.VERSION
SOURCE = Path(private_torch.__file__).parent.parent
PRIVATE = r"\b(torch|forward_ad|functorch)(\.\w+)*\._(?!_)|from torch(\.\w+)*\._|import _pytree"


@pytest.fixture
def bare(monkeypatch):
    """`private` as it is imported beside a torch that has none of what it looks for."""
    torch_without = SimpleNamespace(__version__="99.0", Tensor=torch.Tensor)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch_without)
        patch.setitem(sys.modules, "torch.autograd", SimpleNamespace(forward_ad=None))
        spec = spec_from_file_location("posenc.core.bare", private_torch.__file__)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    for name, part in vars(module).items():
        if not name.startswith("__"):
            monkeypatch.setattr(private_torch, name, part)


def test_nothing_private_of_torch_is_reached_but_here():
    reached = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if re.search(PRIVATE, file.read_text("utf-8"))
    }
    assert reached == {"compat/private_torch.py"}


def test_every_part_is_found_in_this_torch():
    named = re.findall(
        r'optional_attr\(\s*"([\w.]+)"', Path(private_torch.__file__).read_text("utf-8")
    )
    assert len(named) == 16
    for path in named:
        assert private_torch.optional_attr(path, None) is not None, path
    assert isinstance(forward_ad._current_level, int)


def test_without_them_every_function_counts_as_transformed(bare):
    assert transformed()
    assert beyond_gradients()
    assert not is_eager_cpu(torch.ones(2))


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of torch's own
@pytest.mark.parametrize("encoding", [NoPE(), RoPE(8), ALiBi(4), FIRE(4), Shaw(8, 3)], ids=str)
@pytest.mark.parametrize("sinks", [None, torch.arange(4.0).double()], ids=["plain", "sinks"])
def test_without_them_attention_and_its_derivatives_are_those_of_the_definition(
    encoding, sinks, bare
):
    encoding = encoding.double()
    q, k, v = torch.randn(3, 2, 4, 12, 8, dtype=torch.float64)

    def derived(path):
        options = dict(mask=masks.causal(), sinks=sinks, implementation=path)
        f = lambda x: attend(x, k, v, encoding, **options)  # noqa: E731
        return f(q), grad(lambda x: f(x).sin().sum())(q), jvp(f, (q,), (v,)), f

    *got, f = derived("auto")
    *expected, definition = derived("reference")
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(
        vmap(f)(torch.stack([q, v])), torch.stack([expected[0], definition(v)])
    )


def test_without_them_a_function_is_compiled_as_often_as_torch_does(bare):
    assert private_torch.with_recompile_limit(abs, 1_000) is abs


def test_without_them_a_condition_is_asserted_at_once(bare):
    private_torch.assert_async(torch.tensor(True), "none")
    with pytest.raises(RuntimeError, match="one text a row"):
        private_torch.assert_async(torch.tensor(False), "one text a row")


def test_before_torch_2_13_attention_is_left_out_of_what_is_compiled(monkeypatch):
    """2.13 and later follow it in one graph."""
    double = lambda x: 2 * x  # noqa: E731
    monkeypatch.setattr(private_torch, "VERSION", (2, 13))
    assert private_torch.not_compiled_before_2_13(double) is double
    monkeypatch.setattr(private_torch, "VERSION", min(OWN, (2, 12)))
    apart = private_torch.not_compiled_before_2_13(double)
    assert torch.compile(lambda x: apart(x) + 1, backend="eager")(torch.ones(2)).eq(3).all()


@pytest.mark.skipif(private_torch.VERSION < (2, 9), reason="torch gives no reasons before 2.9")
def test_one_graph_is_refused_there_by_name(monkeypatch):
    monkeypatch.setattr(private_torch, "VERSION", (2, 12))
    apart = private_torch.not_compiled_before_2_13(lambda x: 2 * x)
    with refused(RuntimeError, "`attend`", "2.13"):
        torch.compile(lambda x: apart(x) + 1, backend="eager", fullgraph=True)(torch.ones(2))


def test_without_a_dispatch_mode_operations_are_not_counted(bare):
    with refused(RuntimeError, "TorchDispatchMode", "2.13"):
        private_torch.DispatchMode().__enter__()
