"""Test specifications against published configs and frequencies computed by transformers."""

from dataclasses import replace

import pytest
import torch
from published import KINDS, LAYERS, MODELS, published
from published_rotation import turning

from posenc import NoPE, RoPE, Sum
from posenc.models.config import specify
from posenc.models.config.spec import Spec


@pytest.mark.parametrize("name", KINDS)
def test_published_models_turn_as_transformers_computes(name):
    model, turn = MODELS[name], turning(name)
    refs = model["ref"]
    trained = model.get("original_max_position_embeddings", 10)
    cases = [(refs, 10)]
    if "short" in refs:
        cases = [(refs["short"], trained), (refs["long"], trained + 1)]
    for ref, length in cases:
        theta = turn.frequencies(length)
        theta = theta.sum(0) if theta.ndim == 2 else theta
        assert len(theta) == ref["n"] == turn.turned // 2
        made = [theta[0].item(), theta[len(theta) // 2].item(), theta[-1].item()]
        assert made == pytest.approx([ref["first"], ref["mid"], ref["last"]], rel=1e-6)
        if "sum" in ref:
            assert theta.sum().item() == pytest.approx(ref["sum"], rel=1e-6)
        assert turn.gain == pytest.approx(ref["attention_factor"], rel=1e-9)


@pytest.mark.parametrize("name", KINDS)
def test_published_models_give_ready_encodings(name):
    made = specify(published(name)).text_stack.encodings(length=10)
    assert len(made) in (LAYERS, LAYERS // 4)  # Qwen3.5 attends in every fourth layer
    for encoding in made:
        parts = list(encoding) if isinstance(encoding, Sum) else [encoding]
        assert isinstance(parts[0], (RoPE, NoPE))
    turn = (
        next(e for e in made if isinstance(e, RoPE))
        if any(isinstance(e, RoPE) for e in made)
        else next(iter(next(e for e in made if isinstance(e, Sum))))
    )
    width = turn.dim
    q, k = torch.randn(2, 1, 2, 5, width)
    pos = torch.arange(5)
    pos = pos if turn.axes == 1 else pos[:, None].expand(5, turn.axes)
    assert turn(q, k, pos)[0].shape == q.shape


def test_a_spec_shows_itself_as_a_small_card():
    """The card must list each kind of layer once, escaped, instead of 916 characters of fields."""
    spec = specify(
        {"model_type": "gemma3_text", "num_hidden_layers": 6, "max_position_embeddings": 131072,
         "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 1024}
    )  # fmt: skip
    assert repr(spec) == "Spec('gemma3_text', 6 layers of 2 kinds)"
    html = spec._repr_html_()
    assert [html.count(part) for part in ("<tr>", "Rotary(", "window=1024")] == [3, 2, 1]
    assert "context 131,072" in html
    hidden = replace(spec, model="<script>", notes=("<b>",))._repr_html_()
    assert "<script>" not in hidden
    assert "<b>" not in hidden.replace("<b>&lt;script&gt;</b>", "")
    assert Spec("", "nothing")._repr_html_().startswith("<div")
