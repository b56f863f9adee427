"""Every path of the rotation against complex numbers in float64, and against the plain formula."""

import pytest
import torch
from refusals import refused
from rotation_cases import (
    KERNELS,
    PAIRS,
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
from torch import nn

from posenc import RoPE, frequencies
from posenc.rotation.kernels import kernel_for
from posenc.rotation.rotate import _Rotation, formula, rotate, rotate_keys
from posenc.rotation.table import Turn, turn

forward = pytest.mark.filterwarnings("ignore:`torch.jit")  # of torch's own


@layouts
@dtypes
@pytest.mark.parametrize("strided", [contiguous, of_a_projection], ids=lambda f: f.__name__)
@pytest.mark.parametrize("width", ["whole", "last"])
def test_the_gradient_is_that_of_the_formula(layout, dtype, strided, width, amount):
    start, channels = WIDTHS[width]
    x, at = strided(heads(channels, dtype)), by()
    grads = []
    weights = strided(heads(channels, dtype))
    for way in (rotate, formula):
        leaf = x.clone().requires_grad_()
        way(leaf, at, layout, start).backward(weights)
        grads.append(leaf.grad)
    back = as_complex(weights, Turn(at.cos, -at.sin), layout, start)
    torch.testing.assert_close(grads[0].double(), back, rtol=ulps(dtype), atol=1e-6)
    # autograd rounds both products of the formula to 16 bits before it adds them
    torch.testing.assert_close(*grads, rtol=2 * ulps(dtype), atol=8 * ulps(dtype))


@layouts
def test_the_gradient_of_a_sum_has_no_memory_of_its_own(layout, amount):
    x, at = heads(32).requires_grad_(), by()
    rotate(x, at, layout).sum().backward()
    exact = as_complex(torch.ones_like(x), Turn(at.cos, -at.sin), layout, None)
    torch.testing.assert_close(x.grad.double(), exact, rtol=0, atol=1e-6)


@layouts
def test_gradients_of_gradients(layout, amount):
    """Compare second gradients of a fast path, whose backward pass is a rotation again."""
    x, weights, at = heads(32).requires_grad_(), heads(32).requires_grad_(), by()
    seconds = []
    for way in (rotate, formula):
        loss = (way(x, at, layout) * weights).pow(3).sum()
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        seconds.append(torch.autograd.grad(grad.pow(2).sum(), (x, weights)))
    torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-3)


@forward
@layouts
@widths
def test_finite_differences_in_float64(layout, width):
    start, channels = WIDTHS[width]
    x = torch.randn(1, 1, 1, channels, dtype=torch.float64, requires_grad=True)
    at = by(torch.tensor([50]))
    turned = lambda x: rotate(x, at, layout, start)  # noqa: E731
    assert kernel_for(x, at, layout, start) == "formula"
    assert torch.autograd.gradcheck(turned, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(turned, x)


@layouts
def test_the_backward_keeps_cos_and_sin_only(layout, amount):
    x, at, kept = heads(32).requires_grad_(), by(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        rotate(x, at, layout)
    assert [t.data_ptr() for t in kept] == [at.cos.data_ptr(), at.sin.data_ptr()]


@layouts
def test_without_gradients_no_wrapper_is_entered(layout, amount, monkeypatch):
    def refuse(*_):
        raise AssertionError("entered")

    monkeypatch.setattr(_Rotation, "apply", refuse)
    x, at = heads(32).requires_grad_(), by()
    rotate(x.detach(), at, layout)
    with torch.no_grad():
        rotate(x, at, layout)
    with torch.inference_mode():
        rotate(x, at, layout)
    with pytest.raises(AssertionError, match="entered"):
        rotate(x, at, layout)


@forward
@layouts
@pytest.mark.parametrize("amount", ["many"], indirect=True)
def test_whoever_transforms_the_call_gets_the_formula(layout, amount, unchecked):
    x, at = heads(32), by()
    expected = rotate(x, at, layout)
    assert torch.func.vmap(lambda x: rotate(x, at, layout))(x).equal(formula(x, at, layout))
    made, moved = torch.func.jvp(lambda x: rotate(x, at, layout), (x,), (x,))
    torch.testing.assert_close((made, moved), (expected, expected))
    grad = torch.func.grad(lambda x: rotate(x, at, layout).pow(2).sum())(x)
    torch.testing.assert_close(grad, 2 * x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        tangent = torch.autograd.forward_ad.unpack_dual(rotate(dual, at, layout)).tangent
    torch.testing.assert_close(tangent, expected)


@layouts
def test_texts_and_heads_may_have_angles_of_their_own(layout, amount):
    pos = torch.stack((torch.arange(TOKENS), torch.arange(TOKENS).flip(0) * 100))
    x, at = heads(32), by(pos)
    made = rotate(x, at, layout)
    for text in range(2):
        assert made[text : text + 1].equal(rotate(x[text : text + 1], by(pos[text]), layout))
    for table in ((3, TOKENS, PAIRS), (2, 3, TOKENS, PAIRS)):
        at = Turn(torch.randn(table), torch.randn(table))
        torch.testing.assert_close(rotate(x, at, layout), formula(x, at, layout), rtol=0, atol=1e-6)


@layouts
@dtypes
@widths
def test_heads_that_share_a_key_get_one_each_where_they_stand_elsewhere(
    layout, dtype, width, amount
):
    start, channels = WIDTHS[width]
    k, each = heads(channels, dtype, 2), Turn(*torch.randn(2, 6, TOKENS, PAIRS).unbind())
    made = rotate_keys(k, each, layout, start)
    assert made.equal(rotate(k.repeat_interleave(3, 1), each, layout, start))
    assert rotate_keys(k, by(), layout, start).equal(rotate(k, by(), layout, start))
    for count in (4, 12):
        with refused(ValueError, 6, "`x`", count):
            rotate_keys(heads(channels, dtype, count), each, layout, start)


def learned_loss(way, leaves, layout, start, power):
    x, cos, sin = leaves
    return (way(x, Turn(cos, sin), layout, start).float().pow(power)).sum()


@layouts
@dtypes
@pytest.mark.parametrize("strided", [contiguous, of_a_projection], ids=lambda f: f.__name__)
@pytest.mark.parametrize("table", [(1,), (3,), (2, 3), (1, 1)])
@pytest.mark.parametrize("width", ["whole", "middle"])
def test_learned_cos_and_sin_get_the_gradient_of_the_formula(
    layout, dtype, strided, table, width, amount
):
    start, channels = WIDTHS[width]
    x, (cos, sin) = strided(heads(channels, dtype)), torch.randn(2, *table, TOKENS, PAIRS)
    grads = []
    for way in (rotate, formula):
        leaves = [leaf.clone().requires_grad_() for leaf in (x, cos, sin)]
        grads.append(torch.autograd.grad(learned_loss(way, leaves, layout, start, 2), leaves))
    close = {"rtol": 4 * ulps(dtype), "atol": 100 * ulps(dtype)}
    for ours, expected in zip(*grads, strict=True):
        torch.testing.assert_close(ours, expected, **close)


@layouts
def test_gradients_of_the_gradients_of_learned_cos_and_sin(layout, amount):
    leaves = [leaf.requires_grad_() for leaf in (heads(32), *torch.randn(2, 3, TOKENS, PAIRS))]
    seconds = []
    for way in (rotate, formula):
        loss = learned_loss(way, leaves, layout, None, 3)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        seconds.append(torch.autograd.grad(sum(grad.pow(2).sum() for grad in first), leaves))
    for ours, expected in zip(*seconds, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=0.1)


@layouts
def test_a_learned_frequency_gets_its_gradient(layout, amount):
    freqs, x, pos = nn.Parameter(frequencies(32).float()), heads(32), torch.arange(TOKENS)
    RoPE(freqs, layout=layout)(x, x, pos)[0].pow(3).sum().backward()
    again = freqs.detach().requires_grad_()
    formula(x, turn(pos, again), layout).pow(3).sum().backward()
    torch.testing.assert_close(freqs.grad, again.grad, rtol=1e-4, atol=1e-3)
    at = RoPE(freqs, layout=layout).prepare(pos)
    assert kernel_for(x, at, layout) == KERNELS[layout]
    with torch.no_grad():
        at = RoPE(freqs, layout=layout).prepare(pos)
        assert kernel_for(x, at, layout) == KERNELS[layout]
        assert not at.cos.requires_grad


# What does not fit


WRONG = {
    "`layout` .* got 'neox'": lambda x, at: rotate(x, at, "neox"),
    "`x` .* 32 .* 30": lambda x, at: rotate(x[..., 2:], at, "half"),
    "`x` .* 32 .* channel 4 .* 32": lambda x, at: rotate(x, at, "half", 4),
    "`x` .* 32 .* 31": lambda x, at: rotate(x[..., 1:], at, "half", 0),
    "6 tokens in a batch of 2, .*`x`.* 7 tokens in a batch of 1": lambda x, at: rotate(
        x[..., 1:, :], at, "half"
    ),
    "1 tokens in a batch": lambda x, at: rotate(x[..., :1, :], at, "half"),
    "batch of 2, .*`x`.* in a batch of 3": lambda x, at: rotate(
        x, Turn(*(t.expand(3, 1, -1, -1) for t in at)), "half"
    ),
    "3 heads .*`x`.* 2": lambda x, at: rotate(x, Turn(*(t.expand(2, -1, -1) for t in at)), "half"),
    "`x`.* cpu.* meta": lambda x, at: rotate(x, Turn(at.cos.to("meta"), at.sin.to("meta")), "half"),
    "`x`.* meta.* cpu": lambda x, at: rotate(x.to("meta"), at, "half"),
}


KINDS = {  # of input, each computed by another path
    "few": (lambda x: x, torch.no_grad()),
    "16 bits": (lambda x: x.bfloat16(), torch.no_grad()),
    "gradients": (lambda x: x.requires_grad_(), torch.enable_grad()),
    "formula": (lambda x: x.double(), torch.no_grad()),
}


@pytest.mark.parametrize("says", WRONG)
@pytest.mark.parametrize("kind", KINDS)
def test_says_the_same_on_every_path(says, kind, amount, unchecked):
    change, mode = KINDS[kind]
    with mode, pytest.raises(ValueError, match=says):
        WRONG[says](change(heads(32)), by())


@layouts
@pytest.mark.parametrize("count", [1, 3])
def test_says_which_heads_do_not_fit(layout, count, amount, unchecked):
    at = Turn(*torch.randn(2, 2, TOKENS, PAIRS).unbind())
    with refused(ValueError, 2, "`x`", count):
        rotate(heads(32, count=count), at, layout)


def test_whole_numbers_are_refused(amount, unchecked):
    for dtype in (torch.int64, torch.complex64):
        with refused(TypeError, dtype):
            rotate(torch.ones(2, 3, TOKENS, 32, dtype=dtype), by(), "half")
