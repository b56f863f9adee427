"""A model's attention, called with what its hooks hand it, against `attend` with the same."""

import importlib
import sys

import pytest
import torch

from posenc import (
    ALiBi,
    NoPE,
    attend,
    masks,
)
from posenc.models.hf.hooks import Attention, attention_function


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "posenc.models.hf.hooks")
    with pytest.raises(ImportError, match=r"python -m pip install 'transformers>=5,<6'"):
        importlib.import_module("posenc.models.hf.hooks")


def test_a_cap_and_sinks_that_a_model_hands_to_its_attention_are_heeded():
    q, k, v = (torch.randn(1, n, 6, 8) for n in (4, 2, 2))
    pos, sinks = torch.arange(6).unsqueeze(0), torch.randn(4)
    ours = Attention(NoPE(), pos, None, ALiBi(4), pos, pos, 6, 0)
    more = {"softcap": 0.5, "s_aux": sinks, "posenc": ours}
    out, _ = attention_function(torch.nn.Module(), q, k, v, None, 0.3, **more)
    sees = masks.causal()
    expected = attend(q, k, v, ALiBi(4), pos, mask=sees, scale=0.3, softcap=0.5, sinks=sinks)
    torch.testing.assert_close(out, expected.transpose(1, 2))
