"""The checker of types in tests refuses what annotations forbid, held against calls that do it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from checker import jaxtyped
from jaxtyping import Float, TypeCheckError
from thorough import THOROUGH
from torch import Tensor

import posenc

Row, Column = Float[Tensor, "left"], Float[Tensor, "right"]


@jaxtyped
def product(a: Row, b: Column, cut: int = 0) -> Float[Tensor, "left right"]:
    return torch.outer(a, b)[:, cut:]


@jaxtyped
def square(x: Float[Tensor, "left left"]) -> Float[Tensor, "left left"]:
    return product(x[0], torch.ones(3)) @ torch.ones(3, len(x))  # its `right` is 3, its `left` not


@jaxtyped
def times(row: Row, x: float) -> Row:
    return row * x


@jaxtyped
def half(x: float) -> float:
    return x / 2


@jaxtyped
def named(x: "Row", elsewhere: "OnlyForTypeCheckers" = None) -> None:
    pass


@jaxtyped
@dataclass
class Pair:
    first: Row
    second: Row


@jaxtyped
def sizes(rows: list[Row]) -> Iterator[int]:
    yield from map(len, rows)


def test_axes_of_one_name_agree_within_a_call_and_its_result():
    assert product(torch.ones(2), torch.ones(3)).shape == (2, 3)
    with pytest.raises(TypeCheckError, match="return"):
        product(torch.ones(2), torch.ones(3), cut=1)
    with pytest.raises(TypeCheckError, match="parameter a="):
        product(torch.ones(2, 2), torch.ones(3))
    with pytest.raises(TypeCheckError, match="parameter x="):
        square(torch.ones(2, 3))


def test_a_call_within_a_call_has_sizes_of_its_own():
    assert square(torch.ones(2, 2)).shape == (2, 2)
    assert square(torch.ones(5, 5)).shape == (5, 5)


def test_a_whole_number_is_a_number_and_a_word_is_none():
    assert times(torch.ones(2), 3).tolist() == [3, 3]
    with pytest.raises(TypeCheckError, match="parameter x="):
        times(torch.ones(2), "3")  # pyright: ignore


def test_what_has_no_shapes_is_left_to_pyright_but_in_a_thorough_run():
    assert half(3) == 1.5
    with pytest.raises(TypeCheckError if THOROUGH else TypeError) as refused:
        half("3")  # pyright: ignore
    assert isinstance(refused.value, TypeCheckError) == THOROUGH


def test_a_hint_in_quotes_is_checked_if_it_means_something_here():
    named(torch.ones(2), elsewhere="anything")
    with pytest.raises(TypeCheckError, match="parameter x="):
        named(torch.ones(2, 2))


def test_fields_of_a_dataclass_and_functions_that_yield_are_checked():
    Pair(torch.ones(2), torch.ones(2))
    with pytest.raises(TypeCheckError, match="parameter second="):
        Pair(torch.ones(2), torch.ones(3))
    assert list(sizes([torch.ones(2)])) == [2]
    with pytest.raises(TypeCheckError, match="parameter rows="):
        list(sizes([torch.ones(2, 2)]))


@pytest.mark.usefixtures("unchecked")
def test_it_can_be_left_out():
    assert product(torch.ones(2), torch.ones(3), cut=1).shape == (2, 2)
    with pytest.raises(TypeError, match="unsupported operand"):
        half("3")  # pyright: ignore


def test_the_library_is_checked_by_it(request):
    if not request.config.getoption("jaxtyping_packages"):
        pytest.skip("this run is without the shape checker")
    rope = posenc.RoPE(8)
    with pytest.raises(TypeCheckError, match="parameter q="):
        rope.on_queries(torch.ones(2, 3), rope.prepare(torch.arange(3)))


def scaled(by):
    @jaxtyped
    def times(x: Row) -> Row:
        return x * by

    return times


def test_functions_within_a_function_are_checked_and_keep_what_is_their_own():
    """Both functions share a checker, which calls the right one."""
    double, triple = scaled(2), scaled(3)
    assert double(triple(torch.ones(2))).tolist() == [6, 6]
    assert (triple(torch.ones(1)), double(torch.ones(1))) == (3, 2)
    with pytest.raises(TypeCheckError, match="parameter x="):
        triple(torch.ones(2, 2))
    with pytest.raises(TypeCheckError, match="return"):
        scaled(torch.ones(3, 1))(torch.ones(2))
