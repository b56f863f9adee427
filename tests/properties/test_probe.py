"""Measured encodings against those that the user passes: their numbers, sizes and gradients."""

import pytest
import torch
from refusals import refused
from torch import nn

from posenc.catalog import CATALOG
from posenc.core.encoding import Encoding, Sum
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import check
from posenc.properties.probe import Probe


class Layers(Encoding):
    """Turns queries and keys by a layer, whatever their positions."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.5)

    def on_queries(self, q, at):
        normed = self.norm(self.layer(q).flatten(0, -2)).view_as(q)
        return self.drop(normed)

    def on_keys(self, k, at):
        return self.layer(k)


def test_an_encoding_with_layers_inside_is_measured():
    holding = {name for name, finding in check(Layers()).items() if finding.holds}
    assert holding == {
        *("shift_invariant", "symmetric", "any_length", "length_independent", "learned"),
        *("bounded", "norm_constant", "linear_shift"),
    }


def test_layers_are_measured_to_the_last_digit_of_float64():
    """By the product in Python's own numbers."""
    torch.manual_seed(0)
    encoding = Layers()
    weight, bias = encoding.layer.weight.double(), encoding.layer.bias.double()
    probe = Probe(encoding)
    rows = Probe(encoding).encoding.on_keys(torch.ones(1, 1, 1, 16, dtype=torch.float64), None)
    expected = [sum(row) + b for row, b in zip(weight.tolist(), bias.tolist(), strict=True)]
    assert rows.flatten().tolist() == pytest.approx(expected, abs=1e-14)
    assert probe.scores(probe.line(4), probe.line(4)).dtype == torch.float64


def test_the_encoding_itself_stays_as_it_was():
    encoding = Layers()
    encoding.layer(torch.ones(2, 16)).sum().backward()
    kept = {name: value.clone() for name, value in encoding.state_dict().items()}
    grad = encoding.layer.weight.grad.clone()
    check(encoding)
    assert encoding.training
    assert encoding.layer.weight.grad.equal(grad)
    for name, value in encoding.state_dict().items():
        assert value.dtype == kept[name].dtype, name
        assert value.equal(kept[name]), name


def test_tensors_that_are_no_parameter_are_measured_in_float64_too():
    class Matrix(Encoding):
        def __init__(self):
            super().__init__()
            self.matrix = torch.linalg.qr(torch.randn(16, 16)).Q

        def on_queries(self, q, at):
            return q @ self.matrix

        on_keys = on_queries

    encoding = Matrix()
    assert check(encoding)["norm_preserving"].holds
    assert encoding.matrix.dtype == torch.float32


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_encoding_is_measured_with_the_numbers_it_holds(card):
    """θ and slopes are the same, and parameters widened."""
    encoding = card.make(16, 4)
    twin = Probe(encoding).encoding
    assert twin is not encoding
    for name, value in encoding.named_parameters():
        assert dict(twin.named_parameters())[name].equal(value.double()), name
    for name, value in vars(encoding).items():
        if isinstance(value, torch.Tensor):
            assert vars(twin)[name].equal(value.double()), name


def test_hooks_that_make_another_dtype_are_told_so_and_not_the_sizes():
    class Narrow(Encoding):
        def on_queries(self, q, at):
            return q @ torch.eye(16)

    with refused(ValueError, "float64", "`dtype=q.dtype`"):
        check(Narrow())


def test_what_cannot_be_copied_is_refused_in_a_sentence():
    class Made(Encoding):
        def __init__(self):
            super().__init__()
            self.skew = nn.Parameter(torch.randn(16, 16))
            self.turn = torch.matrix_exp(self.skew - self.skew.mT)

    with refused(ValueError, "`encoding`"):
        check(Made())


def test_an_encoding_is_tried_in_the_sizes_it_was_made_for():
    probe = Probe(Sum(RoPE(6), ALiBi(3)))
    assert (probe.dim, probe.heads, probe.width) == (6, 3, 18)
