"""Argument names of other libraries, against the error message that gives posenc's name.

The libraries: torch (`scaled_dot_product_attention`, `MultiheadAttention`, FlexAttention),
flash-attn, xformers, and transformers.
"""

import inspect

import pytest
import torch
from refusals import refused

from posenc import Block, NoPE, SelfAttention, attend, explain
from posenc.support.foreign_arguments import ATTENTION, LAYER, LAYER_CALL, reject_foreign_names

q = torch.randn(1, 2, 3, 4)
layer = SelfAttention(8, 2, NoPE())
x = torch.randn(1, 3, 8)


def missing(name, remedy):
    return refused(TypeError, f"`{name}`", remedy)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("f", [attend, explain])
def test_attention_answers_names_of_other_libraries(f, name):
    with missing(name, ATTENTION[name]):
        f(q, q, q, NoPE(), **{name: None})


@pytest.mark.parametrize("name", LAYER)
@pytest.mark.parametrize("f", [SelfAttention, Block])
def test_layers_answer_them(f, name):
    if name in inspect.signature(f).parameters:
        return
    with missing(name, LAYER[name]):
        f(8, 2, NoPE(), **{name: None})


@pytest.mark.parametrize("name", LAYER_CALL)
@pytest.mark.parametrize("module", [layer, Block(8, 2, NoPE())], ids=["layer", "block"])
def test_their_calls_answer_them(module, name):
    with missing(name, LAYER_CALL[name]):
        module(x, **{name: None})


def test_the_first_arguments_may_be_left_to_the_other_library():
    with refused(TypeError, "`attend`", "`query`", "`q`"):
        attend(query=q, key=q, value=q)
    with refused(TypeError, "`SelfAttention`", "`embed_dim`", "`width`"):
        SelfAttention(embed_dim=8, num_heads=2)


def test_what_no_library_has_is_answered_by_python():
    with refused(TypeError, "'colour'"):
        attend(q, q, q, NoPE(), colour=1)


@pytest.mark.parametrize("f", [attend, explain, SelfAttention, Block, layer.forward])
def test_signatures_are_those_of_the_functions(f):
    assert not {"args", "named", "kwargs"} & {*inspect.signature(f).parameters}
    assert inspect.signature(attend).parameters["scale"].default is None
    assert attend.__module__ == "posenc.attention.attend"


@pytest.mark.parametrize("f", [attend, explain, SelfAttention, Block, layer.forward])
def test_no_name_is_taken_from_the_function_itself(f):
    """Each table has none of the arguments of the functions that it answers for, but `Block`'s."""
    own = {*inspect.signature(f).parameters} - ({"causal"} if f is Block else set())
    names = {attend: ATTENTION, explain: ATTENTION, SelfAttention: LAYER, Block: LAYER}
    assert not own & {*names.get(f, LAYER_CALL)}


def test_an_argument_of_the_function_is_its_own():
    @reject_foreign_names({"causal": "pass `mask`", "attn_mask": "pass `mask`"})
    def f(causal=False):
        return causal

    assert f(causal=True) is True
    with missing("attn_mask", "pass `mask`"):
        f(attn_mask=None)
