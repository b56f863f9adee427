"""Captured queries, keys and scores: against eager attention's own weights, and the projections."""

import sys

import pytest
import torch
from refusals import refused
from small_models import minilm, tiny

from posenc import RoPE, frequencies
from posenc.analysis.capture import NAME, capture

IDS = torch.tensor([[5, 9, 9, 3, 30, 7, 2]])


def attentions(model, inputs):
    """Return the weights that eager attention reports."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(**inputs, output_attentions=True)
    model.set_attn_implementation(before)
    return found


@pytest.mark.parametrize("name", ["Llama", "Gemma3Text", "GPTNeoX", "ModernBert"])
def test_weights_are_those_of_eager_attention(name):
    model = tiny(name)
    for one, weights in zip(
        capture(model, {"input_ids": IDS}),
        attentions(model, {"input_ids": IDS}).attentions,
        strict=True,
    ):
        torch.testing.assert_close(one.weights(), weights, atol=1e-6, rtol=1e-5)


def test_filling_is_not_seen():
    model, mask = tiny("Llama"), torch.tensor([[0, 0, 1, 1, 1, 1, 1]])
    inputs = {"input_ids": IDS, "attention_mask": mask}
    for one, weights in zip(
        capture(model, inputs), attentions(model, inputs).attentions, strict=True
    ):
        assert not one.weights()[..., :2].any()
        torch.testing.assert_close(one.weights()[:, :, 2:], weights[:, :, 2:])


def test_plain_queries_and_keys_are_the_projections_and_rope_turns_them_into_the_others():
    model, projected = tiny("Llama"), []
    for to in (model.layers[0].self_attn.q_proj, model.layers[0].self_attn.k_proj):
        to.register_forward_hook(lambda module, args, out: projected.append(out))
    one = capture(model, {"input_ids": IDS})[0]
    rope = RoPE(frequencies(8, 500.0), layout="half")
    for plain, turned, out in zip(
        (one.q_plain, one.k_plain), (one.q, one.k), projected, strict=False
    ):
        assert plain.equal(out.unflatten(-1, (-1, 8)).transpose(1, 2))
        again, _ = rope(plain, plain)
        torch.testing.assert_close(turned, again)
    assert one.turned
    assert one.k.shape == (1, 2, 7, 8)  # two heads of queries share one of keys


def test_positions_that_the_caller_gives_are_those_that_turn():
    pos = torch.tensor([[0, 1, 2, 3, 40, 41, 42]])
    one = capture(tiny("Llama"), {"input_ids": IDS, "position_ids": pos})[0]
    rope = RoPE(frequencies(8, 500.0), layout="half")
    torch.testing.assert_close(one.q, rope(one.q_plain, one.q_plain, pos)[0])


def test_partial_rotation_leaves_the_rest_alone():
    one = capture(tiny("GPTNeoX"), {"input_ids": IDS})[0]
    assert one.q[..., 4:].equal(one.q_plain[..., 4:])
    assert not one.q[:, :, 1:, :4].allclose(one.q_plain[:, :, 1:, :4])


def test_t5_has_biases_and_attends_across():
    model = tiny("T5")
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :3]}
    found, eager = capture(model, inputs), attentions(model, inputs)
    said = [
        *eager.encoder_attentions,
        *(
            both[layer]
            for layer in range(2)
            for both in (eager.decoder_attentions, eager.cross_attentions)
        ),
    ]
    assert [one.module.split(".")[-1] for one in found[2:4]] == ["SelfAttention", "EncDecAttention"]
    for one, weights in zip(found, said, strict=True):
        assert one.bias is not None
        assert not one.turned
        torch.testing.assert_close(one.weights(), weights, atol=1e-6, rtol=1e-5)


def test_the_model_gives_what_it_gave_and_is_left_as_it_was():
    model = tiny("Llama").train()
    before = model(IDS).last_hidden_state
    capture(model, {"input_ids": IDS})
    assert model(IDS).last_hidden_state.equal(before)
    assert model.config._attn_implementation == "sdpa"
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(hasattr(module, NAME) for module in model.modules())


def test_parts_that_do_not_train_still_do_not():
    model = tiny("Llama").train()
    model.layers[0].eval()
    capture(model, {"input_ids": IDS})
    assert [layer.training for layer in model.layers] == [False, True]


def test_a_mask_of_numbers_is_a_bias_where_it_lets_through():
    model, least = tiny("Llama"), torch.finfo(torch.float32).min
    ahead = torch.full((7, 7), least).triu(1) + torch.randn(7, 7).tril()
    inputs = {"input_ids": IDS, "attention_mask": ahead[None, None]}
    found = capture(model, inputs)
    assert found[0].seen.equal(torch.ones(1, 1, 7, 7).tril().bool())
    assert found[0].bias[0, 0].equal(ahead.tril())
    for one, weights in zip(found, attentions(model, inputs).attentions, strict=True):
        torch.testing.assert_close(one.weights(), weights, atol=1e-6, rtol=1e-5)


def test_what_goes_wrong_inside_leaves_no_trace_either():
    model = tiny("Llama")
    with pytest.raises(IndexError):
        capture(model, {"input_ids": IDS + 10**6})
    assert model.config._attn_implementation == "sdpa"


def test_a_model_without_the_registry_is_refused():
    model = torch.nn.TransformerEncoderLayer(8, 2, 16)
    with refused(TypeError, "TransformerEncoderLayer"):
        capture(model, {"src": torch.randn(3, 1, 8)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["GptOss", "Gemma2"])
def test_sinks_and_softcaps_are_those_of_eager_attention(name, dtype):
    """gpt-oss has a sink for each head, Gemma 2 caps its scores, both in windows too."""
    model = tiny(name).to(dtype)
    for module in model.modules():
        if hasattr(module, "sinks"):
            torch.nn.init.normal_(module.sinks)
    found = capture(model, {"input_ids": IDS})
    said = attentions(model, {"input_ids": IDS}).attentions
    for one, weights in zip(found, said, strict=True):
        assert (one.sinks is None, one.softcap is None) == (name != "GptOss", name != "Gemma2")
        close = dict(atol=1e-6, rtol=1e-5) if dtype is torch.float32 else dict(atol=0.02, rtol=0.1)
        torch.testing.assert_close(one.weights(), weights.float(), **close)


def test_what_the_scores_do_not_explain_is_refused_by_name(monkeypatch):
    """Llama's eager attention is given a term that nobody has heard of."""
    model = tiny("Llama")
    home = sys.modules[type(model).__module__]
    eager = home.eager_attention_forward

    def gated(*args, **kwargs):
        out, weights = eager(*args, **kwargs)
        return out, weights * 0.5

    monkeypatch.setattr(home, "eager_attention_forward", gated)
    with refused(ValueError, "self_attn", "LlamaAttention"):
        capture(model, {"input_ids": IDS})
    assert model.config._attn_implementation == "sdpa"
    monkeypatch.setattr(home, "eager_attention_forward", None)
    with refused(TypeError, "LlamaAttention", "`eager_attention_forward`"):
        capture(model, {"input_ids": IDS})


def test_minilm_is_captured_as_its_eager_attention_says():
    model, tokenizer = minilm()
    inputs = tokenizer("The dog chased another dog.", return_tensors="pt")
    found = capture(model, inputs)
    assert len(found) == 6
    assert found[0].q.shape == (1, 12, 8, 32)
    for one, weights in zip(found, attentions(model, inputs).attentions, strict=True):
        torch.testing.assert_close(one.weights(), weights, atol=1e-5, rtol=1e-4)
