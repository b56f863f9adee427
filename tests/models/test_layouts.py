"""Test permutations against the rotation, Meta's permutation for Llama, and tensor names."""

import tracemalloc

import pytest
import torch
from layout_files import AT, CONFIG, LAYER, planned
from refusals import refused

from posenc import RoPE
from posenc.core.frequencies import frequencies
from posenc.models.files.errors import ModelError
from posenc.models.layouts import permutation, plan

# One head


@pytest.mark.parametrize("trailing", [False, True])
@pytest.mark.parametrize("turned", [2, 6, 16])
@pytest.mark.parametrize(("a", "b"), [("half", "interleaved"), ("interleaved", "half")])
def test_the_other_rotation_turns_the_permuted_channels_alike(a, b, turned, trailing):
    order = permutation(16, turned, b, trailing)
    x, pos = torch.randn(1, 2, 5, 16), torch.arange(5)

    def rotated(x, layout):
        rope = RoPE(frequencies(turned), dim=16, layout=layout, trailing=trailing)
        return rope.on_queries(x, rope.prepare(pos))

    made, expected = rotated(x[..., order], b), rotated(x, a)[..., order]
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)  # but for the last bit


@pytest.mark.parametrize("trailing", [False, True])
def test_the_two_ways_are_inverse_and_what_does_not_turn_stays(trailing):
    there, back = (permutation(10, 6, to, trailing) for to in ("interleaved", "half"))
    assert [there[i] for i in back] == list(range(10))
    still = range(4) if trailing else range(6, 10)
    assert all(there[i] == i for i in still)
    assert there != list(range(10))


def test_it_is_the_permutation_that_metas_llama_was_converted_with():
    heads, dim, width = 3, 8, 5
    w = torch.randn(heads * dim, width)  # interleaved, as Meta ships it
    published = w.view(heads, dim // 2, 2, width).transpose(1, 2).reshape(heads * dim, width)
    ours = w.unflatten(0, (heads, dim))[:, permutation(dim, dim, "half")].flatten(0, 1)
    assert torch.equal(ours, published)


@pytest.mark.parametrize("turned", [0, 3, 10])
def test_only_pairs_within_the_head_turn(turned):
    with refused(ValueError, "`turned`", 2, 8):
        permutation(8, turned, "half")


HEAD = [0, 4, 1, 5, 2, 6, 3, 7]


def test_a_head_of_thousands_of_channels_is_looked_at_before_its_order_is_made():
    wide = {"head_dim": 2**12, "num_attention_heads": 2**16, "num_key_value_heads": 2**16}
    tracemalloc.start()
    with pytest.raises(ModelError, match="must match the config"):
        planned(config=wide)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    scales = {"q_proj.weight_scale_inv": (1, 2)}
    blocks = wide | {"quantization_config": {"weight_block_size": [2**32, 8]}}
    with refused(ModelError, 16, "GiB", 4):
        planned(scales, blocks, without=LAYER)


def test_grouped_heads_move_one_by_one():
    assert planned().orders == {
        AT + "q_proj.weight": [8 * head + i for head in range(4) for i in HEAD],
        AT + "k_proj.weight": [8 * head + i for head in range(2) for i in HEAD],
    }


@pytest.mark.parametrize(
    ("gain", "shape", "heads"),
    [
        ("q_norm.weight", (8,), 1),
        ("k_norm.weight", (8,), 1),
        ("q_norm.weight", (32,), 4),
        ("k_norm.weight", (16,), 2),
        ("k_norm.weight", (2, 8), 2),
        ("q_layernorm.bias", (8,), 1),
        ("q_layernorm.norms.3.weight", (8,), 1),
    ],
)
def test_gains_move_as_what_they_scale(gain, shape, heads):
    order = planned({gain: shape}).orders[AT + gain]
    assert order == [8 * head + i for head in range(heads) for i in HEAD]


def test_a_gate_woven_into_the_queries_stays():
    config = {"model_type": "qwen3_next", "layer_types": ["full_attention"], "head_dim": 8}
    config["partial_rotary_factor"] = 1.0
    gated = planned({"q_proj.weight": (64, 32)}, config)
    order = gated.orders[AT + "q_proj.weight"]
    assert [i for i in order if i % 16 >= 8] == [i for i in range(64) if i % 16 >= 8]
    assert order[:16] == [*HEAD, *range(8, 16)]


@pytest.mark.parametrize("rest", [6, 0])
def test_of_deepseeks_latent_the_key_behind_it_moves(rest):
    config = {"model_type": "deepseek_v3", "kv_lora_rank": 5, "num_key_value_heads": 4}
    config |= {"qk_rope_head_dim": 8, "qk_nope_head_dim": rest, "num_nextn_predict_layers": 0}
    names = {"q_proj.weight": (4 * (rest + 8), 32), "kv_a_proj_with_mqa.weight": (13, 32)}
    names |= {"kv_a_layernorm.weight": (5,), "kv_b_proj.weight": (4 * (rest + 9), 5)}
    moved = planned(names, config, without=LAYER).orders
    assert moved[AT + "kv_a_proj_with_mqa.weight"] == [*range(5), *(5 + i for i in HEAD)]
    queries = moved.pop(AT + "q_proj.weight")
    assert queries[: rest + 8] == [*range(rest), *(rest + i for i in HEAD)]
    assert len(moved) == 1
    with refused(ModelError, "kv_lora_rank"):
        planned(names, config | {"kv_lora_rank": None}, without=LAYER)


def test_of_an_adapter_the_side_of_the_heads_moves():
    names = {f"base_model.{AT}q_proj.{n}": s for n, s in (
        ("lora_A.weight", (2, 32)), ("lora_B.weight", (32, 2)), ("lora_magnitude_vector", (32,))
    )}  # fmt: skip
    moved = planned(names, without=LAYER).orders
    full = planned().orders[AT + "q_proj.weight"]
    assert moved == {f"base_model.{AT}q_proj.{n}": full for n in (
        "lora_B.weight", "lora_magnitude_vector"
    )}  # fmt: skip


def test_scales_of_rows_move_and_those_of_whole_blocks_stay():
    each = planned({"q_proj.weight_scale": (32, 1), "k_proj.weight_scale": (1,)}).orders
    assert each[AT + "q_proj.weight_scale"] == each[AT + "q_proj.weight"]
    assert AT + "k_proj.weight_scale" not in each
    scale = {"q_proj.weight_scale_inv": (4, 4)}
    blocks = {"quantization_config": {"weight_block_size": [8, 8]}}
    assert AT + "q_proj.weight_scale_inv" not in planned(scale, blocks).orders
    for size in ([9, 9], [5, 8]):  # a block ends within a head; a wrong number of blocks
        with refused(ModelError, "q_proj", "weight_scale_inv"):
            planned(scale, {"quantization_config": {"weight_block_size": size}})


def test_layers_that_turn_nothing_are_left_alone():
    config = {"model_type": "smollm3", "num_hidden_layers": 2, "no_rope_layers": [1, 0]}
    second = {f"model.layers.1.self_attn.{n}": shape for n, shape in LAYER.items()}
    plan = planned(second, config)
    assert all(name.startswith("model.layers.0.") for name in plan.orders)
    assert "1 of 2 layers have no rotation and are unchanged" in plan.notes


def test_layers_that_predict_further_tokens_move_too():
    second = {f"model.layers.1.self_attn.{n}": shape for n, shape in LAYER.items()}
    plan = planned(second, {"num_nextn_predict_layers": 1})
    assert len(plan.orders) == 4
    with refused(ModelError, "self_attn", "q_proj"):
        planned(second)


def test_of_several_models_in_one_only_the_text_moves():
    vision = {"model.visual.blocks.0.attn.qkv.weight": (96, 32)}
    text = {"model_type": "qwen2_5_vl_text", "rope_parameters": {"mrope_section": [2, 1, 1]}}
    inner = {"model_type": "qwen2_5_vl", "text_config": CONFIG | text}
    plan = planned(vision, inner, at="model.language_model.layers.0.self_attn.")
    assert all(name.startswith("model.language_model.") for name in plan.orders)
    assert len(plan.orders) == 2
    assert "only model.language_model.layers is converted; 1 tensors of other" in plan.notes[-1]
    with pytest.raises(ModelError, match="contains several stacks of layers"):
        planned(vision)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"qk_mix.weight": (32, 32)}, r"qk_mix.weight: looks like a query or key"),
        ({"indexer.wk.weight": (8, 32)}, r"indexer.wk.weight: looks like a query or key"),
        ({"q_proj.qweight": (4, 32)}, r"q_proj.qweight: is stored without separate rows"),
        ({"q_proj.weight.absmax": (4,)}, r"weight.absmax: is stored without separate"),
        ({"q_proj.weight_scale": (4, 1)}, r"weight_scale: has scales for blocks of rows"),
        ({"q_proj.weight": (31, 32)}, r"must match the config, got \[31, 32\], allowed: 32"),
        ({"k_proj.weight": (32, 32)}, r"must match the config.*allowed: 16 rows, 2 times 8"),
        ({"q_norm.weight": (24,)}, r"q_norm.weight: must match the config"),
        ({"q_norm.scale": (8,)}, r"q_norm.scale: belongs to an unknown norm"),
        (
            {"qkv_proj.weight": (64, 32)},
            r"fuses queries and keys in an order that is unknown for 'llama'",
        ),
        ({"model.layers.0.cross_attn.q_proj.weight": (32, 32)}, r"cross_attn.q_proj.*looks like"),
        ({"model.layers.0.attn.q_proj.weight": (32, 32)}, r"once each, got 'k, q, q, v'"),
        (
            {"pool.q_proj.weight": (32, 32)},
            r"pool.q_proj.weight: looks like .* outside of the layers",
        ),
        ({"mtp.layers.0.self_attn.q_proj.weight": (32, 32)}, "contains several stacks"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(more, message):
    with pytest.raises(ModelError, match=message):
        planned(more)


@pytest.mark.parametrize(
    ("without", "has"),
    [("q_proj", "k, v"), ("k_proj", "q, v"), ("v_proj", "k, q")],
)
def test_a_layer_without_its_queries_keys_or_values_is_refused(without, has):
    with refused(ModelError, f"'{has}'"):
        planned(without=[f"{without}.weight"])


def test_half_a_byte_a_number_cannot_move():
    with refused(ModelError, "k_norm"):
        planned({"k_norm.weight": (8,)}, dtype="F4")


def test_models_that_do_not_turn_have_no_layout():
    bert = {"model_type": "bert", "vocab_size": 8, "num_key_value_heads": 4}
    with refused(ModelError, "'bert'"):
        planned(config=bert)


def test_weights_without_layers_are_refused():
    with pytest.raises(ModelError, match="contains no query and key projections of layers"):
        plan({}, CONFIG, "half")
