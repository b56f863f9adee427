"""Names of attributes and numbers of channels, against the models of transformers themselves."""

import pytest
import torch
import transformers
from torch import nn

from posenc import ALiBi, NoPE, RoPE, Sinusoidal, Sum
from posenc.models.hf.supported import SUPPORTED, find_supported

SIZES = dict(vocab_size=16, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
GROUPED = SIZES | dict(intermediate_size=16, num_key_value_heads=2)
PAD = dict(pad_token_id=0)
LATENT = dict(q_lora_rank=12, kv_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=6)
CONFIGS = {
    "LlamaModel": GROUPED,
    "Qwen2Model": GROUPED,
    "Gemma3TextModel": GROUPED | dict(head_dim=8),
    "Phi3Model": GROUPED | PAD,
    "GPTNeoXModel": SIZES,
    "GPTJModel": dict(vocab_size=16, n_embd=32, n_layer=1, n_head=4, rotary_dim=4),
    "Llama4TextModel": GROUPED | dict(head_dim=8, num_local_experts=2, intermediate_size_mlp=16),
    "DeepseekV3Model": GROUPED | LATENT | dict(num_key_value_heads=4, v_head_dim=10),
}
DIMS = {  # channels of a head, and how many of them turn
    "GPTJModel": (8, 4),
    "DeepseekV3Model": (14, 8),
}


def model(name, **more):
    config = getattr(transformers, name.removesuffix("Model") + "Config")
    with torch.device("meta"):
        return getattr(transformers, name)(config(**CONFIGS[name], **more))


@pytest.mark.parametrize("name", SUPPORTED)
def test_each_is_found_with_what_it_calls_its_parts(name):
    made = model(name)
    base, entry = find_supported(made)
    assert base is made
    assert entry == SUPPORTED[name]
    attention = getattr(getattr(base, entry.layers)[0], entry.attention)
    assert (entry.channels(attention), entry.turning(attention)) == DIMS.get(name, (8, 8))
    grouped = CONFIGS[name].get("num_key_value_heads", 4)
    assert entry.key_heads(attention) == grouped


def test_a_head_on_top_is_left_aside():
    config = transformers.LlamaConfig(**GROUPED)
    with torch.device("meta"):
        whole = transformers.LlamaForCausalLM(config)
    assert find_supported(whole)[0] is whole.model


def test_deepseek_without_interleaving_has_halves():
    assert find_supported(model("DeepseekV3Model", rope_interleave=False))[1].layout == "half"


def test_a_class_of_that_name_from_elsewhere_is_unknown():
    class LlamaModel(nn.Module):
        pass

    with pytest.raises(TypeError, match="LlamaModel is not a model that an encoding can be plu"):
        find_supported(LlamaModel())


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
        ("GPTNeoXModel", RoPE(4, dim=8, layout="half"), True),
        ("GPTJModel", RoPE(4, dim=8), True),
        ("GPTJModel", RoPE(2, dim=8), True),  # pairs of neighbours may be left one by one
        ("GPTJModel", RoPE(8), False),
        ("DeepseekV3Model", RoPE(8, dim=14, trailing=True), True),
        ("DeepseekV3Model", RoPE(8, dim=14), False),  # its last channels turn
    ],
)
def test_its_own_rotation_serves_what_it_can_turn(name, encoding, can):
    base, entry = find_supported(model(name))
    attention = getattr(getattr(base, entry.layers)[0], entry.attention)
    assert entry.can_turn(encoding, attention) == can
