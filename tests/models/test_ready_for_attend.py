"""Test `attend` with a specification against the attention of running models.

Inputs are queries, keys and values before rotation.
"""

import json
import re
import sys

import pytest
import torch
import transformers
from refusals import refused
from small_models import REST, SIZE, T5, TOKENS

from posenc import ALiBi, attend
from posenc.models.config import specify

TEXT = torch.tensor([[3, 17, 5, 29, 8, 11, 3, 17, 25, 2, 9, 30, 31, 6, 7, 21]])
HEADS = SIZE | REST | TOKENS
DECODER = HEADS | dict(num_key_value_heads=2)
WINDOW = DECODER | dict(head_dim=8, sliding_window=5)
YARN = dict(rope_type="yarn", factor=40.0, original_max_position_embeddings=16, rope_theta=1e4)
MLA = HEADS | dict(qk_rope_head_dim=4, qk_nope_head_dim=12, v_head_dim=16, kv_lora_rank=8)
MLA |= dict(q_lora_rank=8, num_key_value_heads=4, first_k_dense_replace=2)
GPT = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=40, initializer_range=0.3)
BART = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4)
BART |= TOKENS | dict(decoder_attention_heads=4, vocab_size=40, init_std=0.3)
FULL_FIRST = ["full_attention", "sliding_attention"]

MODELS = {  # name -> class, its settings, the part of the specification and of the model
    "Llama": ("Llama", DECODER, ""),
    "Qwen2 with windows": (
        "Qwen2",
        DECODER | dict(sliding_window=5, use_sliding_window=True, max_window_layers=1),
        "",
    ),
    "Cohere": ("Cohere", DECODER, ""),
    "GPT-NeoX": ("GPTNeoX", HEADS, ""),
    "Granite": ("Granite", DECODER | dict(attention_multiplier=0.7), ""),
    "Gemma 2 without a cap": (
        "Gemma2",
        WINDOW | dict(attn_logit_softcapping=None, query_pre_attn_scalar=144),
        "",
    ),
    "Gemma 2": ("Gemma2", WINDOW | dict(attn_logit_softcapping=0.5), ""),
    "gpt-oss": (
        "GptOss",
        WINDOW
        | dict(num_local_experts=2, num_experts_per_tok=1, layer_types=FULL_FIRST)
        | dict(rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        "",
    ),
    "Gemma 3, as its 27B": ("Gemma3Text", WINDOW | dict(query_pre_attn_scalar=168), ""),
    "Gemma 3n": (
        "Gemma3nText",
        WINDOW
        | dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=40, laurel_rank=4)
        | dict(num_kv_shared_layers=0, intermediate_size=[48, 48])
        | dict(layer_types=FULL_FIRST, activation_sparsity_pattern=[0.0, 0.0]),
        "",
    ),
    "Llama 4": (
        "Llama4Text",
        DECODER
        | dict(head_dim=8, attention_chunk_size=5, intermediate_size_mlp=48, num_local_experts=1)
        | dict(no_rope_layers=[1, 0], floor_scale=64, use_qk_norm=False),
        "",
    ),
    "DeepSeek-V3, stretched": ("DeepseekV3", MLA | dict(rope_parameters=YARN), ""),
    "DeepSeek-V3, sharpened": (
        "DeepseekV3",
        MLA | dict(rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0)),
        "",
    ),
    "BERT": ("Bert", HEADS, ""),
    "BERT as a decoder": ("Bert", HEADS | dict(is_decoder=True), ""),
    "ModernBERT": ("ModernBert", HEADS | dict(local_attention=6), ""),
    "GPT-2": ("GPT2", GPT, ""),
    "GPT-2, scaled by layer": ("GPT2", GPT | dict(scale_attn_by_inverse_layer_idx=True), ""),
    "GPT-2, not scaled": ("GPT2", GPT | dict(scale_attn_weights=False), ""),
    "BART's encoder": ("Bart", BART, "encoder"),
    "BART's decoder": ("Bart", BART, "decoder"),
    "T5's encoder": ("T5", T5, "encoder"),
    "T5's decoder": ("T5", T5, "decoder"),
    "UMT5's decoder": ("UMT5", T5, "decoder"),
}


OWN = {  # those that attend in their own way: name of a layer's attention, projections, output
    "BLOOM": ("Bloom", GPT | dict(n_head=6, hidden_size=48), "self_attention", "dense"),
    "MPT": ("Mpt", GPT | dict(d_model=32, n_heads=4, n_layers=2), "attn", "out_proj"),
    "MPT, scaled": (
        "Mpt",
        GPT | dict(d_model=32, n_heads=4, n_layers=2, attn_config={"softmax_scale": 0.9}),
        "attn",
        "out_proj",
    ),
    "Falcon": ("Falcon", HEADS, "self_attention", "dense"),
    "Falcon with slopes": ("Falcon", HEADS | dict(alibi=True), "self_attention", "dense"),
    "GPT-Neo": (
        "GPTNeo",
        HEADS | dict(num_layers=2, num_heads=4, attention_types=[[["global"], 2]]),
        "attn.attention",
        "out_proj",
    ),
    "DeBERTa": (
        "DebertaV2",
        HEADS
        | dict(relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8)
        | dict(share_att_key=True, position_biased_input=False, max_relative_positions=12),
        "attention.self",
        "",
    ),
}
for term in ("c2p", "p2c"):
    kind, settings, *rest = OWN["DeBERTa"]
    OWN[f"DeBERTa with {term} alone"] = (kind, settings | dict(pos_att_type=[term]), *rest)


class Heard:
    """Recorder of a call of a model's attention: module, inputs and output."""

    def __init__(self, model):
        self.calls, self.turned = [], []
        self.module = sys.modules[type(model).__module__]
        self.kept = dict(vars(self.module))
        self.names = {part: name for name, part in model.named_modules()}

    def __enter__(self):
        for name, function in self.kept.items():
            if name == "eager_attention_forward":
                setattr(self.module, name, self._attention(function))
            elif name in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"):
                setattr(self.module, name, self._turning(function))
            elif name == "apply_rotary_emb":
                setattr(self.module, name, self._turning(function, tokens_first=True))
        return self

    def __exit__(self, *_):
        for name, function in self.kept.items():
            setattr(self.module, name, function)

    def _turning(self, function, tokens_first=False):
        def turning(q, k, *rest, **named):
            one = k.ndim < 4  # Gemma 3n's turns one at a time, tokens first
            both = [q] if one else [q, k]
            self.turned += [x.transpose(1, 2) if one or tokens_first else x for x in both]
            return function(q, k, *rest, **named)

        return turning

    def _attention(self, function):
        def attention(module, q, k, v, *rest, **named):
            out, weights = function(module, q, k, v, *rest, **named)
            before = self._unturned(q, k) if self.turned else (q, k)
            self.turned = []
            self.calls.append((self.names[module], *before, v, out.transpose(1, 2)))
            return out, weights

        return attention

    def _unturned(self, q, k):
        """Prepend the channels without rotation to recorded ones, if only the last rotate."""
        heard = self.turned
        width = heard[0].shape[-1]
        if width == q.shape[-1]:
            return heard
        parts = zip((q, k), heard, strict=True)
        return [torch.cat((x[..., :-width], h.expand(*x.shape[:-1], -1)), -1) for x, h in parts]


def live(kind, settings):
    torch.manual_seed(0)
    given = json.loads(json.dumps(settings))
    config = getattr(transformers, f"{kind}Config")(**given)
    slopes = given.get("alibi")  # Falcon's eager attention adds them twice, in transformers 5.23
    config._attn_implementation = "sdpa" if slopes else "eager"
    name = f"{kind}Model" if hasattr(transformers, f"{kind}Model") else f"{kind}ForCausalLM"
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():  # as large as needed to see a wrong scale
        parameter.data += 0.2 * torch.randn_like(parameter)
    for name, parameter in model.named_parameters():  # DeBERTa adds them to rows of distances
        if name.endswith(("query_proj.bias", "key_proj.bias")):
            parameter.data.zero_()
    return model


def heard(model, part):
    """Record the calls of self-attention, one for each layer."""
    inputs = {"input_ids": TEXT}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TEXT
    with Heard(model) as seen, torch.no_grad():
        model(**inputs, use_cache=False)
    cross = ("EncDec", "encoder_attn", "crossattention")
    calls = [c for c in seen.calls if part in c[0] and not any(name in c[0] for name in cross)]
    assert calls
    return calls


def specified(model, part):
    spec = specify(json.loads(json.dumps(model.config.to_dict(), default=str)))
    return spec.parts[part] if part else spec.text_stack


@pytest.mark.parametrize("name", MODELS)
def test_a_specification_is_ready_for_attend(name):
    kind, settings, part = MODELS[name]
    model = live(kind, settings)
    spec, calls = specified(model, part), heard(model, part)
    encodings = spec.encodings(length=TEXT.shape[1])
    assert len(calls) == len(spec.layers) == len(encodings)
    first = calls[0][0]
    for layer, encoding, (at, q, k, v, out) in zip(spec.layers, encodings, calls, strict=True):
        if kind.endswith("T5"):
            owner = model.get_submodule(first if kind == "T5" else at)
            encoding.weight = owner.relative_attention_bias.weight
        sinks = getattr(model.get_submodule(at), "sinks", None)
        assert layer.sinks == (sinks is not None)
        with torch.no_grad():
            agree(layer, encoding, q, k, v, out, sinks=sinks)


def agree(layer, encoding, q, k, v, out, atol=1e-4, sinks=None):
    assert layer.unsupported == ""
    mask = layer.mask(torch.arange(TEXT.shape[1]))
    for scale in (None, layer.scale):
        more = dict(softcap=layer.softcap, sinks=sinks)
        mine = attend(q, k, v, encoding, mask=mask, scale=scale, **more)
        torch.testing.assert_close(mine, out, rtol=1e-4, atol=atol * out.abs().max().item())


@pytest.mark.parametrize("name", OWN)
def test_so_are_those_that_attend_in_their_own_way(name):
    kind, settings, place, last = OWN[name]
    model = live(kind, settings)
    spec, calls = specified(model, ""), projected(model, place, last)
    encodings = spec.encodings()
    assert len(calls) == len(spec.layers) == len(encodings)
    for layer, encoding, (part, q, k, v, out) in zip(spec.layers, encodings, calls, strict=True):
        if kind == "DebertaV2":  # keys and queries of distances by the projections of the content
            encoding.rows = model.encoder.rel_embeddings.weight
            terms = {"c2p": ("to_keys", part.key_proj), "p2c": ("to_queries", part.query_proj)}
            for name, projection in (terms[term] for term in encoding.terms):
                setattr(encoding, name, by_head(projection))
        agree(layer, encoding, q, k, v, out)


@pytest.mark.parametrize("way", ["bi", "uni"])
def test_so_is_xlnet(way):
    sizes = dict(d_model=32, n_layer=2, n_head=4, d_inner=48, vocab_size=40, attn_type=way)
    model, calls = live("XLNet", sizes | TOKENS), []
    for block in model.layer:
        part, core = block.rel_attn, block.rel_attn.rel_attn_core

        def heard_core(q, k, v, r, *rest, core=core, part=part, **named):
            out = core(q, k, v, r, *rest, **named)
            calls.append((part, *(x.permute(1, 2, 0, 3) for x in (q, k, v, out))))
            return out

        part.rel_attn_core = heard_core
    with torch.no_grad():
        model(input_ids=TEXT, use_mems=False)
    spec = specified(model, "")
    for layer, encoding, (part, q, k, v, out) in zip(
        spec.layers, spec.encodings(), calls, strict=True
    ):
        encoding.u.data, encoding.v.data = part.r_w_bias[:, None], part.r_r_bias[:, None]
        encoding.project.data = part.r.permute(1, 2, 0)
        agree(layer, encoding, q, k, v, out, atol=1e-3)


def test_so_is_a_conformer():
    """Sines and cosines alternate, so the columns of the projection are permuted."""
    from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as m

    torch.manual_seed(0)
    sizes = {key: SIZE[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = transformers.Wav2Vec2ConformerConfig(**sizes, intermediate_size=48)
    model, calls = m.Wav2Vec2ConformerEncoder(config).eval(), []
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    for layer in model.layers:
        seen = {}
        hear(layer.self_attn, "linear_out", seen)
        calls.append((layer.self_attn, seen))
    with torch.no_grad():
        model(torch.randn(1, TEXT.shape[1], 32))
    spec = specify(json.loads(json.dumps(config.to_dict(), default=str)))
    for layer, encoding, (part, seen) in zip(spec.layers, spec.encodings(), calls, strict=True):
        names = ("linear_q", "linear_k", "linear_v", "out")
        q, k, v, out = (heads(seen[name], 4) for name in names)
        columns = part.linear_pos.weight.unflatten(0, (4, -1))
        encoding.project.data = torch.cat((columns[..., ::2], columns[..., 1::2]), -1)
        encoding.u.data, encoding.v.data = part.pos_bias_u[:, None], part.pos_bias_v[:, None]
        assert not layer.encoding.halves
        agree(layer, encoding, q, k, v, out, atol=1e-3)


SOUND = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
WINDOWED = SOUND | dict(num_key_value_heads=4, sliding_window=5)
FRAMES = {  # model_type → settings, name of the input, and the shape that gives 16 positions
    "lasr_encoder": (
        SOUND | dict(subsampling_conv_channels=8, conv_kernel_size=5),
        "input_features",
        (73, 128),
    ),
    "glmasr_encoder": (SOUND, "input_features", (128, 32)),
    "nemotron3_diarization_audio": (SOUND, "inputs_embeds", (16, 32)),
    "blt_patcher": (SOUND | dict(sliding_window=5), "input_ids", (16,)),
    "mimi_encoder": (WINDOWED | dict(num_filters=4), "input_values", (1, 15_360)),
    "pocket_tts_audio_tokenizer_encoder": (
        WINDOWED | dict(num_filters=4),
        "input_values",
        (1, 16 * 120),
    ),
    "pe_audio_encoder": (
        SOUND
        | dict(head_dim=8, dac_config=dict(encoder_hidden_size=4, downsampling_ratios=[2, 2])),
        "input_values",
        (1, 60),
    ),
    "voxtral_realtime_encoder": (WINDOWED | dict(head_dim=8), "input_features", (128, 32)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_so_are_layers_over_frames_and_bytes(name):
    """The sweep of configs does not run most of them."""
    sizes, given, shape = FRAMES[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **sizes)
    config._attn_implementation = "eager"
    if name == "blt_patcher":
        from transformers.models.blt.modeling_blt import BltPatcher as kind

        model = kind(config).eval()
    else:
        model = transformers.AutoModel.from_config(config).eval()
    ids = torch.arange(3, 19)[None]
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    calls = projected(
        model, "self_attn", "o_proj", ids if shape == (16,) else torch.randn(1, *shape), given
    )
    spec = specify(json.loads(json.dumps(config.to_dict(), default=str)))
    layers = zip(spec.layers, spec.encodings(), calls, strict=True)
    for layer, encoding, (_, q, k, v, out) in layers:
        assert q.shape[2] == 16
        agree(layer, encoding, q, k, v, out)


def test_so_is_parakeet():
    """Parakeet projects alternating sinusoids of the distance, with two biases."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        "parakeet_encoder", **SOUND, subsampling_conv_channels=8
    )
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    calls = projected(model, "self_attn", "o_proj", torch.randn(1, 128, 80), "input_features")
    spec = specify(json.loads(json.dumps(config.to_dict(), default=str)))
    for layer, encoding, (part, q, k, v, out) in zip(
        spec.layers, spec.encodings(), calls, strict=True
    ):
        columns = part.relative_k_proj.weight.unflatten(0, (4, -1))
        encoding.project.data = torch.cat((columns[..., ::2], columns[..., 1::2]), -1)
        encoding.u.data, encoding.v.data = part.bias_u[:, None], part.bias_v[:, None]
        assert not layer.encoding.halves
        agree(layer, encoding, q, k, v, out, atol=1e-3)


def test_far_into_a_text_falcon_rounds_its_slopes():
    """With the exact formula of ALiBi, the output of its layers differs."""
    sizes = dict(alibi=True, hidden_size=48, num_attention_heads=6, max_position_embeddings=600)
    model = live("Falcon", HEADS | sizes)
    text = torch.randint(40, (1, 600), generator=torch.Generator().manual_seed(0))
    spec = specified(model, "")
    assert any("rounded to bfloat16" in note for note in spec.notes)
    _, q, k, v, out = projected(model, "self_attention", "dense", text)[0]
    mask = spec.layers[0].mask()
    mine = attend(q, k, v, spec.encodings()[0], mask=mask)
    torch.testing.assert_close(mine, out, rtol=1e-4, atol=1e-4 * out.abs().max().item())
    plain = attend(q, k, v, ALiBi(6, 8**-0.5), mask=mask)
    assert (plain - out).abs().max() > 0.01 * out.abs().max()


def projected(model, place, last, text=TEXT, given="input_ids"):
    """Record queries, keys, values and output of each layer at its projections."""
    calls = []
    for name, part in model.named_modules():
        if name.endswith(place):
            seen = {}
            hear(part, last, seen)
            calls.append((part, seen))
    with torch.no_grad():
        model(**{given: text}, **({"use_cache": False} if given == "input_ids" else {}))
    return [(part, *by_heads(part, seen)) for part, seen in calls]


def hear(part, last, seen):
    for name, inner in part.named_children():
        if name == last:
            inner.register_forward_pre_hook(lambda _, x: seen.__setitem__("out", x[0].clone()))
        else:
            inner.register_forward_hook(lambda _, x, y, n=name: seen.update({n: seen.get(n, y)}))
    if not last:
        part.register_forward_hook(lambda _, x, y: seen.__setitem__("out", y[0]))


def by_heads(part, seen):
    """Split each into (batch, head, token, channel), as in the model's own code."""
    if "query_key_value" in seen:
        fused = seen["query_key_value"]
        split = part._split_heads(fused) if hasattr(part, "_split_heads") else part._reshape(fused)
        tokens_first = hasattr(part, "_split_heads")
        q, k, v = (x.transpose(1, 2) if tokens_first else x for x in split)
    elif "Wqkv" in seen:
        q, k, v = (heads(x, part.n_heads) for x in seen["Wqkv"].chunk(3, -1))
    else:
        count = getattr(part, "num_heads", None) or getattr(part, "num_attention_heads", None)
        count = count or part.config.num_attention_heads
        last = {n[0]: seen[n] for n in seen if n[0] in "qkv"}  # normalized, if they are
        q, k, v = (
            x.transpose(1, 2) if x.ndim == 4 else heads(x, count) for x in map(last.get, "qkv")
        )
    return q, k, v, heads(seen["out"], q.shape[1])


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def by_head(projection):
    """Reshape a projection for DeBERTa, (head, width, channel)."""
    return torch.nn.Parameter(projection.weight.unflatten(0, (4, -1)).mT)


UNLIKE = {  # what `attend` does not do is said
    "DeepSeek-V3.2": (
        {"model_type": "deepseek_v32"},
        "attends only to the keys that an indexer chooses",
    ),
    "HunYuan": (
        {"model_type": "hunyuan_v1_dense", "head_dim": 128},
        "normalises queries and keys after rotation",
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_attend_does_not_do_is_said(name):
    config, words = UNLIKE[name]
    spec = specify(config)
    assert re.search(words, "\n".join(spec.notes))
    assert all(layer.unsupported for layer in spec.layers)


def test_a_cap_and_sinks_are_for_attend_and_no_note_is_made_of_them():
    capped, sunk = specify({"model_type": "gemma2"}), specify({"model_type": "gpt_oss"})
    assert {layer.softcap for layer in capped.layers} == {50.0}
    assert all(layer.sinks for layer in sunk.layers)
    assert not any("attend" in note for spec in (capped, sunk) for note in spec.notes)


def test_sinks_are_in_the_layers_with_a_window_alone():
    """Test MiMo-V2-Flash, whose sinks are in sliding layers."""
    layers = specify({"model_type": "mimo_v2_flash"}).layers
    assert {(layer.sinks, layer.window is None) for layer in layers} == {
        (True, False),
        (False, True),
    }


def test_a_chunk_is_told_by_positions():
    layer = specify({"model_type": "llama4_text"}).layers[0]
    with refused(ValueError, "`pos`"):
        layer.mask()
