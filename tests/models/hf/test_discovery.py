"""Test the discovered facts about a model against its config, and the messages for other models."""

from types import SimpleNamespace

import pytest
import torch
import transformers as T
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from posenc import ALiBi, NoPE, RoPE, Sinusoidal, Sum, frequencies
from posenc.core.encoding import leaves
from posenc.models.adapter import applied, apply
from posenc.models.config.parse import specify
from posenc.models.hf import discovery
from posenc.models.hf.discovery import discover, find_base

SIZE = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
REST = dict(intermediate_size=48, initializer_range=0.3, pad_token_id=0, max_position_embeddings=64)
GROUPED = SIZE | REST | dict(num_key_value_heads=2)
LATENT = dict(q_lora_rank=12, kv_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=6)
EXPERTS = dict(n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1)
DEEPSEEK = SIZE | REST | LATENT | EXPERTS | dict(v_head_dim=10, num_key_value_heads=4)
LAYERS = ["sliding_attention", "full_attention"]
HALF = dict(rope_type="default", rope_theta=10_000.0, partial_rotary_factor=0.5)
GPTJ = dict(vocab_size=50, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, initializer_range=0.3)
MODELS = {
    "LlamaModel": GROUPED,
    "Qwen2Model": GROUPED,
    "Gemma3TextModel": GROUPED | dict(head_dim=8, layer_types=LAYERS, query_pre_attn_scalar=13),
    "Phi3Model": GROUPED | dict(rope_parameters=HALF),
    "GPTNeoXModel": SIZE | REST | dict(rope_parameters=HALF),
    "GPTJModel": GPTJ,
    "Llama4TextModel": GROUPED
    | dict(head_dim=8, num_local_experts=2, intermediate_size_mlp=16, no_rope_layers=[1, 0]),
    "DeepseekV3Model": DEEPSEEK,
    "CohereModel": GROUPED,
    "GraniteModel": GROUPED | dict(attention_multiplier=0.2),
    "GptOssModel": GROUPED | dict(head_dim=8, num_local_experts=4, layer_types=LAYERS),
}
EVERY = pytest.mark.parametrize("name", MODELS)


def model(name, **more):
    torch.manual_seed(0)
    config = getattr(T, name.removesuffix("Model") + "Config")
    return getattr(T, name)(config(**MODELS[name] | more)).eval()


@EVERY
def test_what_is_measured_is_what_the_config_says(name):
    """Compare frequencies, rotated channels, layout and softmax scale of every layer."""
    built = model(name)
    expected = specify(built.config.to_dict()).encodings()
    for site, stated in zip(discover(built).sites, expected, strict=True):
        torch.testing.assert_close(site.own.scale(site.dim), stated.scale(site.dim))
        stated = next(iter(leaves(stated)))  # Llama 4 sharpens its queries beside
        assert type(site.own) is type(stated)
        if isinstance(stated, RoPE):
            torch.testing.assert_close(site.own.freqs, stated.freqs, rtol=1e-4, atol=1e-6)
            found = site.layout, site.trailing, site.rotated, site.dim
            assert found == (stated.layout, stated.trailing, stated.turned, stated.dim)


@EVERY
def test_the_encodings_of_its_config_make_it_what_it_was(name):
    """The softmax scales of Gemma 3 27B and Granite are not 1/√channels, and must apply once."""
    built, text = model(name), torch.randint(3, 50, (2, 9))
    with torch.no_grad():
        own = built(text)[0]
        for wrapped in (False, True):
            encodings = specify(built.config.to_dict()).encodings()
            with applied(built, [Sum(one) for one in encodings] if wrapped else encodings):
                torch.testing.assert_close(built(text)[0], own, atol=1e-5, rtol=1e-4)


def test_a_scale_that_no_encoding_states_stays_the_models():
    built = model("GraniteModel")
    with applied(built, ALiBi(4)):
        scaled = built(torch.arange(3, 12)[None])[0]
    built = model("GraniteModel", attention_multiplier=0.35)
    with applied(built, ALiBi(4)):
        assert (built(torch.arange(3, 12)[None])[0] - scaled).abs().max() > 1e-3


def test_a_head_on_top_is_left_aside():
    whole = T.LlamaForCausalLM(T.LlamaConfig(**GROUPED))
    assert find_base(whole) is whole.model
    masked = T.ModernBertForMaskedLM(T.ModernBertConfig(**SIZE | REST, bos_token_id=1))
    assert find_base(masked) is masked.model
    opt = T.OPTForCausalLM(T.OPTConfig(**SIZE, ffn_dim=48, word_embed_proj_dim=32))
    assert find_base(opt) is opt.model.decoder


def test_measuring_leaves_a_model_as_it_was():
    built = model("LlamaModel").train()
    built.layers[0].mlp.eval()
    before = [m.training for m in built.modules()], {*vars(built.layers[0].self_attn)}
    state = torch.get_rng_state()
    discover(built)
    assert ([m.training for m in built.modules()], {*vars(built.layers[0].self_attn)}) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert built.config._attn_implementation == "sdpa"


def test_a_table_of_rows_is_found_by_what_it_does():
    built = T.GPT2Model(T.GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=4)).eval()
    plan = discover(built)
    assert plan.tables == ("wpe",)
    assert torch.equal(plan.rows, built.wpe.weight[:8])


@pytest.mark.parametrize(
    ("name", "encoding", "can"),
    [
        ("LlamaModel", RoPE(8, layout="half"), True),
        ("LlamaModel", RoPE(8), False),  # neighbours
        ("LlamaModel", RoPE(4, dim=8, layout="half"), False),  # its rotation turns whole heads
        ("LlamaModel", NoPE(), True),
        ("LlamaModel", Sinusoidal(32), True),
        ("LlamaModel", ALiBi(4), False),
        ("LlamaModel", Sum(RoPE(8, layout="half")), False),
        ("GPTNeoXModel", RoPE(2, dim=8, layout="half"), True),
        ("GPTJModel", RoPE(4, dim=8), True),
        ("GPTJModel", RoPE(2, dim=8), True),  # pairs of neighbours may be left one by one
        ("GPTJModel", RoPE(8), False),
        ("DeepseekV3Model", RoPE(8, dim=14, trailing=True), True),
        ("DeepseekV3Model", RoPE(8, dim=14), False),  # its last channels turn
        ("GptOssModel", RoPE(8, layout="half"), True),
        ("CohereModel", RoPE(frequencies(8)), True),
    ],
)
def test_its_own_rotation_serves_what_it_can_rotate(name, encoding, can):
    assert discover(model(name)).sites[0].can_rotate(encoding) == can


# refused by a sentence ---------------------------------------------------------------------------


def bloom():
    return T.BloomModel(T.BloomConfig(vocab_size=50, hidden_size=32, n_layer=1, n_head=4))


def bart():
    layers = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=4)
    more = dict(decoder_attention_heads=4, encoder_ffn_dim=16, decoder_ffn_dim=16)
    return T.BartModel(T.BartConfig(vocab_size=50, d_model=32, **layers, **more))


def vit():
    return T.ViTModel(T.ViTConfig(**SIZE | dict(intermediate_size=16, image_size=32)))


def empty():
    with torch.device("meta"):
        return T.LlamaModel(T.LlamaConfig(**GROUPED))


def with_a_strange_rotation():
    """The name of its rotary class is unusual, so its cosines are not found."""
    built = model("LlamaModel")
    rotary = type(built.rotary_emb)
    built.rotary_emb.__class__ = type("Waves", (rotary,), {})
    return built


def with_a_bias_of_its_own():
    """Replace its kernel by one that adds a bias which is not among its arguments."""

    def odd(module, q, k, v, mask, scaling, dropout=0.0, **more):
        at = torch.arange(q.shape[2])
        added = -(at.view(-1, 1) - at[: k.shape[2]]).abs().float()
        out = nn.functional.scaled_dot_product_attention(
            q, k, v, added, scale=scaling, enable_gqa=True
        )
        return out.transpose(1, 2), None

    AttentionInterface.register("odd", odd)
    AttentionMaskInterface.register("odd", sdpa_mask)
    built = model("LlamaModel")
    built.config._attn_implementation = "odd"
    return built


REFUSED = {
    "Linear is not a model of transformers": lambda: nn.Linear(2, 2),
    "LlamaModel is not a model of transformers": type("LlamaModel", (nn.Module,), {}),
    "BartModel has an encoder and a decoder": bart,
    "BloomModel computes attention outside transformers' attention registry": bloom,
    "ViTModel has no token embeddings": vit,
    "`model` must have weights, got a LlamaModel on the meta device": empty,
    "LlamaModel uses positions in another way than a rotation or a table": with_a_strange_rotation,
    "LlamaModel has another output with its own encoding applied": with_a_bias_of_its_own,
}


@pytest.mark.parametrize(("why", "make"), REFUSED.items(), ids=REFUSED)
def test_a_model_that_none_can_be_plugged_into_is_refused_by_name(why, make):
    built = make()
    before = {**vars(built)}
    with pytest.raises(TypeError, match=why):
        apply(built, NoPE())
    assert vars(built).keys() == before.keys()


def test_queries_and_keys_that_nothing_turns_have_no_channels_that_turn():
    call = SimpleNamespace(q=torch.randn(1, 2, 5, 8), k=torch.randn(1, 2, 5, 8))
    own, turns = discovery._rotation(call, call, [4, 8])
    assert (type(own), turns) == (NoPE, 0)
