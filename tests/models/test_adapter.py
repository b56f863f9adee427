"""Test applied encodings against the models' own attention, loops over pairs, and fresh passes."""

import copy
import io
from math import cos, sin

import pytest
import torch
import transformers as T
from refusals import refused
from safetensors.torch import load_file, save_file

from posenc import (
    ALiBi,
    DeBERTa,
    FoX,
    Learned,
    NoPE,
    Normalized,
    RoPE,
    SelectiveRoPE,
    Shaw,
    Sinusoidal,
    Sum,
    T5Bias,
    TransformerXL,
    axial,
    frequencies,
    p_rope,
)
from posenc.encodings.bias.fire import FIRE
from posenc.encodings.bias.kerple import Kerple
from posenc.encodings.rotary.extension import (
    dynamic_ntk,
    longrope,
    longrope_gain,
    yarn,
    yarn_logit_gain,
)
from posenc.encodings.rotary.xpos import XPos
from posenc.encodings.temperature import Temperature
from posenc.models.adapter import applied, apply, load, remove
from posenc.models.config import specify

SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=40)
REST = dict(intermediate_size=48, max_position_embeddings=64, initializer_range=0.3)
GROUPED = SIZE | REST | dict(num_key_value_heads=2, pad_token_id=0, eos_token_id=1)
PARTIAL = dict(rope_type="default", rope_theta=10_000.0, partial_rotary_factor=0.5)


def llama(**more):
    return T.LlamaForCausalLM(T.LlamaConfig(**GROUPED | more))


def qwen2():
    return T.Qwen2ForCausalLM(T.Qwen2Config(**GROUPED))


def gemma3(**more):
    kinds = ["sliding_attention", "full_attention"]
    sizes = GROUPED | dict(head_dim=8, sliding_window=4, layer_types=kinds) | more
    return T.Gemma3ForCausalLM(T.Gemma3TextConfig(**sizes))


def phi3(rope=PARTIAL, **more):
    return T.Phi3ForCausalLM(T.Phi3Config(**GROUPED | more, rope_parameters=rope))


def gpt_neox():
    return T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**SIZE | REST, rope_parameters=PARTIAL))


def gptj():
    size = dict(n_embd=32, n_layer=2, n_head=4, vocab_size=40, n_positions=64, rotary_dim=4)
    ends = dict(bos_token_id=1, eos_token_id=1)
    return T.GPTJForCausalLM(T.GPTJConfig(**size, **ends, initializer_range=0.3))


def llama4():
    experts = dict(intermediate_size_mlp=48, num_local_experts=2)
    layers = dict(no_rope_layers=[1, 0], attention_chunk_size=8, head_dim=8)
    return T.Llama4ForCausalLM(T.Llama4TextConfig(**GROUPED, **experts, **layers))


def deepseek_v3(interleave=True, **more):
    latent = dict(
        q_lora_rank=16, kv_lora_rank=16, num_key_value_heads=4, rope_interleave=interleave
    )
    heads = dict(qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6)
    experts = dict(n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1)
    blocks = dict(moe_intermediate_size=16, first_k_dense_replace=1)
    config = T.DeepseekV3Config(**SIZE | REST | latent | heads | experts | blocks | more)
    return T.DeepseekV3ForCausalLM(config)


HALF = RoPE(8, layout="half")
OWN = {  # what each model does by itself
    llama: HALF,
    qwen2: HALF,
    gemma3: [HALF, RoPE(frequencies(8, 1_000_000.0), layout="half")],
    phi3: RoPE(4, dim=8, layout="half"),
    gpt_neox: RoPE(4, dim=8, layout="half"),
    gptj: RoPE(4, dim=8),
    llama4: [RoPE(frequencies(8, 500_000.0)), NoPE()],
    deepseek_v3: RoPE(4, dim=10, trailing=True),
}
EVERY = pytest.mark.parametrize("make", OWN, ids=lambda make: make.__name__)
TEXT = torch.randint(2, 40, (2, 11), generator=torch.Generator().manual_seed(1))


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def logits(model, ids=TEXT, **given):
    return model(ids, **given).logits


def build(make):
    torch.manual_seed(0)
    return make().eval()


KINDS = {  # encodings of each kind that acts inside attention, by the channels of a head
    "ALiBi": lambda dim: ALiBi(4),
    "T5Bias": lambda dim: T5Bias(4, reach=20, bidirectional=False),
    "TransformerXL": lambda dim: TransformerXL(dim, 4),
    "DeBERTa": lambda dim: DeBERTa(dim, 4),
    "Shaw": lambda dim: Shaw(dim),
    "XPos": lambda dim: XPos(dim, centre=0),
    "Sum": lambda dim: Sum(RoPE(4, dim=dim, layout="half"), T5Bias(4), Temperature(4)),
}
CASES = [
    pytest.param(make, kind, id=f"{make.__name__}-{kind}")
    for make in OWN
    for kind in ["its own", *KINDS]
    if (make, kind) != (deepseek_v3, "Shaw")  # whose values are as wide as its keys
]
EVERY_KIND = pytest.mark.parametrize(("make", "kind"), CASES)


def channels(make):
    return 10 if make is deepseek_v3 else 8


def encoding_of(make, kind):
    return OWN[make] if kind == "its own" else KINDS[kind](channels(make))


# what a model computes ---------------------------------------------------------------------------


@EVERY
def test_its_own_encoding_gives_a_model_its_own_logits(make):
    model = build(make)
    own = logits(model)
    with applied(model, OWN[make]):
        close(logits(model), own)
        assert model.config._attn_implementation != "posenc"  # its own kernel
    with applied(model, NoPE()):
        assert (logits(model) - own).abs().max() > 0.1  # the test can detect a difference


@EVERY
def test_the_two_ways_of_plugging_in_agree(make):
    """RoPE in a sum cannot use the model's own rotation, so it goes through `attend`."""
    model, own = build(make), OWN[make]
    through_attention = [Sum(one) for one in (own if isinstance(own, list) else [own] * 2)]
    expected = logits(model)
    with applied(model, through_attention):
        assert model.config._attn_implementation == "posenc"
        close(logits(model), expected)


def test_deepseek_without_interleaving_has_halves():
    model = build(lambda: deepseek_v3(interleave=False))
    own, encoding = logits(model), RoPE(4, dim=10, trailing=True, layout="half")
    for each in (encoding, Sum(encoding)):
        with applied(model, each):
            close(logits(model), own)


def by_loops(model, bias):
    """Compute Llama's hidden states layer by layer, with attention in a loop over heads."""
    base = model.model
    x = base.embed_tokens(TEXT)
    for layer in base.layers:
        attention, y = layer.self_attn, layer.input_layernorm(x)
        q = attention.q_proj(y).unflatten(-1, (4, 8))
        k, v = (to(y).unflatten(-1, (2, 8)) for to in (attention.k_proj, attention.v_proj))
        out = torch.zeros_like(q)
        for b in range(len(TEXT)):
            for h in range(4):
                for i in range(TEXT.shape[1]):
                    scores = [
                        q[b, i, h] @ k[b, j, h // 2] / 8**0.5 + bias(h, i, j) for j in range(i + 1)
                    ]
                    weights = torch.stack(scores).softmax(0)
                    out[b, i, h] = sum(w * v[b, j, h // 2] for j, w in enumerate(weights))
        x = x + attention.o_proj(out.flatten(-2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.lm_head(base.norm(x))


@torch.no_grad()
def test_alibi_in_llama_equals_loops_over_pairs():
    model = build(llama)
    slopes = [0.25, 0.0625, 0.015625, 0.00390625]  # 2^(−8h/4)
    expected = by_loops(model, lambda h, i, j: -slopes[h] * (i - j))
    with applied(model, ALiBi(4)):
        close(logits(model), expected)


@torch.no_grad()
def test_t5_bias_in_llama_equals_loops_over_pairs():
    model, encoding = build(llama), T5Bias(4, buckets=4, reach=8, bidirectional=False)
    encoding.weight.data *= 10
    bucket = [0, 1, 2, 2] + [3] * 7  # of each distance
    expected = by_loops(model, lambda h, i, j: encoding.weight[bucket[i - j], h])
    with applied(model, encoding):
        close(logits(model), expected)


@torch.no_grad()
@pytest.mark.parametrize("make", [llama, gptj, gemma3], ids=lambda make: make.__name__)
def test_what_acts_on_embeddings_is_added_to_them(make):
    model, additive = build(make), Sinusoidal(32)
    embedded = model.get_input_embeddings()(TEXT)
    rows = [[f(p / 10_000 ** (j / 16)) for j in range(16) for f in (sin, cos)] for p in range(11)]
    with applied(model, NoPE()):
        expected = model(inputs_embeds=embedded + torch.tensor(rows)).logits
    with applied(model, additive):
        close(logits(model), expected)
        close(model(inputs_embeds=embedded).logits, expected)
    with applied(model, [Sum(additive, ALiBi(4)), ALiBi(4)]):
        both = logits(model)
    with applied(model, ALiBi(4)):
        close(model(inputs_embeds=embedded + torch.tensor(rows)).logits, both)


def test_a_schedule_has_an_encoding_for_each_layer():
    model, other = build(gemma3), build(gemma3)
    local, everywhere = 7.0, 3.0
    parameters = other.config.rope_parameters
    parameters["sliding_attention"]["rope_theta"] = local
    parameters["full_attention"]["rope_theta"] = everywhere
    other = type(other)(other.config).eval()
    other.load_state_dict(model.state_dict())
    bases = [RoPE(frequencies(8, base), layout="half") for base in (local, everywhere)]
    with applied(model, bases):
        close(logits(model), logits(other))


ROTATIONS = {
    "p-RoPE": (llama, RoPE(p_rope(frequencies(8), 0.5), layout="half")),
    "YaRN": (llama, RoPE(yarn(frequencies(8), 4.0, trained=16), gain=1.1, layout="half")),
    "less of a half": (phi3, RoPE(2, dim=8, layout="half", gain=1.1)),
    "less of neighbours": (gptj, RoPE(2, dim=8, gain=1.1)),
}


def test_a_name_is_made_for_the_sizes_of_each_layer():
    model = llama()
    with applied(model, ALiBi(4)):
        expected = logits(model)
    with applied(model, "alibi"):
        assert logits(model).equal(expected)
    with applied(model, ["alibi", "rope + alibi"]):
        mixed = logits(model)
    with applied(model, [ALiBi(4), Sum(RoPE(8, layout="half"), ALiBi(4))]):
        assert logits(model).equal(mixed)
    own = logits(model)  # of base 10,000, in halves
    with applied(model, "rope"):
        torch.testing.assert_close(logits(model), own)
    with refused(TypeError, "ALiBi", "`ALiBi(…)`"):
        apply(model, ALiBi)
    with pytest.raises(LookupError, match="alibbi"):
        apply(model, "alibbi")


@pytest.mark.parametrize(("make", "encoding"), ROTATIONS.values(), ids=ROTATIONS)
def test_the_models_own_kernel_serves_every_rotation_that_it_can_do(make, encoding):
    model = build(make)
    with applied(model, encoding):
        assert model.config._attn_implementation != "posenc"
        direct = logits(model)
    with applied(model, Sum(encoding)):
        close(logits(model), direct)


OTHERS = {  # turned elsewhere than the model turns
    "neighbours": (llama, RoPE(8)),
    "a part": (llama, RoPE(4, dim=8, layout="half")),
    "more": (gptj, RoPE(6, dim=8)),
    "at the end": (gpt_neox, RoPE(4, dim=8, layout="half", trailing=True)),
    "at the start": (deepseek_v3, RoPE(4, dim=10)),
    "less at the end": (deepseek_v3, RoPE(2, dim=10, trailing=True)),
}


@pytest.mark.parametrize(("make", "encoding"), OTHERS.values(), ids=OTHERS)
def test_rotations_that_a_model_cannot_do_go_through_attention(make, encoding):
    model = build(make)
    with applied(model, encoding):
        assert model.config._attn_implementation == "posenc"


def test_neighbours_turned_are_halves_turned_of_a_model_with_its_channels_in_another_order():
    model, other = build(llama), build(llama)
    for layer in other.model.layers:
        for weight in (layer.self_attn.q_proj.weight.data, layer.self_attn.k_proj.weight.data):
            weight.copy_(weight.unflatten(0, (-1, 4, 2)).transpose(1, 2).flatten(0, 2))
    with applied(model, RoPE(8)):
        close(logits(model), logits(other))


@pytest.mark.parametrize("wrapped", [False, True], ids=["rotation", "attention"])
@pytest.mark.parametrize("make", [llama, gptj], ids=lambda make: make.__name__)
def test_a_larger_softmax_scale_is_larger_queries(make, wrapped):
    model, other, half = build(make), build(make), make is llama
    for name, weight in other.named_parameters():
        if "q_proj" in name:
            weight.data *= 1.3
    turned = dict(dim=8, layout="half" if half else "interleaved")
    scaled = RoPE(8 if half else 4, **turned, logit_gain=1.3)
    with applied(model, Sum(scaled) if wrapped else scaled):
        close(logits(model), logits(other))


def test_deepseeks_yarn_brings_its_own_scale():
    rope = dict(rope_type="yarn", rope_theta=10_000.0, factor=4.0, mscale=1.0, mscale_all_dim=1.0)
    rope |= dict(original_max_position_embeddings=16, beta_fast=32, beta_slow=1)
    model = build(lambda: deepseek_v3(rope_parameters=rope))
    own, freqs = logits(model), yarn(frequencies(4), 4.0, trained=16)
    encoding = RoPE(freqs, 10, trailing=True, logit_gain=yarn_logit_gain(4.0, 1.0))
    for each in (encoding, Sum(encoding)):
        with applied(model, each):
            close(logits(model), own)
    with applied(model, RoPE(freqs, 10, trailing=True)):
        assert (logits(model) - own).abs().max() > 1e-3


@pytest.mark.parametrize("wrapped", [False, True], ids=["rotation", "attention"])
def test_a_scale_that_the_encoding_states_replaces_that_of_the_model(wrapped):
    """Gemma 3 27B scales the scores of heads with 128 channels by 1/√168."""
    model = build(lambda: gemma3(query_pre_attn_scalar=21))
    own = logits(model)
    encodings = specify(model.config.to_dict()).encodings()
    assert {encoding.softmax_scale for encoding in encodings} == {21**-0.5}
    with applied(model, [Sum(encoding) for encoding in encodings] if wrapped else encodings):
        close(logits(model), own)
    rotations = copy.deepcopy(OWN[gemma3])
    with applied(model, rotations):  # they state none, so that the model's stays
        close(logits(model), own)
    for rotation in rotations:
        rotation.softmax_scale = 8**-0.5
    with applied(model, rotations):
        assert (logits(model) - own).abs().max() > 1e-3


def test_llama4_keeps_its_temperature_unless_one_is_given():
    model = build(llama4)
    for attention in (layer.self_attn for layer in model.model.layers):
        attention.floor_scale = 2
    own, rotation = logits(model), RoPE(frequencies(8, 500_000.0))
    with applied(model, [rotation, NoPE()]):
        close(logits(model), own)
    with applied(model, [rotation, Sum(NoPE(), Temperature(2, start=1))]):
        close(logits(model), own)
    with applied(model, [rotation, Sum(NoPE(), Temperature(2, strength=0.0, start=1))]):
        assert (logits(model) - own).abs().max() > 1e-3


def test_every_layer_of_llama4_turns_if_told_so():
    model, rotation = build(llama4), RoPE(frequencies(8, 500_000.0))
    with applied(model, rotation):
        turned = logits(model)
    with applied(model, [rotation, NoPE()]):
        assert (logits(model) - turned).abs().max() > 0.01


# positions, caches, masks ------------------------------------------------------------------------


@EVERY_KIND
def test_decoding_with_a_cache_equals_the_full_pass(make, kind):
    model, encoding = build(make), encoding_of(make, kind)
    with applied(model, encoding):
        full, cache, parts = logits(model), None, []
        for n in (4, 3, 1, 1, 1, 1):
            start = sum(part.shape[1] for part in parts)
            with torch.no_grad():
                out = model(TEXT[:, start : start + n], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            parts.append(out.logits)
        close(torch.cat(parts, 1), full)


@EVERY_KIND
def test_left_padding_changes_nothing(make, kind):
    model, encoding = build(make), encoding_of(make, kind)
    filled = [
        torch.cat((torch.full((n,), 39), row[: 16 - n]))
        for n, row in zip((5, 8), TEXT, strict=True)
    ]
    mask = torch.arange(16) >= torch.tensor([[5], [8]])
    with applied(model, encoding):
        expected, made = logits(model), logits(model, torch.stack(filled), attention_mask=mask)
    close(made[0, 5:], expected[0])
    close(made[1, 8:], expected[1, :8])


@EVERY_KIND
def test_packed_texts_are_as_if_alone(make, kind):
    model, encoding = build(make), encoding_of(make, kind)
    pos = torch.tensor([[*range(6), *range(5)]])
    with applied(model, encoding):
        whole = logits(model, TEXT[:1], position_ids=pos, use_cache=False)
        close(whole[:, :6], logits(model, TEXT[:1, :6]))
        close(whole[:, 6:], logits(model, TEXT[:1, 6:]))


def test_packed_texts_that_would_see_each_other_are_refused():
    """With a cache, transformers 5.23 creates one causal mask for all packed texts."""
    model, pos = build(llama), torch.tensor([[*range(6), *range(5)]])
    with applied(model, ALiBi(4)):
        for given in ({}, {"use_cache": True}):
            with refused(ValueError, "`use_cache=False`"):
                logits(model, position_ids=pos, **given)


def test_an_encoding_of_the_length_is_refused_with_a_cache():
    """The first tokens are in the cache; a longer text would need other rows for them."""
    model = build(llama)
    with applied(model, Normalized(32)), torch.no_grad():
        cache = model(TEXT[:, :6]).past_key_values
        with refused(ValueError, "`use_cache`", "False", "Normalized"):
            model(TEXT[:, 6:], past_key_values=cache)
        longer = model.generate(TEXT, max_new_tokens=2, use_cache=False, do_sample=False)
        likeliest = model(longer[:, :-1], use_cache=False).logits[:, -1].argmax(-1)
    assert longer[:, -1].equal(likeliest)


@pytest.mark.parametrize("encoding", [Sinusoidal(32), Learned(64, 32)], ids=type)
def test_absolute_positions_follow_cache_and_padding_too(encoding):
    model = build(llama)
    mask = (torch.arange(14) >= 3).long().expand(2, -1)
    padded = torch.cat((torch.full((2, 3), 39), TEXT), 1)
    with applied(model, encoding), torch.no_grad():
        full = logits(model)
        close(logits(model, padded, attention_mask=mask)[:, 3:], full)
        first = model(padded[:, :9], attention_mask=mask[:, :9])
        cache = first.past_key_values
        rest = model(padded[:, 9:], attention_mask=mask, past_key_values=cache).logits
        close(rest, full[:, 6:])


@pytest.mark.parametrize("encoding", [HALF, Sum(HALF), ALiBi(4)], ids=type)
def test_given_positions_are_used_also_after_caching(encoding):
    model, far = build(llama), torch.tensor([[0, 1, 2, 3, 4, 20, 21, 40, 41, 42, 43]])
    with applied(model, encoding), torch.no_grad():
        mask = torch.ones(2, 11, dtype=torch.long)
        full = logits(model, position_ids=far, attention_mask=mask)
        assert (full - logits(model)).abs().max() > 0.01
        cache = model(TEXT[:, :6], position_ids=far[:, :6], attention_mask=mask[:, :6])
        rest = model(TEXT[:, 6:], position_ids=far[:, 6:], past_key_values=cache.past_key_values)
        close(rest.logits, full[:, 6:])


@pytest.mark.parametrize("encoding", [HALF, ALiBi(4), Shaw(8)], ids=type)
def test_a_cache_that_was_cut_back_or_has_fixed_room_decodes_the_same(encoding):
    model = build(llama)
    with applied(model, encoding), torch.no_grad():
        full = logits(model)
        cache = model(TEXT[:, :9]).past_key_values
        cache.crop(-3)
        close(model(TEXT[:, 6:], past_key_values=copy.deepcopy(cache)).logits, full[:, 6:])
        room = T.StaticCache(model.config, max_cache_len=16)
        parts = [model(part, past_key_values=room).logits for part in TEXT.split((6, 1, 4), 1)]
        close(torch.cat(parts, 1), full)


class Counting(RoPE):
    """RoPE that counts the keys that it rotates."""

    keys = 0

    def on_keys(self, k, at):
        self.keys += k.shape[2]
        return super().on_keys(k, at)


@torch.no_grad()
def test_keys_are_turned_once_on_their_way_into_the_cache():
    """The number of rotated keys equals the number of tokens, so no key is rotated twice."""
    model, encoding = build(llama), Counting(8)
    with applied(model, Sum(encoding, ALiBi(4))):
        cache, counted = T.DynamicCache(), encoding.keys
        for part in TEXT.split((5, 1, 1, 4), 1):
            model(part, past_key_values=cache)
        assert encoding.keys - counted == 2 * 11  # layers, tokens


class Asked(T5Bias):
    """T5's bias that counts its calls."""

    times = 0

    def on_scores(self, *given):
        self.times += 1
        return super().on_scores(*given)


@torch.no_grad()
@pytest.mark.parametrize("make", [llama, gemma3, gptj], ids=lambda make: make.__name__)
def test_one_row_of_a_bias_serves_all_layers_of_a_step(make):
    """Compare with a pass without a cache."""
    model, encoding = build(make), Asked(4, reach=20, bidirectional=False)
    with applied(model, Sum(Temperature(2), encoding)):
        cache = model(TEXT[:, :9]).past_key_values
        encoding.times = 0
        step = model(TEXT[:, 9:10], past_key_values=cache).logits
        assert encoding.times == (2 if make is gemma3 else 1)  # Gemma 3 has two kinds of layers
        close(step, logits(model)[:, 9:10])


def test_a_cache_that_checkpointing_drops_leaves_no_key_unturned():
    model = build(llama)
    with applied(model, RoPE(8)):
        expected = logits(model, use_cache=False)
        model.activation_checkpointing_enable()
        out = model.train()(TEXT, past_key_values=T.DynamicCache(), use_cache=True)
        close(out.logits, expected)


@pytest.mark.parametrize("encoding", [HALF, ALiBi(4)], ids=type)
def test_positions_for_all_rows_may_become_positions_for_each(encoding):
    model = build(llama)
    with applied(model, encoding), torch.no_grad():
        cache = model(TEXT[:, :6]).past_key_values
        given = dict(attention_mask=torch.ones(2, 11), past_key_values=cache)
        close(model(TEXT[:, 6:], **given).logits, logits(model)[:, 6:])


def test_a_mask_for_each_head_is_kept():
    model = build(llama)
    reach = torch.tensor([1, 2, 5, 11]).view(4, 1, 1)
    offset = torch.arange(11).view(-1, 1) - torch.arange(11)
    seen = ((offset >= 0) & (offset < reach)).expand(2, -1, -1, -1)
    own = logits(model, attention_mask=seen)
    with applied(model, Sum(HALF)):
        close(logits(model, attention_mask=seen), own)


@EVERY
def test_the_masks_of_a_model_stay(make):
    """Later tokens and padding are masked, on the left and on the right."""
    model, changed = build(make), TEXT.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 40
    with applied(model, ALiBi(4)):
        differs = (logits(model, changed) - logits(model)).abs().amax((0, 2)) > 1e-6
        assert differs.tolist() == [False] * 5 + [True] * 6
        mask = (torch.arange(11) != 5).long().expand(2, -1)
        one, other = (logits(model, ids, attention_mask=mask) for ids in (TEXT, changed))
        assert torch.equal(one[:, mask[0].bool()], other[:, mask[0].bool()])


def test_a_sliding_window_is_kept():
    kinds = ["sliding_attention"] * 2
    config = T.Gemma3TextConfig(**GROUPED, head_dim=8, sliding_window=3, layer_types=kinds)
    model = build(lambda: T.Gemma3ForCausalLM(config))
    changed = TEXT.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 40
    with applied(model, ALiBi(4)):
        differs = (logits(model, changed) - logits(model)).abs().amax((0, 2)) > 1e-6
    assert differs.tolist() == [True] * 5 + [False] * 6  # two layers see two tokens back each


# frequencies that depend on the length ------------------------------------------------------------


def dynamic():
    rope = dict(rope_type="dynamic", rope_theta=10_000.0, factor=4.0)
    return llama(rope_parameters=rope, max_position_embeddings=8)


SHORT, LONG = [1.0, 1.5], [2.0, 9.0]


def long():
    rope = dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG, factor=4.0)
    return phi3(PARTIAL | rope, original_max_position_embeddings=8)


BY_LENGTH = pytest.mark.parametrize(
    ("make", "encoding"),
    [
        (dynamic, lambda n: RoPE(dynamic_ntk(frequencies(8), n, 8, 4.0), layout="half")),
        (
            long,
            lambda n: RoPE(
                longrope(frequencies(4), n, 8, SHORT, LONG), 8, longrope_gain(4.0, 8), "half"
            ),
        ),
    ],
    ids=["dynamic", "longrope"],
)


@BY_LENGTH
@pytest.mark.parametrize("tokens", [7, 8, 9, 11])
def test_frequencies_by_length_equal_the_models_own_fresh_pass(make, encoding, tokens):
    model, fresh = build(make), build(make)
    own = logits(fresh, TEXT[:, :tokens])
    with applied(model, encoding):
        logits(model)  # nothing of a longer text is left behind
        close(logits(model, TEXT[:, :tokens]), own)


@BY_LENGTH
def test_a_row_goes_by_its_own_length(make, encoding):
    model = build(make)
    for side in (slice(None, 4), slice(7, None)):  # filling on the left, on the right
        mask = torch.ones_like(TEXT)
        mask[1, side] = 0
        real = mask[1].bool()
        with applied(model, encoding):
            both = logits(model, attention_mask=mask)
            close(both[:1], logits(model, TEXT[:1]))
            close(both[1:, real], logits(model, TEXT[1:, real]))


@BY_LENGTH
def test_past_its_switch_a_cache_is_refused_and_a_fresh_pass_is_right(make, encoding):
    model = build(make)
    with applied(model, encoding), torch.no_grad():
        full = logits(model, TEXT[:, :8])
        out = model(TEXT[:, :6])
        for i in (6, 7):  # up to the trained length all is well
            out = model(TEXT[:, i : i + 1], past_key_values=out.past_key_values)
            close(out.logits[:, 0], full[:, i])
        with refused(ValueError, 9, 8):
            model(TEXT[:, 8:9], past_key_values=out.past_key_values)
        greedy = dict(max_new_tokens=5, do_sample=False, use_cache=False)
        made = model.generate(TEXT[:, :6], **greedy)
        for n in range(6, 11):
            best = logits(build(make), made[:, :n])[:, -1].argmax(-1)
            assert torch.equal(best, made[:, n])


def test_what_goes_by_length_must_be_rope_that_fits():
    model = build(llama)
    for one in (lambda n: RoPE(8), lambda n: ALiBi(4), lambda n: NoPE()):
        with refused(ValueError, "RoPE"):
            apply(model, one)
    with applied(model, lambda n: HALF), pytest.raises(ValueError, match="`position_ids` must be"):
        logits(model, position_ids=torch.tensor([[*range(6), *range(5)]]), use_cache=False)


# in and out --------------------------------------------------------------------------------------


def everything(model):
    """Collect modules, parameters, buffers, hooks and attributes of a model."""
    made = {"attention": model.config._attn_implementation}
    for name, module in model.named_modules():
        tensors = [*module.parameters(False), *module.buffers(False)]
        hooks = len(module._forward_pre_hooks) + len(module._forward_hooks)
        made[name] = id(module), sorted(vars(module)), hooks, [*map(id, tensors)]
        plain = {k: v for k, v in vars(module).items() if isinstance(v, int | float | str)}
        made |= {f"{name}.{key}": value for key, value in plain.items()}
    return made


@EVERY
@pytest.mark.parametrize("attention", [False, True], ids=["rotation", "attention"])
def test_removing_restores_everything(make, attention):
    model = build(make)
    before, own, weights = everything(model), logits(model), {*model.state_dict()}
    apply(model, T5Bias(4) if attention else OWN[make])
    logits(model)
    assert {*model.state_dict()} - weights == ({_key(model)} if attention else set())
    remove(model)
    assert everything(model) == before
    assert {*model.state_dict()} == weights
    assert torch.equal(logits(model), own)


def _key(model):
    return next(n for n, m in model.named_modules() if type(m) is T5Bias) + ".weight"


def test_the_way_back_is_taken_also_after_an_error():
    model = build(llama)
    before = everything(model)
    with pytest.raises(IndexError), applied(model, Learned(4, 32)) as same:
        same(TEXT)
    assert everything(model) == before


@EVERY
@pytest.mark.parametrize("attention", [False, True], ids=["rotation", "attention"])
def test_a_copy_has_an_encoding_of_its_own(make, attention):
    model = build(make)
    own = logits(model)
    apply(model, T5Bias(4) if attention else OWN[make])
    both, twin = logits(model), copy.deepcopy(model)
    twins = everything(twin)
    remove(twin)
    assert torch.equal(logits(twin), own)
    assert torch.equal(logits(model), both)
    remove(model)
    assert torch.equal(logits(model), own)
    assert "posenc" not in " ".join(everything(twin))
    assert "posenc" in " ".join(twins)


@EVERY
@pytest.mark.parametrize("attention", [False, True], ids=["rotation", "attention"])
def test_a_model_is_pickled_with_its_encoding_and_the_way_back(make, attention):
    model, file = build(make), io.BytesIO()
    own = logits(model)
    apply(model, Sum(T5Bias(4), Sinusoidal(32)) if attention else OWN[make])
    both = logits(model)
    torch.save(model, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(logits(again), both)
    remove(again)
    assert torch.equal(logits(again), own)


@EVERY
def test_what_is_learned_trains_with_the_model_also_with_checkpointing(make):
    """Every parameter of an encoding gets the same gradient with layers computed twice."""
    model, encodings = build(make), [T5Bias(4), TransformerXL(channels(make), 4)]
    encodings[0] = Sum(encodings[0], Learned(64, 32))
    found = []
    with applied(model, encodings):
        learned = [p for e in encodings for p in e.parameters()]
        assert {*map(id, learned)} <= {*map(id, model.parameters())}
        for again in (False, True):
            if again:
                model.activation_checkpointing_enable()
                model.train()
            first = model(TEXT, labels=TEXT, use_cache=False).loss
            second = model(TEXT[:, :5], labels=TEXT[:, :5], use_cache=False).loss
            found.append(torch.autograd.grad(first + second, learned))
    for one, other in zip(*found, strict=True):
        assert one.abs().max() > 0
        close(one, other)
    assert not {*map(id, learned)} & {*map(id, model.parameters())}


def test_learned_frequencies_get_gradients_through_the_models_own_rotation():
    model, encoding = build(llama), RoPE(torch.nn.Parameter(frequencies(8)), layout="half")
    with applied(model, encoding):
        model(TEXT, labels=TEXT).loss.backward()
    assert encoding.freqs.grad.abs().max() > 0


@pytest.mark.parametrize("encoding", [HALF, ALiBi(4), Shaw(8)], ids=type)
def test_a_model_in_16_bits_stays_so(encoding):
    model = build(llama)
    with applied(model, encoding):
        exact = logits(model)
        model.to(torch.bfloat16)
        rounded = logits(model)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).abs().mean() < 0.1 * exact.abs().mean()


@EVERY
def test_generates(make):
    """Compare greedy decoding, with cache and left padding, with one fresh pass for each token."""
    model = build(make)
    mask = (torch.arange(11) >= torch.tensor([[0], [4]])).long()
    with applied(model, ALiBi(4)):
        given = dict(max_new_tokens=4, do_sample=False, pad_token_id=0, eos_token_id=None)
        made = model.generate(TEXT, attention_mask=mask, **given)
        for row, start in zip(made, (0, 4), strict=True):
            for n in range(11, 15):
                assert logits(model, row[None, start:n])[0, -1].argmax() == row[n]


# saved and loaded --------------------------------------------------------------------------------


def saved_and_loaded(model, folder, *encoding, **options):
    model.save_pretrained(folder, **options)
    return load(folder, *encoding)


@EVERY
@pytest.mark.parametrize("attention", [False, True], ids=["rotation", "attention"])
def test_a_saved_model_is_loaded_with_its_encoding_or_not_at_all(make, attention, tmp_path):
    """Compare with the saved model; transformers alone would silently load another one."""
    model = build(make)
    own = logits(model)
    apply(model, Sum(T5Bias(4), Sinusoidal(32)) if attention else OWN[make])
    both = logits(model)
    again = saved_and_loaded(model, tmp_path)
    assert type(again) is type(model)
    assert torch.equal(logits(again), both)
    for auto in (type(model), T.AutoModelForCausalLM, T.AutoModel):
        with refused(ValueError, "posenc"):
            auto.from_pretrained(tmp_path)
    for one in (again, model):
        remove(one)
        assert torch.equal(logits(one), own)
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(type(model).from_pretrained(tmp_path)), own)


def test_what_was_learned_is_saved_for_each_layer_and_in_shards(tmp_path):
    model, shared = build(llama), Kerple(4)
    apply(model, [Sum(RoPE(8), shared), FIRE(4)])
    for parameter in model.model.posenc.parameters():
        parameter.data += 0.1 * torch.rand_like(parameter)
    again = saved_and_loaded(model.model, tmp_path, max_shard_size="5KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 1
    for one, other in zip(again.posenc.parameters(), model.model.posenc.parameters(), strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        expected = model.model(TEXT).last_hidden_state
        assert torch.equal(again(TEXT).last_hidden_state, expected)
    loss = again(TEXT).last_hidden_state.square().sum()
    assert all(grad.abs().max() > 0 for grad in torch.autograd.grad(loss, [*shared_of(again)]))


def shared_of(model):
    return model.posenc.encodings[0].parts[1].parameters()


class Steep(ALiBi):
    """Encoding of a user."""


@pytest.mark.parametrize(
    ("encoding", "why"),
    [(Steep(4), "Steep is not a class of posenc"), (lambda n: HALF, "function is not an encoding")],
    ids=["a class of one's own", "a function"],
)
def test_an_encoding_that_a_folder_cannot_hold_is_asked_for(encoding, why, tmp_path):
    model = build(llama)
    apply(model, encoding)
    expected = logits(model)
    with refused(ValueError, why, "`encoding`"):
        saved_and_loaded(model, tmp_path)
    assert torch.equal(logits(load(tmp_path, encoding)), expected)


def test_a_folder_without_an_encoding_or_with_other_weights_is_refused(tmp_path):
    model = build(llama)
    model.save_pretrained(tmp_path)
    with refused(ValueError, "config.json"):
        load(tmp_path)
    apply(model, T5Bias(4))
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    learned = weights.pop("model.posenc.encodings.0.weight")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"has no weights for model.posenc.encodings.0.weight"):
        load(tmp_path)
    weights["model.posenc.encodings.0.weight"] = learned
    weights["model.layers.9.self_attn.q_proj.weight"] = weights.pop("model.norm.weight")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"missing keys in the weights: model.norm.weight"):
        load(tmp_path)


# refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "encoding", "message"),
    [
        (llama, RoPE(16), ["RoPE", 16, "LlamaModel", 8]),
        (llama, ALiBi(8), ["ALiBi", 8, "LlamaModel", 4]),
        (llama, Sum(NoPE(), Shaw(6)), ["Shaw", 6]),
        (llama, Sinusoidal(8), ["Sinusoidal", 8]),
        (llama, RoPE(axial(8, 2)), ["RoPE", 2]),
        (deepseek_v3, Shaw(10), ["Shaw", 10, 6]),
        (deepseek_v3, RoPE(4), ["RoPE", 4, 10]),
        (llama, [NoPE()], [1, 2]),
        (llama, [NoPE(), Sinusoidal(32)], [0, 1]),
        (llama, FoX(32, 4), ["FoX", "LlamaModel"]),
        (gptj, Sum(RoPE(8), SelectiveRoPE(32, 4)), ["SelectiveRoPE"]),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(make, encoding, message):
    model = build(make)
    before = everything(model)
    with refused(ValueError, *message):
        apply(model, encoding)
    assert everything(model) == before


@pytest.mark.parametrize("encoding", [3, lambda n: "rope"], ids=["a number", "of a name"])
def test_what_is_no_encoding_is_refused(encoding, unchecked):
    model = build(llama)
    with refused(TypeError, "`encoding`", "`Encoding`"):
        apply(model, [encoding] * 2)


def test_a_second_encoding_is_refused_and_so_is_removing_none():
    model = build(llama)
    with pytest.raises(ValueError, match="must have an encoding applied"):
        remove(model)
    apply(model, NoPE())
    for same in (model, model.model):
        with pytest.raises(ValueError, match="must not have an encoding applied"):
            apply(same, NoPE())
    remove(model.model)


@pytest.mark.parametrize("encoding", [HALF, ALiBi(4)], ids=type)
def test_a_cache_filled_under_another_encoding_is_refused(encoding):
    model = build(llama)
    with applied(model, NoPE()):
        foreign = model(TEXT).past_key_values
    for cache in (foreign, model(TEXT).past_key_values):
        with applied(model, encoding), pytest.raises(ValueError, match="Start from an empty cache"):
            model(TEXT[:, :1], past_key_values=cache)


def test_attention_drops_weights_while_the_model_trains():
    for model in (build(lambda: llama(attention_dropout=0.1)), build(gptj)):
        if isinstance(model, T.GPTJForCausalLM):
            model.transformer.h[0].attn.attn_dropout.p = 0.1
        with applied(model, ALiBi(4)):
            still = logits(model)
            with torch.no_grad():
                torch.manual_seed(0)
                dropped = model.train()(TEXT).logits
            model.eval()
            assert not dropped.allclose(still)
            assert logits(model).equal(still)


def test_another_attention_is_refused_while_ours_does_the_encoding():
    model = build(llama)
    with applied(model, ALiBi(4)):
        model.set_attn_implementation("sdpa")
        with refused(ValueError, "`remove(model)`", "'sdpa'"):
            logits(model)
    assert model.config._attn_implementation == "sdpa"


def test_masks_that_do_not_say_who_sees_whom_are_refused():
    model = build(llama)
    seen = torch.ones(2, 1, 11, 11, dtype=torch.bool).tril()
    with applied(model, ALiBi(4)):
        close(logits(model, attention_mask=seen), logits(model))
        with refused(TypeError, "float32"):
            logits(model, attention_mask=seen.float())
        cache = model(TEXT[:, :6]).past_key_values
        with refused(ValueError, 5, 11):
            model(TEXT[:, 6:], past_key_values=cache, attention_mask=torch.ones(2, 5))


def test_a_model_that_shares_the_config_is_told_so():
    config = T.LlamaConfig(**GROUPED)
    one, other = T.LlamaForCausalLM(config), T.LlamaForCausalLM(config)
    with applied(one, ALiBi(4)), pytest.raises(ValueError, match="from its own config"):
        logits(other)


def test_a_model_whose_own_pass_fails_is_refused_in_one_sentence():
    """DeepSeek-V3 has one key for each head, and fails if the config states fewer."""
    model = build(lambda: deepseek_v3(num_key_value_heads=2))
    with pytest.raises(RuntimeError):
        logits(model)
    with pytest.raises(TypeError, match="does not run") as caught:
        apply(model, NoPE())
    assert "\n" not in str(caught.value)
