"""Test the function in transformers' registry against `attend` with the same arguments."""

import importlib
import sys

import pytest
import torch
from refusals import refused

from posenc.models.hf.registry import CALL, attention_function


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "posenc.models.hf.registry")
    with refused(ImportError, "'transformers>=5,<6'"):
        importlib.import_module("posenc.models.hf.registry")


def test_what_is_set_on_a_module_attends_in_its_place():
    q, module = torch.randn(1, 4, 6, 8), torch.nn.Module()
    setattr(module, CALL, lambda q, k, v, mask, scale, dropout, **more: q * scale)
    out, weights = attention_function(module, q, q, q, None)
    torch.testing.assert_close(out, q.transpose(1, 2) * 8**-0.5)
    assert weights is None


@pytest.mark.parametrize(
    ("of_module", "argument", "causal"),
    [(True, None, True), (False, None, False), (True, False, False)],
)
def test_without_a_mask_it_is_causal_as_the_module_or_the_call_says(of_module, argument, causal):
    said = []
    module = torch.nn.Module()
    module.is_causal = of_module
    setattr(module, CALL, lambda q, *rest, causal, **more: said.append(causal) or q)
    attention_function(module, *[torch.randn(1, 4, 6, 8)] * 3, None, is_causal=argument)
    assert said == [causal]


def test_a_module_for_which_nothing_attends_is_told_so():
    with refused(ValueError, "Module"):
        attention_function(torch.nn.Module(), *[torch.randn(1, 4, 6, 8)] * 3, None)
