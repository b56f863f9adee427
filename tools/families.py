"""Write models/config/families.json, by asking the transformers that is installed; --check.

Measured here: names and defaults of keys, types of layers, layout, place and direction of
rotations, which layers attend, sizes of tables, forms of fixed waves, keys that are ignored, and
keys that switch what no rule here is about. Read by a person, in the
sources of transformers 5.23, and to be checked when they change: READ, KINDS and REFUSED.
tests/models/test_understood.py holds both against the models themselves.
"""

import inspect
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import switches
import torch
import watched
from torch import Tensor, nn
from transformers import CONFIG_MAPPING
from transformers.configuration_utils import PreTrainedConfig

from posenc.models.config.families import Family

FIELDS = [field.name for field in fields(Family)]  # in this order
TARGET = Path(__file__).parent.parent / "src/posenc/models/config/families.json"

# ------------------------------------------------------------------ read by a person, not measured

RELATIVE_KEYS = (
    "transformers 4 added learned vectors of distance to its keys (Shaw), transformers 5 runs it"
    " without any positions: which is meant the file does not say"
)
FULL_NONE = {"types": ["full_attention"]}
HALF = {"key": "local_attention", "over": 2}
BOTH_SIDES = {
    kind: {"key": "sliding_window", "plus": 1} for kind in ("sliding_attention", "full_attention")
}
EVERY_NTH = {"key": "no_rope_layers", "rotary": 1, "every": "no_rope_layer_interval", "default": 4}
MLA = {"keys": {"head_dim": "qk_rope_head_dim"}, "place": "trailing", "logit_gain": "mscale"}
INTERLEAVE = {**MLA, "layout_key": "rope_interleave"}
MINISTRAL = {
    "form": "ministral",
    "every": "rope_parameters.original_max_position_embeddings",
    "strength": "rope_parameters.llama_4_scaling_beta",
}
SLIDES = "sliding_attention"
COMPRESSED = ["compressed_sparse_attention", "heavily_compressed_attention"]
RATIOS = {"0": SLIDES, "4": COMPRESSED[0], "128": COMPRESSED[1]}
ABSOLUTE = "use_absolute_position_embeddings"
CLOSED = {"halves": True, "base": 10_000.0, "step": "d/2 − 1"}
SOURCE = {"max_position_embeddings": "max_source_positions"}
DECODER = {
    "num_hidden_layers": "decoder_layers",
    "num_attention_heads": "decoder_attention_heads",
}
WHISPER = {"keys": SOURCE, "waves": CLOSED}
BOTH_WAYS = {"form": {"bidirectional": True}}
ONE_WAY = {"form": {"bidirectional": False}}
T5 = {
    "encoder": BOTH_WAYS,
    "decoder": {**ONE_WAY, "keys": {"num_hidden_layers": "num_decoder_layers"}},
}
HALVES: dict[str, Any] = {"encoder_transformer": {}, "decoder_transformer": {}}

READ: dict[str, dict[str, Any]] = {
    # layers without encoding. A 1 in `no_rope_layers` means that the layer *does* turn
    "llama4_text": {
        "nope": EVERY_NTH,
        "temperature": {
            "form": "llama4",
            "if": "attn_temperature_tuning",
            "every": "floor_scale",
            "strength": "attn_scale",
            "nope": True,
        },
        "windows": {"chunked_attention": "attention_chunk_size"},
    },
    "smollm3": {
        "nope": EVERY_NTH,
        "layers": {"nope": True, "is": "sliding_attention", "else": "full_attention"},
    },
    # full layers do not turn, where there are sliding ones; without `sliding_window` all do …
    "exaone4": {"nope": {**FULL_NONE, "if": "sliding_window"}},
    "exaone_moe": {"nope": {**FULL_NONE, "if": "sliding_window"}},
    "kolibri1": {"nope": {**FULL_NONE, "if": "sliding_window"}},
    # … but here, without `sliding_window`, none does
    "cohere2": {"nope": {**FULL_NONE, "needs": "sliding_window"}},
    "flint": {"nope": {**FULL_NONE, "needs": "sliding_window"}},
    "afmoe": {"nope": FULL_NONE},
    "gemma3_text": {
        "switch": {
            "key": "use_bidirectional_attention",
            "true": {
                "causal": False,
                "windows": {"sliding_attention": {"key": "sliding_window", "over": 2, "plus": 1}},
            },
        },
    },
    "t5gemma2_text": {
        "windows": {"sliding_attention": {"key": "sliding_window", "over": 2, "up": 1}},
    },
    "modernbert": {
        "windows": {
            "sliding_attention": [{"key": "sliding_window", "plus": 1}, {**HALF, "plus": 1}]
        },
    },
    "modernbert-decoder": {
        "windows": {"sliding_attention": [{"key": "sliding_window"}, HALF]},
    },
    "mimo_v2_flash": {  # the class sets what its makers' file says in keys of its own
        "fixed": {
            "rope_theta": 5e6,
            "swa_rope_theta": 1e4,
            "partial_rotary_factor": 0.334,
            "swa_head_dim": 192,
            "add_swa_attention_sink_bias": True,
            "add_full_attention_sink_bias": False,
        },
        "windows": {
            "sliding_attention": [
                {"key": "sliding_window_size", "plus": 1},
                {"key": "sliding_window"},
            ]
        },
        "layers": {
            **{"flags": "hybrid_layer_pattern", "first": ["full_attention"]},
            **{"every": 6, "at": -1, "is": "full_attention", "else": "sliding_attention"},
        },
    },
    "nomic_bert": {  # as in its makers' code
        "older": {
            "n_embd": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
            "rotary_emb_base": "rope_theta",
            "rotary_emb_fraction": "partial_rotary_factor",
        },
    },
    # its layers see all of a text that they were given, and a window of what they wrote
    "unlimited_ocr_text": {"switched": {"is_causal": True}},
    "ultrabert": {
        "windows": {"sliding_attention": BOTH_SIDES["sliding_attention"]},
    },
    "openai_privacy_filter": {"windows": BOTH_SIDES},
    # heads whose last channels turn, and a second factor of yarn: g(mscale_all_dim)² of the softmax
    "axk1": INTERLEAVE,
    "axk2": MLA,
    "bailing_hybrid": MLA,
    "deepseek_v2": MLA,
    "deepseek_v3": INTERLEAVE,
    "deepseek_v32": MLA,
    "glm4_moe_lite": INTERLEAVE,
    "glm_moe_dsa": {**MLA, "fixed": {"rope_interleave": True}},
    "hy_v4": {"keys": {**MLA["keys"], "num_key_value_heads": "num_attention_heads"}}
    | {"place": MLA["place"], "logit_gain": MLA["logit_gain"]},
    # which layers attend is listed, or goes round
    "bamba": {
        "layers": {
            "listed": "attn_layer_indices",
            "is": "full_attention",
            "else": "linear_attention",
            "unlisted": "linear_attention",
        },
        "attention": ["full_attention"],
        "ignored": ["attn_rotary_emb"],
    },
    "recurrent_gemma": {
        "layers": {
            "round": "block_types",
            "cycle": ["recurrent", "recurrent", "attention"],
            "renamed": {"recurrent": "linear_attention", "attention": "sliding_attention"},
        },
        "attention": ["sliding_attention"],
    },
    "zamba2": {
        "layers": {
            "cycle": ["linear_attention"],
            "first": [
                *["linear_attention"],
                *[*["linear_attention"] * 5, "hybrid"] * 7,
                *[*["linear_attention"] * 4, "hybrid", *["linear_attention"] * 3, "hybrid"],
            ],
        },
        "attention": ["hybrid"],
        "form": {"times": 2},
        "defaults": {"use_mem_rope": False},
        "switch": {"key": "use_mem_rope", "true": {}, "": {"kind": "none"}},
    },
    "deepseek_v4": {
        "place": "trailing",
        "rope": {
            "main": {"theta": "rope_theta", "scaled": False},
            "compress": {"theta": "compress_rope_theta", "gain": 1.0},
        },
        "labels": {"sliding_attention": "main", **dict.fromkeys(COMPRESSED, "compress")},
        "layers": {
            "cycle": COMPRESSED[::-1],
            "first": [COMPRESSED[1]] * 2,
            "codes": {"compress_ratios": RATIOS},
            "trimmed": True,
        },
        "windows": dict.fromkeys((SLIDES, *COMPRESSED), "sliding_window"),
        "form": {"share": "qk_rope_head_dim"},
    },
    "step3p5": {  # its layers differ in heads too, of which encodings know nothing
        "keys": {"num_key_value_heads": "num_attention_groups"},
        "defaults": {"num_key_value_heads": 8},
        "layers": {"cycle": ["full_attention"], "trimmed": True},
        "fixed": {"yarn_only_types": ["full_attention"]},
        "form": {
            "by_layer": {
                "rope_theta": "rope_theta",
                "partial_rotary_factors": "partial_rotary_factor",
            }
        },
    },
    "granite_swa": {"form": {"bases": "layer_rope_theta"}},
    # a list of bases, of which 0 is none, and the others mean that of all; by itself, each fourth
    # from the last has none
    **{
        name: {
            "nope": {"key": "layer_rope_theta", "nonzero": True, "default": 4, "end": True},
            "layers": {
                **{"every": 4, "at": 0, "end": True},
                **{"is": "full_attention", "else": "sliding_attention"},
            },
        }
        for name in ("muse_glimmer_text", "muse_spark_text")
    },
    # layers that attend to pictures alone, where positions are none
    "mllama_text_model": {
        "layers": {
            "listed": "cross_attention_layers",
            "is": "cross_attention",
            "else": "full_attention",
        },
        "attention": ["full_attention"],
        "defaults": {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
    },
    "molmo2_text": {"form": {"scaled": "rope_scaling_layers"}},
    # full layers do not turn, but dense ones do where their own pattern has no window
    "cohere2_moe": {
        "nope": {
            **FULL_NONE,
            "but": {"mlp_layer_types": "dense", "pattern": "prefix_dense_sliding_window_pattern"},
        },
        "layers": {
            **{"every": 4, "at": -1, "is": "full_attention", "else": "sliding_attention"},
            "key": "sliding_window_pattern",
            "dense": ["first_k_dense_replace", "prefix_dense_sliding_window_pattern"],
        },
    },
    "granitemoe_swa": {"form": {"bases": "layer_rope_theta"}},
    "mistral4": {**INTERLEAVE, "temperature": MINISTRAL},
    # heads of full layers are wider
    **{
        name: {
            "form": {"wide": {"full_attention": "global_head_dim"}},
            "defaults": {"global_head_dim": 512},
            "layers": {
                **{"every": 6, "at": -1, "is": "full_attention", "else": "sliding_attention"},
                **{"last": "full_attention", "forced": True},
            },
            "switch": {
                "key": "use_bidirectional_attention",
                "all": {
                    "causal": False,
                    "windows": {
                        "sliding_attention": {"key": "sliding_window", "over": 2, "plus": 2}
                    },
                },
            },
        }
        for name in ("gemma4_text", "gemma4_unified_text")
    },
    "diffusion_gemma_text": {  # as its encoder runs; the decoder has the same rotations
        "form": {"wide": {"full_attention": "global_head_dim"}},
        "defaults": {"global_head_dim": 512},
        "layers": {
            **{"every": 6, "at": -1, "is": "full_attention", "else": "sliding_attention"},
            **{"last": "full_attention", "forced": True},
        },
        "switch": {
            "key": "use_bidirectional_attention",
            "all": {"refused": "which of its two stacks look both ways is said in no file"},
        },
    },
    "embedding_gemma2_text": {
        "form": {"wide": {"full_attention": "global_head_dim"}},
        "defaults": {"global_head_dim": 512},
        "windows": {"sliding_attention": BOTH_SIDES["sliding_attention"]},
        "layers": {
            **{"every": 6, "at": -1, "is": "full_attention", "else": "sliding_attention"},
            **{"key": "sliding_window_pattern", "last": "full_attention", "forced": True},
        },
    },
    "hunyuan_v1_dense": {"form": {"alpha": True}},
    "hunyuan_v1_moe": {"form": {"alpha": True}},
    "minimax": {"windows": {"full_attention": "sliding_window"}},
    "longcat_flash": MLA,
    "minicpm3": MLA,
    "youtu": INTERLEAVE,
    # queries sharpened by position
    # the layers below `max_window_layers` take turns, where those of Qwen2 above it all slide
    "qwen2_moe": {
        "switch": {
            "key": "use_sliding_window",
            "true": {"refused": "which of its layers slide is said in a way of its own"},
        }
    },
    "ministral3": {"temperature": MINISTRAL},
    # axes of text, height and width
    "cosmos3_edge_text": {"mrope": {"sections": [24, 20, 20], "woven": True}},
    "glm4v_text": {"mrope": {"sections": [8, 12, 12], "woven": False}},
    "glm4v_moe_text": {"mrope": {"sections": [8, 12, 12], "woven": False}},
    "glm_image_text": {"mrope": {"sections": [8, 12, 12], "woven": False}},
    "glm_ocr_text": {"mrope": {"sections": [8, 12, 12], "woven": False}},
    "paddleocr_vl_text": {"mrope": {"sections": [16, 24, 24], "woven": False}},
    "qwen2_vl_text": {"mrope": {"sections": [16, 24, 24], "woven": False}},
    "qwen2_5_vl_text": {"mrope": {"sections": [16, 24, 24], "woven": False}},
    "qwen2_5_omni_text": {"mrope": {"sections": [16, 24, 24], "woven": False}},
    "qwen2_5_omni_talker": {"mrope": {"sections": [16, 24, 24], "woven": False}},
    "qwen3_vl_text": {"mrope": {"sections": [24, 20, 20], "woven": True}},
    "qwen3_vl_moe_text": {"mrope": {"sections": [24, 20, 20], "woven": True}},
    "qwen3_5_text": {"mrope": {"sections": [11, 11, 10], "woven": True}},
    "qwen3_5_moe_text": {"mrope": {"sections": [11, 11, 10], "woven": True}},
    "qwen3_omni_moe_text": {"mrope": {"sections": [24, 20, 20], "woven": True}},
    "qwen3_omni_moe_talker_text": {"mrope": {"sections": [24, 20, 20], "woven": True}},
    "qwen4_exp_text": {"mrope": {"sections": [11, 11, 10], "woven": True}},
    "kimi_linear": {
        "layers": {
            "every": 4,
            "at": 0,
            "is": "full_attention",
            "else": "linear_attention",
            "first": ["linear_attention"],
            "numbers": {
                "key": "linear_attn_config",
                "lists": {"full_attn_layers": "full_attention", "kda_layers": "linear_attention"},
            },
        },
    },
    "glm5_next_text": {
        "attention": ["indexed_attention"],
        "layers": {
            "every": 4,
            "at": -1,
            "is": "indexed_attention",
            "else": "linear_attention",
            "renamed": {"full_attention": "indexed_attention"},
        },
    },
    "nemotron_h": {
        "defaults": {"num_hidden_layers": 4},
        "layers": {
            "cycle": ["linear_attention", "moe", "full_attention", "mlp"],
            "letters": {
                "hybrid_override_pattern": {
                    **{"M": "linear_attention", "*": "full_attention"},
                    **{"E": "moe", "-": "mlp"},
                },
            },
        },
        "attention": ["full_attention"],
        "ignored": ["num_hidden_layers", "sliding_window"],
    },
    # other names, other bases
    "codegen": {
        "kind": "rotary",
        "keys": {"rotary_dim": "rotary_dim"},
        "defaults": {"rope_theta": 10_000.0},
    },
    "gptj": {
        "kind": "rotary",
        "keys": {"rotary_dim": "rotary_dim"},
        "defaults": {"rope_theta": 10_000.0},
    },
    "gpt_neox": {"keys": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}},
    "gpt_neox_japanese": {
        "keys": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
    },
    "roformer": {
        "kind": "rotary",
        "layout": "interleaved",
        "defaults": {"rope_theta": 10_000.0},
        "ignored": ["rope_theta", "partial_rotary_factor", "rope_scaling"],
        "switch": {"key": "rotary_value", "true": {"refused": "values are turned too"}},
    },
    # a key decides what there is
    "esm": {
        "kind": "rotary",
        "layout": "half",
        "switch": {
            "key": "position_embedding_type",
            "absolute": {"kind": "learned", "offset": "pad + 1"},
            "rotary": {},
            "": {"refused": RELATIVE_KEYS},
        },
    },
    "falcon": {
        "keys": {"num_key_value_heads": "num_kv_heads"},
        "switch": {"key": "alibi", "true": {"kind": "alibi", "form": {"divided": True}}},
    },
    "granitemoehybrid": {
        "layout": "half",
        "layers": {"cycle": ["linear_attention"]},
        "attention": ["full_attention"],
        "switch": {"key": "position_embedding_type", "rope": {}, "": {"kind": "none"}},
    },
    "parakeet_encoder": {"kind": "transformer-xl", "form": {"halves": False}},
    "wav2vec2-conformer": {
        "kind": "transformer-xl",
        "form": {"halves": False},
        "switch": {
            "key": "position_embeddings_type",
            "relative": {},
            "rotary": {"refused": "it turns what queries and keys are projected from, not them"},
            "null": {"kind": "none"},
        },
    },
    "xlnet": {
        "kind": "transformer-xl",
        "form": {"halves": True, "segments": True},
        "switch": {"key": "attn_type", "uni": {"causal": True}, "": {}},
        "keys": {"head_dim": "d_head"},
    },
    # encoders and decoders
    "t5": {"stacks": T5},
    "mt5": {"stacks": T5},
    "umt5": {"stacks": T5},
    "switch_transformers": {"stacks": T5},
    "pop2piano": {"stacks": T5},
    "pix2struct_text_model": ONE_WAY,
    "mpnet": {  # its code takes these numbers whatever a file says
        "kind": "t5",
        "offset": "pad + 1",
        "form": {"table": True},
        "fixed": {"relative_attention_num_buckets": 32},
        "defaults": {"relative_attention_max_distance": 128},
        "ignored": ["relative_attention_max_distance"],
    },
    "whisper": {
        "kind": "learned",
        "stacks": {
            "encoder": {"kind": "sinusoidal", **WHISPER},
            "decoder": {
                "keys": {
                    "max_position_embeddings": "max_target_positions",
                    "num_key_value_heads": "decoder_attention_heads",
                    **DECODER,
                }
            },
        },
    },
    # stored, but made of waves and never trained
    "qwen2_5_omni_audio_encoder": WHISPER,
    "qwen3_omni_moe_audio_encoder": WHISPER,
    # Whisper's waves, but nothing makes them: they are in the checkpoint
    "audioflamingo3_encoder": {"keys": SOURCE},
    "moss_transcribe_diarize_audio": {"keys": SOURCE},
    "qwen2_audio_encoder": {"keys": SOURCE},
    "voxtral_encoder": {"keys": SOURCE},
    # two stacks that are alike, of which a file says one
    **{name: {"stacks": HALVES} for name in ("mimi", "pocket_tts_audio_tokenizer")},
    # newer files count each run of each of its layers, and say the layers of a stack beside
    "hrm_text": {
        "keys": {"num_hidden_layers": "num_layers_per_stack"},
        "defaults": {"num_hidden_layers": 16},
        "form": {"runs": True},
        "stacks": {"H_module": {}, "L_module": {}},
    },
    "pe_audio_encoder": {"ignored": ["layer_types"]},
    # tables
    "ibert": {"kind": "learned", "offset": "pad + 1"},
    "pp_formulanet_text": {"keys": DECODER},  # it has no encoder, whose keys its class names
    "led": {
        "kind": "learned",
        "stacks": {
            "encoder": {"keys": {"max_position_embeddings": "max_encoder_position_embeddings"}},
            "decoder": {
                "keys": {
                    "max_position_embeddings": "max_decoder_position_embeddings",
                    **DECODER,
                }
            },
        },
    },
    "mra": {"offset": 2},
    "nystromformer": {"offset": 2},
    "yoso": {"offset": 2},
    "fsmt": {"offset": "pad + 1"},
    # waves that are made when they are asked for
    "ctrl": {"kind": "sinusoidal", "waves": {"halves": True, "base": 10_000.0, "step": "d/2"}},
    "pegasus_x": {
        "kind": "sinusoidal",
        "waves": CLOSED,
        "stacks": {
            "encoder": {},
            "decoder": {"keys": DECODER},
        },
    },
    "speech_to_text": {
        "kind": "sinusoidal",
        "waves": CLOSED,
        "offset": "pad + 1",
        "extra": 2,
        "stacks": {
            "encoder": {"keys": {"max_position_embeddings": "max_source_positions"}},
            "decoder": {
                "keys": {
                    "max_position_embeddings": "max_target_positions",
                    **DECODER,
                }
            },
        },
    },
    "kosmos_2_5_text_model": {
        "kind": "sinusoidal",
        "waves": CLOSED,
        "offset": "pad + 1",
        "extra": 2,
    },
    # its attention writes the heads of one stack into the config that both share
    "moonshine": {"switched": {"encoder_num_attention_heads": 8, "decoder_num_attention_heads": 8}},
    "idefics2_perceiver": {"keys": {"num_hidden_layers": "resampler_depth"}},
    # a key takes the table away
    "internvl_vision": {"switch": {"key": ABSOLUTE, "false": {"kind": "none"}}},
    "qianfan_ocr_vision": {"switch": {"key": ABSOLUTE, "false": {"kind": "none"}}},
    "trocr": {
        "switch": {
            "key": "use_learned_position_embeddings",
            "false": {"kind": "sinusoidal", "waves": CLOSED, "offset": "pad + 1"},
        },
    },
    # a config that no class of its own defaults can make
    "nougat": {"kind": "parts", "parts": ["encoder", "decoder"]},
    "bridgetower": {"kind": "parts", "parts": ["text_config", "vision_config"]},
    "clap": {"kind": "parts", "parts": ["text_config", "audio_config"]},
    "lfm2": {
        "layers": {"listed": "full_attn_idxs", "is": "full_attention", "else": "conv"},
        "attention": ["full_attention"],
    },
    "lfm3": {
        "layers": {
            "cycle": ["sliding_attention", "conv", "full_attention", "conv"],
            "first": ["conv"],
        },
    },
}

KINDS: dict[str, str] = {
    "dinov3": "dinov3_vit sapiens2",
    # attention without any encoding: order comes from causal masks, or other layers
    "none": (
        "blip_2_qformer flava_multimodal_model glm5_next_text idefics2_perceiver jamba "
        "kimi_linear moonshine_streaming_encoder moshi_depth nemotron_h zamba"
    ),
    # nothing attends over a sequence, or only to pixels that convolutions put in order
    "nothing": (
        "align_vision_model bit chameleon_vqgan convnext convnextv2 cvt dac dinov3_convnext "
        "efficientnet emu3_vqgan encodec falcon_mamba fastspeech2_conformer_hifigan "
        "flava_image_codebook focalnet glm_image_vqmodel glpn hgnet_v2 inkling_audio "
        "inkling_vision janus_vqgan mamba mamba2 mobilenet_v1 mobilenet_v2 mobilevit "
        "mobilevitv2 molmo2_adapter muse_spark_audio poolformer pp_lcnet pp_lcnet_v3 "
        "pp_lcnet_v4 pvt_v2 qwen2_5_omni_bigvgan regnet resnet rt_detr_resnet rwkv "
        "sapiens2_head segformer speecht5_hifigan superpoint swiftformer textnet univnet "
        "uvdoc_backbone vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder "
        "vibevoice_acoustic_tokenizer_encoder vibevoice_diffusion xlstm"
    ),
    "t5": "mt5 pix2struct_text_model pop2piano switch_transformers t5 umt5",
    "alibi": "bloom mpt",
    "deberta": "deberta deberta-v2",
    "sinusoidal": "qwen2_5_omni_audio_encoder qwen3_omni_moe_audio_encoder",
    "learned": (
        "audioflamingo3_encoder moss_transcribe_diarize_audio qwen2_audio_encoder voxtral_encoder"
    ),
}

REFUSED: dict[str, str] = {
    "it turns by row and column of a picture (2-D RoPE), and which patch is where the "
    "config does not say": (
        "cohere_compass_vision dots3_note_vision_encoder efficientloftr eomt_dinov3 "
        "ernie4_5_vl_moe_vision exaone4_5_vision gemma4_unified_vision gemma4_vision "
        "glm4v_moe_vision glm4v_vision glm5_next_vision glm_ocr_vision inkling2_vision "
        "kimi_k25_vision lfm3_vl_vision llama4_vision_model minimax_m3_vl_vision mlcd "
        "mlcd_vision_model muse_glimmer_vision muse_spark_vision paddleocr_vl_vision "
        "pe_audio_video_encoder pe_video_encoder pixtral qwen2_5_omni_vision_encoder "
        "qwen2_5_vl_vision qwen2_vl_vision qwen3_5_moe_vision qwen3_5_vision "
        "qwen3_omni_moe_vision_encoder qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision "
        "sam3_vit_model step3p5_vision video_llama_3_vision vjepa2"
    ),
    "its memory attends to pictures by row and column (2-D RoPE)": (
        "edgetam_video sam2_video sam3_tracker_video"
    ),
    "a learned bias for each offset between patches (Swin, BEiT, LeViT)": (
        "beit clap_audio_model data2vec-vision donut-swin levit maskformer-swin swin"
    ),
    "a small network makes its bias from log-spaced offsets (Swin v2)": "swin2sr swinv2",
    "learned tables of offsets in rows and in columns add to its scores (as in MViTv2)": (
        "deepseek_ocr2_sam_vision_model got_ocr2_vision pp_chart2table_vision "
        "pp_formulanet_vision sam_hq_vision_model sam_vision_model seggpt slanext_vision "
        "unlimited_ocr_sam_vision_model"
    ),
    "sines of row and column are added to features of a picture (DETR)": (
        "conditional_detr d_fine dab-detr deformable_detr deimv2 detr edgetam "
        "edgetam_mask_decoder edgetam_prompt_encoder edgetam_video_mask_decoder "
        "edgetam_video_prompt_encoder edgetam_vision_model grounding-dino lw_detr mask2former "
        "maskformer mm-grounding-dino omdet-turbo oneformer pp_doclayout_v2 pp_doclayout_v3 "
        "pp_doclayout_v4 rf_detr rt_detr rt_detr_v2 sam2_mask_decoder sam2_prompt_encoder "
        "sam2_video_mask_decoder sam2_video_prompt_encoder sam2_vision_model sam3_detr_decoder "
        "sam3_detr_encoder sam3_geometry_encoder sam3_lite_text_detr_decoder "
        "sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder "
        "sam3_lite_text_mask_decoder sam3_mask_decoder sam3_tracker_mask_decoder "
        "sam3_tracker_prompt_encoder sam3_tracker_video_mask_decoder "
        "sam3_tracker_video_prompt_encoder sam3_vision_model sam_hq_mask_decoder "
        "sam_hq_prompt_encoder sam_mask_decoder sam_prompt_encoder table-transformer"
    ),
    "a convolution over the signal tells it where it is (wav2vec 2.0)": (
        "data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wavlm"
    ),
    "sines of the distance, projected, with two learned biases, in both directions "
    "(Conformer after Transformer-XL)": (
        "fastspeech2_conformer funnel gemma3n_audio gemma4_audio gemma4_unified_audio "
        "nemotron_asr_streaming_encoder seamless_m4t"
    ),
    "a learned vector for each distance is scored against queries (Shaw)": (
        "granite_speech5_encoder granite_speech_encoder granite_speech_plus_encoder "
        "seamless_m4t_v2 speecht5 vits wav2vec2-bert"
    ),
    "learned relative logits that depend on the text (Inkling)": "inkling2_text inkling_text",
    "its buckets know pages as well as words (2-D T5)": "layoutlmv2 layoutlmv3 layoutxlm udop",
    "T5's buckets, but in blocks and with summaries of blocks": "longt5",
    "its buckets know segments as well as distances": "cpmant",
    "two streams of learned and bucketed positions (ProphetNet)": "prophetnet",
    "tables of places on a page come on top of those in the text": (
        "bros kosmos_2_5_vision_model layoutlm lilt pix2struct_vision_model tvp vilt"
    ),
    "its table of patches is stretched, cut or shared for each picture": (
        "aimv2_vision_model audio-spectrogram-transformer cosmos3_edge_vision eomt "
        "florence_vision glm_image_vision granite_docling_vision hiera hunyuan_vl_vision "
        "idefics2_vision idefics3_vision idefics_vision lw_detr_vit minicpm_ocr_vision "
        "minicpmv4_6_vision minicpmv4_7_vision mllama_vision_model molmo2_vision "
        "phi4_multimodal_vision pixio pvt radio rf_detr_dinov2 sam2_hiera_det_model "
        "siglip2_vision_model smolvlm_vision tipsv2_vision_model vitdet vitpose_backbone yolos"
    ),
    "tables over space and over time": (
        "timesformer videomae videomt videoprism_vision_model vivit"
    ),
    "its table is a product of two smaller ones (axial)": "reformer",
    "its tables number characters, entities, cells or pixels, not only tokens": (
        "canine idefics_perciever luke perceiver tapas visual_bert"
    ),
    "fixed waves in a form that posenc does not make": (
        "autoformer fun_asr_nano_encoder informer musicgen_decoder musicgen_melody_decoder "
        "patchtsmixer patchtst qwen3_asr_encoder sam3_lite_text_text_model "
        "time_series_transformer timesfm videoprism_text_model vit_mae"
    ),
    "it draws neighbourhoods around each pixel (NAT)": "dinat",
    "positions in it are times, atoms or residues, not tokens": (
        "esmfold2 musicflamingo timesfm2_5"
    ),
    "queries, keys and values are turned": "clvp_encoder",
    "a learned bias for distances between frames": "phi4_multimodal_audio",
    "it says its base in `attn_config.rope_theta`, which transformers 5 does not read": "dbrx",
    "its full layers sharpen queries by a power of the position": "beam",
    "its rotations have a learned factor each": "mistral_large4_text",
    "heads of its layers differ, as `per_layer_config` says": ("dots3_note_text gemma4_assistant"),
    "each layer has a window of its own": "neomme",
    "its frequencies are woven of height, width and time in an order of their own": (
        "ernie4_5_vl_moe_text"
    ),
    "the two channels of a pair turn with different axes, which is no rotation": (
        "hunyuan_vl_text"
    ),
    "it is a tokenizer or vocoder of sound, whose positions are frames": ("moshi qwen2_5_omni_dit"),
    "its code turns each head by the number of the head, and no frame by its position": (
        "neucodec xcodec2"
    ),
    "its audio encoder counts frames": (
        "dots3_note_audio_encoder nemotron3_5_transcribe_asr_audio "
        "nemotron3_5_transcribe_word_timestamp"
    ),
    "it drafts for another model, from whose states it starts": "muse_glimmer_assistant",
    "patches of bytes have positions of their own": (
        "blt blt_global_transformer blt_local_decoder blt_local_encoder"
    ),
    "a text model and a protein model share its config": "EvollaModel evolla",
    "it matches points between pictures, and points are where they are": "lightglue superglue",
    "its table is as long as two keys and a constant add up to": "clvp_decoder",
    "its positions are steps of an episode, three tokens each": "decision_transformer",
    "what is in it is timm's to say": "gemma3n_vision timm_backbone timm_wrapper",
    "three models in one, whose tables end where keys of their own say": "bark",
}

# A query sees what stands before it, except here, where it looks both ways; encoders of `stacks` do
# by themselves, and these may be told to be decoders.
BOTH: dict[str, str] = {
    "": (
        "aimv2_text_model albert align_text_model altclip_text_model altclip_vision_model "
        "audioflamingo3_encoder blip_2_qformer blip_2_vision_model blip_vision_model "
        "bridgetower_vision_model chinese_clip_text_model chinese_clip_vision_model "
        "clap_text_model clip_vision_model clipseg_vision_model convbert deberta deberta-v2 deit "
        "dia_encoder dinov2 dinov2_with_registers dinov3_vit distilbert dpr dpt esmc eurobert "
        "flava_image_model flava_multimodal_model flava_text_model fnet git_vision_model "
        "glmasr_encoder gte lasr_encoder mgp-str nemotron3_diarization_audio parakeet_encoder "
        "pe_audio_encoder "
        "ibert idefics2_perceiver ijepa instructblip_qformer instructblip_vision_model "
        "instructblipvideo_qformer instructblipvideo_vision_model internvl_vision "
        "janus_vision_model jina_embeddings_v3 kosmos_2_vision_model longformer lxmert markuplm "
        "metaclip_2_vision_model mobilebert modernbert moonshine_streaming_encoder "
        "moss_transcribe_diarize_audio mpnet mra nomic_bert nystromformer openai_privacy_filter "
        "ovis2_vision owlv2_vision_model owlvit_vision_model qianfan_ocr_vision "
        "qwen2_5_omni_audio_encoder qwen2_audio_encoder qwen3_omni_moe_audio_encoder sapiens2 "
        "embedding_gemma2_text siglip2_text_model siglip_text_model siglip_vision_model splinter "
        "squeezebert "
        "t5gemma2_text tipsv2_text_model ultrabert unlimited_ocr_vision_encoder vit vit_msn "
        "voxtral_encoder groupvit_vision_model wav2vec2-conformer xclip_vision_model xlnet yoso"
    ),
    "causal": "flaubert xlm",
    "is_decoder": (
        "bert bert-generation big_bird bridgetower_text_model camembert data2vec-text electra "
        "ernie esm megatron-bert rembert roberta roberta-prelayernorm roc_bert roformer "
        "xlm-roberta xlm-roberta-xl xmod"
    ),
}
SCALES: list[tuple[dict[str, Any], str]] = [
    ({"is": 1.0}, "dia_decoder dia_encoder gemma3n_text gpt_neo mt5 pix2struct_text_model"),
    ({"is": 1.0}, "diffusion_gemma_text embedding_gemma2_text gemma4_text gemma4_unified_text"),
    ({"is": 1.0}, "pop2piano switch_transformers t5 umt5"),
    (
        {"key": "query_pre_attn_scalar", "power": -0.5},
        "gemma2 gemma3_text t5_gemma_module t5gemma2_decoder t5gemma2_text vaultgemma",
    ),
    ({"key": "query_pre_attn_scalar", "power": -0.5, "else": "width"}, "step3p5"),
    (
        {"key": "attention_multiplier"},
        "granite granite4_vision_text granite_docling_text granite_swa granitemoe "
        "granitemoe_swa granitemoehybrid granitemoeshared",
    ),
    ({"key": "attention_multiplier", "else": "width"}, "hyperclovax"),
    ({"key": "attn_config.softmax_scale"}, "mpt"),
    ({"key": "attention_head_dim", "times": 0.5, "power": -0.5, "else": "width"}, "zamba zamba2"),
    ({"flag": "scale_attn_weights"}, "gpt-sw3 gpt2 gpt_bigcode imagegpt"),
]
SOFTCAP = {"attn_logit_softcapping": "gemma2 t5_gemma_module vaultgemma"}
SINKS = {
    "full_attention sliding_attention": (
        "flint gpt_oss granite_swa granitemoe_swa openai_privacy_filter"
    ),
    "indexed_attention": "hy_v4",
    " ".join((SLIDES, *COMPRESSED)): "deepseek_v4",
    "sliding_attention": "mimo_v2_flash",
}
BEYOND = {
    "turns values as keys and its output back, and sees compressed keys beside a window": (
        "deepseek_v4"
    ),
    "keeps the keys that an indexer chose for each query": (
        "axk2 deepseek_v32 glm5_next_text glm_moe_dsa hy_v4"
    ),
    "normalizes queries and keys after they were turned": "hunyuan_v1_dense hunyuan_v1_moe",
    "joins a decoder's own keys and those of the encoder in one softmax": "t5gemma2_decoder",
    "sees a token further ahead than back, where a window is even": "t5gemma2_text",
    "subtracts a second softmax": "diffllama",
    "hides keys by a learned mask that moves with the text": "doge",
    "sees random and global tokens beside a window, in long texts": "big_bird bigbird_pegasus",
    "sees a window, and global tokens everything": "led longformer",
    "is an approximation of the softmax": "mra nystromformer yoso",
    "is a Fourier transform": "fnet",
    "has convolutions beside its heads": "convbert",
    "looks both ways in the block that its decoder fills in": "diffusion_gemma_text",
    "looks both ways in a prefix, where `token_type_ids` mark one": "hrm_text",
}

# --------------------------------------------------------------------------------------- measuring

MOST_LAYERS = 8  # of models that are run to see what a key switches

USUAL = (
    "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
    " max_position_embeddings"
).split()
POSITIONAL = (
    *USUAL,
    *"rotary_dim qk_rope_head_dim qk_nope_head_dim sliding_window use_sliding_window"
    " max_window_layers attention_chunk_size local_attention layer_types no_rope_layers"
    " no_rope_layer_interval relative_attention relative_attention_num_buckets"
    " relative_attention_max_distance max_relative_positions position_biased_input pos_att_type"
    " position_buckets position_embedding_type alibi rope_interleave rope_theta rotary_value"
    " partial_rotary_factor original_max_position_embeddings pad_token_id"
    " attn_temperature_tuning floor_scale attn_scale image_size patch_size num_channels"
    " max_source_positions max_target_positions embedding_size input_embedding_size"
    " query_pre_attn_scalar attention_multiplier attn_logit_softcapping position_embeddings_type"
    " attn_type".split(),
)
READ_BY_NAME = {*POSITIONAL, "rope_parameters", "scale_attn_by_inverse_layer_idx"}
STEPS = ("sliding_window_pattern", "global_attn_every_n_layers", "full_attention_interval")
STEPS += ("layer_group_size", "attn_layer_period")
PLACES = ("attn_layer_offset",)


def read(model_type: str) -> dict[str, Any]:
    """Return the fields of a model that a person has read."""
    line = json.loads(json.dumps(READ.get(model_type, {})))
    for kind, names in KINDS.items():
        if model_type in names.split():
            line["kind"] = kind
    for reason, names in REFUSED.items():
        if model_type in names.split():
            line |= {"kind": "refused", "refused": reason}
    return line


def attention(model_type: str) -> dict[str, Any]:
    """Return what a person has read of a model's attention, beside positions."""
    made: dict[str, Any] = {}
    for key, names in BOTH.items():
        if model_type in names.split():
            made["causal"] = key or False
    for rule, names in SCALES:
        if model_type in names.split():
            made["scale"] = rule
    for field, table in {"softcap": SOFTCAP, "sinks": SINKS, "beyond": BEYOND}.items():
        for value, names in table.items():
            if model_type in names.split():
                made[field] = value.split() if field == "sinks" else value
    return made


def line(model_type: str) -> dict[str, Any]:
    """Make the line of families.json for a model."""
    kind = CONFIG_MAPPING[model_type]
    made: dict[str, Any] = {"folder": kind.__module__.split(".")[-2], **read(model_type)}
    if "parts" in made:
        return made | {"inner": inner(model_type, made["parts"])}
    if made.get("kind") in ("refused", "nothing"):
        return made
    config = watched.config(model_type)
    made["parts"] = parts(model_type)
    made["inner"] = inner(model_type, made["parts"])
    own = "num_hidden_layers" in vars(config) or made.get("kind")
    if watched.inner(config) and not own and "rope_parameters" not in vars(config):
        made["flat"] = flat(model_type)
        made["parts"] = made["parts"] or list(watched.inner(config))
        return made | {"kind": "parts", "inner": inner(model_type, made["parts"])}
    names = keys(kind, config)
    made["keys"] = names | made.get("keys", {})
    made["defaults"] = defaults(model_type, made["keys"]) | made.get("defaults", {})
    if made.get("kind") in (None, "rotary") and "rope_parameters" in vars(config):
        made["kind"] = "rotary"
    if made.get("kind") == "rotary":
        made = {"kind": "rotary", "rope": labelled(model_type), **made}
        if model_type not in ("roformer",):  # its function is a method
            made |= {k: v for k, v in turning(model_type).items() if k not in made}
    if "kind" not in made:
        found = added(model_type, config, made["keys"])
        made |= {k: v for k, v in found.items() if k not in made or not made[k]}
    if made.get("kind") in ("rotary", "none"):
        if "layers" not in made and (rule := layer_rule(model_type)):
            made["layers"] = rule
    if made.get("kind") == "none" and made.get("layers") and "attention" not in made:
        made |= attending(watched.trace(model_type))
    made["ignored"] = [*dict.fromkeys([*made.get("ignored", []), *ignored(model_type, made)])]
    if "rotary_dim" in made["ignored"]:
        made["defaults"].pop("rotary_dim", None)
    made["switched"] = made.get("switched", {}) | switched(model_type, made | attention(model_type))
    for stack in made.get("stacks", {}).values():
        stated = {f.name: f.default for f in fields(kind)}
        own = {usual: stated.get(key) for usual, key in stack.get("keys", {}).items()}
        stack["defaults"] = {u: v for u, v in own.items() if v not in (None, MISSING)}
    return made | attention(model_type)


BASES = ("rope_theta", "rope_local_base_freq", "global_rope_theta", "local_rope_theta")


def labelled(model_type: str) -> dict[str, dict[str, Any]]:
    """Settings of each type of layer, where each has its own: the old key of its base, and whether
    an old `rope_scaling` applies to it; by asking the class."""
    kind: Any = CONFIG_MAPPING[model_type]

    def settings(**values: Any) -> dict[str, Any]:
        with suppress(Exception):  # the class cannot take such a key
            return vars(kind(**values)).get("rope_parameters") or {}
        return {}

    labels = [label for label, own in settings().items() if isinstance(own, dict)]
    based = {key: settings(**{key: 54_321.0}) for key in BASES} if labels else {}
    scaled = settings(rope_scaling={"rope_type": "linear", "factor": 8.0}) if labels else {}
    return {
        label: {
            "theta": next(
                (
                    key
                    for key, made in based.items()
                    if made.get(label, {}).get("rope_theta") == 54_321.0
                ),
                "",
            ),
            "scaled": scaled.get(label, {}).get("factor") == 8.0,
        }
        for label in labels
    }


SHARE = "partial_rotary_factor"


def ignored(model_type: str, made: Mapping[str, Any]) -> list[str]:
    """Keys that a reader would believe, since others heed them, and this model does not."""
    kind: Any = CONFIG_MAPPING[model_type]
    named = made.get("keys", {})
    code = "".join(inspect.getsource(module) for module in watched.modules(kind))
    usually = vars(kind()).get("rope_parameters")

    def moves(key: str, value: float) -> bool:
        """Test whether a key changes the settings; one that the class cannot take does."""
        with suppress(Exception):
            return vars(kind(**{key: value})).get("rope_parameters") != usually
        return True

    found = []
    if made.get("kind") == "rotary":
        for usual, value in (("rope_theta", 50_000.0), (SHARE, 0.4375)):
            keys = {usual, named.get(usual, usual)}
            heeded = usual in code and any(moves(key, value) for key in keys)
            heeded |= any(f"config.{key}" in code for key in keys)
            found += [] if heeded else [usual]
        own = inspect.getsource(sys.modules[kind.__module__])
        stated = "config.rotary_dim" in code or "rotary_dim" in own
        if not stated or not _moves(model_type, made, [{"rotary_dim": 16}]):
            found.append("rotary_dim")
        found += [] if "rope_parameters" in vars(kind()) else ["rope_scaling"]
        found += [] if SHARE in code else [f"rope_parameters.{SHARE}"]
        if "head_dim" not in named and _computed(kind, "head_dim", 48):
            found.append("head_dim")
    typed = re.search("layer_type|block_type", code) or model_type == "mistral"
    if made.get("kind") in ("rotary", "none") and not typed:
        found.append("layer_types")  # AutoConfig makes of a Mistral that lists them a Ministral
    ruled = '"sliding_window"' in json.dumps(made.get("windows"))
    if not ruled and not ("sliding" in code and _slides(model_type, made)):
        found.append("sliding_window")
    return found


def _computed(kind: type[PreTrainedConfig], key: str, value: Any) -> bool:
    """Test whether a class overwrites what a config says."""
    with suppress(Exception):
        return key in vars(kind()) and vars(kind(**{key: value}))[key] == vars(kind())[key] != value
    return False


def _slides(model_type: str, made: Mapping[str, Any]) -> bool:
    """Test whether a model has windows, where a config has the keys of one."""
    windows = {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 0}
    tried = [windows]
    if "layer_types" in switches.stated(model_type):
        count = watched.config(model_type, **_few(model_type, made)).num_hidden_layers
        tried.append({**windows, "layer_types": ["sliding_attention"] * count})
    return _moves(model_type, made, tried)


def _moves(model_type: str, made: Mapping[str, Any], tried: list[dict[str, Any]]) -> bool:
    """Test whether a model of few layers does something else with any of these values.

    One that cannot be built or watched does.
    """
    few = _few(model_type, made)
    with suppress(Exception):
        plain = watched.behaviour(watched.config(model_type, **few))
        seen = any(call[-1] for call in plain["attended"])
        for values in tried:
            other = watched.behaviour(watched.config(model_type, **{**few, **values}))
            if other != plain:
                return True
        return not seen
    return True


def switched(model_type: str, made: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that change what a model does, and that no rule is about; and their defaults.

    Each is set to another value, and the two models are compared.
    """
    few, rules = _few(model_type, made), json.dumps(made)
    stated = switches.stated(model_type)
    asked = [key for key in stated if key not in READ_BY_NAME and f'"{key}"' not in rules]
    plain = watched.behaviour(watched.config(model_type, **few)) if asked else {}

    def heeds(values: Mapping[str, Any]) -> bool:
        with suppress(Exception):  # such a model cannot be built
            return watched.behaviour(watched.config(model_type, **{**few, **values})) != plain
        return False

    return {k: stated[k][0] for k in asked if any(map(heeds, switches.of(model_type, k)))}


def _few(model_type: str, made: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a model with few layers, where its class allows them."""
    name = made.get("keys", {}).get("num_hidden_layers", "num_hidden_layers")
    mended = watched.MENDED.get(model_type, {})
    if any(isinstance(value, list) for value in mended.values()) or "num_hidden_layers" in mended:
        return {}
    try:
        config = watched.config(model_type, **{name: MOST_LAYERS})
        types = getattr(config, "layer_types", None)
        return {name: MOST_LAYERS} if types is None or len(types) == MOST_LAYERS else {}
    except Exception:
        return {}


def parts(model_type: str) -> list[str]:
    """Configs inside it that have anything to do with positions, by default."""
    config = watched.config(model_type)
    inner = {key: getattr(config, key).model_type for key in watched.inner(config)}
    return [
        key
        for key, name in inner.items()
        if name in CONFIG_MAPPING and read(name).get("kind") != "nothing"
    ]


def inner(model_type: str, names: list[str]) -> dict[str, dict[str, Any]]:
    """What a class takes each config inside it for, that states no type or another one."""
    kind: Any = CONFIG_MAPPING[model_type]

    def made(name: str, **values: Any) -> Any:
        for given in ({name: values}, {}):
            with suppress(Exception):  # the class cannot take it so
                return getattr(kind(**given), name)
        return None

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        part = made(name)
        if part is None or part.model_type not in CONFIG_MAPPING:
            continue
        other = "bert" if part.model_type != "bert" else "gpt2"
        fixed = type(made(name, model_type=other)) is type(part)
        found[name] = {"model_type": part.model_type} | ({"fixed": True} if fixed else {})
        with suppress(Exception):  # its class has no defaults that fit each other
            own = type(part)()
            values = {key: getattr(part, key, None) for key in (*USUAL, "sliding_window")}
            values["rope_parameters"] = getattr(part, "rope_parameters", None)
            differ = {k: v for k, v in values.items() if v != getattr(own, k, None)}
            stated = getattr(kind.sub_configs_defaults.get(name), "init_kwargs", {})
            differ |= {k: v for k, v in stated.items() if differ and k in USUAL}
            found[name] |= {"defaults": differ} if differ else {}
    return found


def flat(model_type: str) -> str:
    """Type of the text model inside that the class makes of keys at the top level; "" if none."""
    kind: Any = CONFIG_MAPPING[model_type]
    with suppress(Exception):  # it has no text model, or several
        usual = kind().get_text_config()
        deeper = kind(num_hidden_layers=usual.num_hidden_layers + 1).get_text_config()
        inside = type(deeper) is not kind
        if inside and deeper.num_hidden_layers > usual.num_hidden_layers:
            return deeper.model_type
    return ""


def keys(kind: type[PreTrainedConfig], config: PreTrainedConfig) -> dict[str, str]:
    """Usual name → its own, where they differ."""
    found = {k: v for k, v in kind.attribute_map.items() if k in POSITIONAL}
    for usual, others in {
        "max_position_embeddings": ("max_seq_len", "n_positions", "max_sequence_length"),
        "num_hidden_layers": ("num_layers", "n_layers", "n_layer", "depth"),
        "num_attention_heads": ("num_heads", "n_heads", "n_head"),
    }.items():
        for other in others:
            if usual not in found and other in vars(config) and usual not in vars(config):
                found[usual] = other
    return found


def defaults(model_type: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Usual name → what the class takes without it. What follows from other keys is left out."""
    kind = CONFIG_MAPPING[model_type]
    stated = {
        f.name: f.default
        for f in fields(kind)
        if f.default is not MISSING and f.default is not None
    }
    found: dict[str, Any] = {}
    for usual in POSITIONAL:
        value = stated.get(names.get(usual, usual))
        if value is not None:
            found[usual] = list(value) if isinstance(value, tuple) else value
    mended = watched.config(model_type)
    plain: Any = mended
    with suppress(Exception):  # its own defaults contradict each other
        plain = kind()
    made, rope = vars(plain), vars(plain).get("rope_parameters")
    rope = rope or vars(mended).get("rope_parameters")
    if rope:
        found["rope_parameters"] = json.loads(json.dumps(rope))
    for usual in (
        "num_key_value_heads",
        "head_dim",
        "num_attention_heads",
        "max_position_embeddings",
    ):
        own = names.get(usual, usual)
        if usual not in found and not _follows(model_type, own, usual, names):
            found[usual] = made.get(own)
    return {k: v for k, v in found.items() if v is not None}


def _follows(model_type: str, own: str, usual: str, names: Mapping[str, str]) -> Any:
    """Test whether it is the number of heads, or an even share of the width, for any of these."""
    config = watched.config(model_type)
    value = vars(config).get(own)
    if value is None or usual not in ("num_key_value_heads", "head_dim"):
        return value is None
    heads = getattr(config, "num_attention_heads", None)
    width = getattr(config, "hidden_size", None)
    if usual == "num_key_value_heads":
        return value == heads
    rope = vars(config).get(names.get("head_dim", "head_dim"))
    return value == rope or (heads and width and value == width // heads)


def turning(model_type: str) -> dict[str, Any]:
    """Layout, place and direction, and which types of layers attend: by running the model."""
    try:
        seen = watched.trace(model_type)
        calls = {call.function.__name__: call for call in seen.main}
        call = next(iter(calls.values()))
    except Exception as error:  # it cannot be run on nothing: its function alone then
        print(f"{model_type}: not run, {type(error).__name__}: {error}"[:160], file=sys.stderr)
        seen, call = watched.alone(watched.config(model_type))
    found = watched.rotation(seen, call)
    made: dict[str, Any] = {"layout": found.layout}
    if found.place != "leading":
        made["place"] = found.place
    if len(found.theta) and float(found.theta.sum()) < 0:
        made["sign"] = -1
    return made | attending(seen)


def attending(seen: watched.Trace) -> dict[str, Any]:
    """Find which types of layers attend, where some do not."""
    made: dict[str, Any] = {}
    types = getattr(seen.config, "layer_types", None)
    if seen.attended and types and len(types) == seen.config.num_hidden_layers:
        attend = {types[i] for i in seen.attends if i >= 0}
        if attend < set(types):
            made["attention"] = sorted(attend)
    return made


def layer_rule(model_type: str) -> dict[str, Any]:
    """Find how a class makes up `layer_types`, by asking it for models of many depths."""
    made = {n: t for n in range(8, 49) if (t := _types(model_type, n))}
    config = vars(watched.config(model_type))
    by_key = {"use_sliding_window", "max_window_layers"} & set(config)  # these change it
    full = all(set(types) == {"full_attention"} for types in made.values())
    if len(made) < 20 or (full and (by_key or config.get("sliding_window") is None)):
        return {}
    if len(names := {kind for types in made.values() for kind in types}) == 1:
        return {"cycle": list(names)}
    for rule in _rules(made):
        if all(by_rule(rule, n) == types for n, types in made.items()):
            for key in STEPS:
                for value in (5, 7, 9):
                    changed = _types(model_type, 24, **{key: value})
                    if changed != by_rule({**rule, "every": value}, 24):
                        break
                else:
                    return {"key": key, **rule, **_placed(model_type, {"key": key, **rule})}
            return rule
    print(f"{model_type}: no rule for its types of layers", file=sys.stderr)
    return {}


def _placed(model_type: str, rule: Mapping[str, Any]) -> dict[str, str]:
    """The key of the place of the one layer among the others, if there is one."""
    for key in PLACES:
        tried = range(rule["every"])
        if all(_types(model_type, 24, **{key: n}) == by_rule({**rule, "at": n}, 24) for n in tried):
            return {"at_key": key}
    return {}


def _types(model_type: str, count: int, **given: Any) -> list[str] | None:
    try:
        return watched.config(model_type, num_hidden_layers=count, **given).layer_types
    except Exception:
        return None


def _rules(made: Mapping[int, list[str]]) -> Iterator[dict[str, Any]]:
    longest = made[max(made)]
    names = sorted(set(longest))
    for every in range(2, 13):
        for at in (-1, *range(every - 1)):
            for one in names:
                for other in names:
                    if one == other:
                        continue
                    rule = {"every": every, "at": at, "is": one, "else": other}
                    yield rule
                    yield {**rule, "last": one}
                    yield {**rule, "end": True}
                    for first in (1, 2, 3):
                        yield {**rule, "first": longest[:first]}
                        yield {**rule, "first": longest[:first], "last": one}


def by_rule(rule: Mapping[str, Any], count: int) -> list[str]:
    """Types of `count` layers by a rule: `Family.types` written again, to check it by."""
    made = []
    if "cycle" in rule:
        made = [rule["cycle"][layer % len(rule["cycle"])] for layer in range(count)]
    for layer in range(count) if not made else ():
        index = count - 1 - layer if rule.get("end") else layer
        place = rule["every"] - 1 if rule["at"] == -1 else rule["at"]
        made.append(rule["is"] if index % rule["every"] == place else rule["else"])
    first = rule.get("first", [])[:count]
    made[: len(first)] = first
    if made and "last" in rule:
        made[-1] = rule["last"]
    return made


NAMES = re.compile(
    r"(^|\.)(position_embeddings?|embed_positions|wpe|positions_embed|pos_embed|pos_emb"
    r"|position_embeds_layer|char_position_embeddings|positional_embedding)(\.weights?|\.\w+)?$"
)


def added(model_type: str, config: PreTrainedConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """A table that is added to the embeddings: learned or fixed, how long, from which row on."""
    model = watched.built(config)
    found = {n: p for n, p in _tensors(model) if NAMES.search(n) and p.ndim in (2, 3)}
    if not found:
        raise LookupError("no table of positions")
    made: dict[str, Any] = {}
    stacks = {}
    for name, table in found.items():
        owner = model.get_submodule(name.rsplit(".", 1)[0]) if "." in name else model
        part = "decoder" if "decoder" in name else "encoder" if "encoder" in name else ""
        stacks[part] = _table(model, config, names, owner, table, part)
    lone = [s for s in stacks if s in ("encoder", "decoder")]
    if len(lone) == 2:
        kinds = {stacks["encoder"].pop("kind"), stacks["decoder"].pop("kind")}
        made["kind"] = kinds.pop()
        made["stacks"] = {part: stacks[part] for part in lone}
    else:
        made |= next(iter(stacks.values()))
        made.pop("keys", None) if len(stacks) == 1 and not made.get("keys") else None
    return made


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from ((n, b) for n, b in model.named_buffers() if b.is_floating_point())


def _table(
    model: nn.Module,
    config: PreTrainedConfig,
    names: Mapping[str, str],
    owner: nn.Module,
    table: Tensor,
    part: str,
) -> dict[str, Any]:
    rows = table.shape[-2]
    learned = isinstance(table, nn.Parameter) and "Sinus" not in type(owner).__name__
    made: dict[str, Any] = {"kind": "learned" if learned else "sinusoidal"}
    own = _own_keys(config, part)
    if own:
        made["keys"] = own
    usual = "max_position_embeddings"
    longest = getattr(config, own.get(usual, names.get(usual, usual)), None)
    source = inspect.getsource(sys.modules[type(model).__module__])
    offset = getattr(owner, "offset", 0) or 0
    if hasattr(owner, "offset"):
        made["offset"] = offset
    elif getattr(owner, "padding_idx", None) is not None and "create_position_ids_from" in source:
        made["offset"] = "pad + 1"
    if longest is None:
        side = [getattr(config, key, None) for key in ("image_size", "patch_size")]
        if any(x is None for x in side):
            raise LookupError(f"nothing says that there are {rows} rows")
        image, patch = ([x, x] if isinstance(x, int) else x for x in side)
        cells = (image[0] // patch[0]) * (image[1] // patch[1])  # type: ignore[index]
        if not 0 <= rows - cells <= 2:
            raise LookupError(f"{rows} rows for {cells} patches")
        made["form"] = {"grid": ["image_size", "patch_size"]}
        longest = cells
    if table.shape[-1] != config.hidden_size:
        of = ("embedding_size", "input_embedding_size", "word_embed_proj_dim")
        same = [key for key in of if getattr(config, key, None) == table.shape[-1]]
        if not same:
            raise LookupError(f"nothing says that its rows have {table.shape[-1]} channels")
        made.setdefault("form", {})["width"] = same[0]
    if rows != longest:
        made["extra"] = rows - longest
    if not learned:
        made["waves"] = waves(owner, rows)
    return made


def _own_keys(config: PreTrainedConfig, part: str) -> dict[str, str]:
    found = {
        "num_hidden_layers": f"{part}_layers",
        "num_attention_heads": f"{part}_attention_heads",
    }
    return {usual: own for usual, own in found.items() if part and own in vars(config)}


def waves(owner: nn.Module, rows: int) -> dict[str, Any]:
    """The form of a fixed table, from its own function."""
    return form(_made(owner, rows, 64).detach().double())


def _made(owner: nn.Module, rows: int, width: int) -> Tensor:
    kind: Any = type(owner)
    for made in (
        lambda: kind.get_embedding(rows, width),
        lambda: kind.get_embedding(rows, width, 1),
        lambda: kind(rows, width).create_weight(),
        lambda: kind(rows, width).positional_embedding,
        lambda: kind(width)(torch.zeros(1, rows, width))[0],
    ):
        try:
            table = made()
        except (AttributeError, TypeError):
            continue
        if table is not None:
            return table.detach()
    raise LookupError(f"{kind.__name__}: no function makes its table")


def fixed(config: PreTrainedConfig, width: int, rows: int) -> Tensor:
    """The first rows of the fixed table of a model, as its own function makes them."""
    model = watched.built(config)
    module = sys.modules[type(model).__module__]
    if hasattr(module, "sinusoids"):
        return module.sinusoids(rows, width)
    if hasattr(module, "positional_encoding"):
        return module.positional_encoding(rows, width, torch.float)
    owners = [m for m in model.modules() if re.search("Sinus|PositionalEmb", type(m).__name__)]
    return _made(owners[0], rows, width)


def form(table: Tensor) -> dict[str, Any]:
    """Find which of the usual forms a table of waves has; row p is position p."""
    pos = torch.arange(len(table), dtype=torch.float64)[:, None]
    pairs = table.shape[-1] // 2
    for step, last in (("d/2", pairs), ("d/2 − 1", pairs - 1)):
        angle = pos * torch.exp(-math.log(10_000.0) * torch.arange(pairs) / last)
        sin, cos = angle.sin(), angle.cos()
        for halves in (True, False):
            join = torch.cat((sin, cos), -1) if halves else torch.stack((sin, cos), -1).flatten(-2)
            other = torch.cat((cos, sin), -1) if halves else torch.stack((cos, sin), -1).flatten(-2)
            for expected, first in ((join, "sin"), (other, "cos")):
                # fairseq's tables have zeros in the row of the padding token
                off = (table - expected).abs().amax(-1)
                if (off > 1e-4).sum() <= 1:
                    found = {"halves": halves, "base": 10_000.0, "step": step}
                    return found | ({"first": "cos"} if first == "cos" else {})
    raise LookupError("a table of waves in no form that is known")


def stray() -> set[str]:
    """Names that were read and that transformers does not have."""
    tables = (KINDS, REFUSED, BOTH, dict(enumerate(names for _, names in SCALES)), SOFTCAP, SINKS)
    read_of = [names for table in (*tables, BEYOND) for names in table.values()]
    names = " ".join([*READ, *read_of]).split()
    return {name for name in names if name not in CONFIG_MAPPING}


def main() -> None:
    if wrong := stray():
        sys.exit(f"transformers has no {', '.join(sorted(wrong))}")
    watched.quiet()
    names = [name for name in sys.argv[1:] if name != "--check"]
    lines: dict[str, dict[str, Any]] = {}
    for model_type in sorted(CONFIG_MAPPING.keys()):
        if names and model_type not in names:
            continue
        try:
            lines[model_type] = line(model_type)
        except Exception as error:
            print(f"{model_type}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    written = [f"{json.dumps(k)}: {_compact(v)}" for k, v in lines.items()]
    text = "{\n" + ",\n".join(written) + "\n}\n"
    if "--check" in sys.argv:
        held = TARGET.read_text("utf-8")
        stands = {line.removesuffix(",") for line in held.splitlines()}
        if not {*written} <= stands if names else held != text:
            sys.exit("families.json is stale: run `python tools/families.py`.")
    elif names:
        print(text)
    else:
        TARGET.write_text(text, "utf-8")


def _compact(values: Mapping[str, Any]) -> str:
    kept = {k: values[k] for k in FIELDS if values.get(k) not in ({}, [], "", None)}
    return json.dumps(kept, ensure_ascii=False, default=str)


if __name__ == "__main__":
    main()
