"""The kernels of torch operations against complex numbers in float64, and against the formula."""

import pytest
import torch
from rotation_cases import (
    KERNELS,
    TOKENS,
    WIDTHS,
    as_complex,
    by,
    contiguous,
    dtypes,
    heads,
    layouts,
    of_a_projection,
    ulps,
    widths,
)
from torch.utils._python_dispatch import TorchDispatchMode

from posenc.compat.threads import threads
from posenc.core.frequencies import frequencies
from posenc.rotation.kernels import kernel_for
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import turn
from posenc.rotation.torch_kernels import by_halves


def expanded(x):
    return x[:1, :, :1].expand_as(x)


def at_odd_places(x):
    wider = x.new_zeros(*x.shape[:-1], x.shape[-1] + 3)
    wider[..., 1:-2] = x
    return wider[..., 1:-2]


def backwards_in_memory(x):
    """The channels are not side by side."""
    return x.mT.contiguous().mT


STRIDES = [contiguous, of_a_projection, expanded, at_odd_places, backwards_in_memory]


strides = pytest.mark.parametrize("strided", STRIDES, ids=lambda f: f.__name__)


def assert_same_but_for_the_last_bit(made, expected):
    """float32 may differ in the last bit; after rounding to 16 bits, under 2 in 1,000 differ."""
    rtol = 0 if made.dtype == torch.float32 else 2 * ulps(made.dtype)
    torch.testing.assert_close(made, expected, rtol=rtol, atol=1e-6)
    assert made.dtype == torch.float32 or made.ne(expected).float().mean() < 2e-3


@layouts
@dtypes
@strides
@widths
def test_every_path_gives_what_the_formula_gives(layout, dtype, strided, width, amount):
    start, channels = WIDTHS[width]
    x, at = strided(heads(channels, dtype)), by()
    assert kernel_for(x, at, layout, start) == KERNELS[layout]
    before, version = x.clone(), x._version
    made, exact = rotate(x, at, layout, start), as_complex(x, at, layout, start)
    assert (made.dtype, made.shape, made.device) == (x.dtype, x.shape, x.device)
    assert_same_but_for_the_last_bit(made, formula(x, at, layout, start))
    torch.testing.assert_close(made.double(), exact, rtol=ulps(dtype), atol=1e-6)
    assert x.equal(before)
    assert x._version == version


@layouts
@dtypes
@pytest.mark.parametrize("shape", [(0, 3, TOKENS, 32), (2, 3, 0, 32), (2, 0, TOKENS, 32)], ids=str)
def test_nothing_is_turned_into_nothing(layout, dtype, shape, amount):
    x, at = torch.empty(shape, dtype=dtype), by(torch.arange(shape[2]))
    assert rotate(x, at, layout).shape == shape
    leaf = x.requires_grad_()
    rotate(leaf, at, layout).sum().backward()
    assert leaf.grad.shape == shape


@layouts
@dtypes
def test_no_default_of_torch_changes_the_arithmetic(layout, dtype, amount):
    x, at = heads(32, dtype), by()
    expected, before = rotate(x, at, layout), torch.get_default_dtype()
    for other in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(other)
        try:
            assert rotate(x, at, layout).equal(expected)
        finally:
            torch.set_default_dtype(before)


class Regions(TorchDispatchMode):
    """Counts the operations that write numbers: in each of them all threads meet."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket in (torch.ops.aten.mul, torch.ops.aten.addcmul_)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("count", "most"), [(1, 96), (4, 3)])
def test_several_threads_meet_once_an_operation_and_one_works_in_the_cache(count, most):
    """With a block for each cache four threads met 24 times, and waited beside busy processes."""
    x, table = torch.randn(1, 16, 2048, 128), turn(torch.arange(2048), frequencies(128))
    with threads(count), Regions() as regions:
        turned = by_halves(x, table)
    assert regions.count == most
    torch.testing.assert_close(turned, formula(x, table, "half"), rtol=0, atol=1e-6)
