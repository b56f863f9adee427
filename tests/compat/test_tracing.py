"""Tensors as they are, traced, and under the transforms of torch.func."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap

from posenc.compat.tracing import beyond_gradients, has_values, is_eager_cpu


def seen(transform, *inputs):
    """Return the results of both functions for a tensor within one transform or two."""
    said = []

    def function(x):
        said.append((is_eager_cpu(x), beyond_gradients()))
        assert has_values(x) == is_eager_cpu(x)
        return x.sum()

    transform(function)(*inputs)
    return said[0]


def test_plain_tensors_and_parameters_are_readable():
    assert is_eager_cpu(torch.ones(2), torch.nn.Parameter(torch.ones(2)))
    assert not beyond_gradients()


def test_tensors_elsewhere_or_of_other_kinds_are_not():
    assert not is_eager_cpu(torch.ones(2), torch.ones(2, device="meta"))
    assert not is_eager_cpu(torch.nn.Buffer(torch.ones(2)).as_subclass(Other))


def test_tensors_of_any_device_are_visible_but_none_without_values():
    """Without a GPU only tensors without values can be tested, not other devices."""
    assert has_values(torch.ones(2), torch.nn.Parameter(torch.ones(2)))
    assert not has_values(torch.ones(2), torch.ones(2, device="meta"))
    assert not has_values(torch.nn.Buffer(torch.ones(2)).as_subclass(Other))


class Other(torch.Tensor):
    """A tensor that may do anything when it is looked at."""


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of torch's own
def test_first_gradients_are_not_beyond_gradients_and_all_else_is():
    x = torch.ones(3)
    assert seen(grad, x) == (False, False)
    assert seen(lambda f: grad(lambda x: grad(f)(x).sum()), x) == (False, True)
    assert seen(vmap, torch.ones(2, 3)) == (False, True)
    assert seen(lambda f: lambda x: jvp(f, (x,), (x,)), x) == (False, True)


def test_forward_derivatives_are_beyond_gradients():
    with forward_ad.dual_level():
        assert beyond_gradients()
    assert not beyond_gradients()


def test_nothing_is_readable_while_torch_traces():
    said = []

    def function(x):
        said.append((is_eager_cpu(x), has_values(x)))
        return x + 1

    with torch.random.fork_rng():
        graph = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")
        graph(torch.ones(2))
    assert said == [(False, False)]
