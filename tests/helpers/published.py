"""Rebuild the config.json files of published models from tests/data/rope_configs.json."""

import json
from pathlib import Path

MODELS = json.loads((Path(__file__).parents[1] / "data/rope_configs.json").read_text())["models"]
KINDS = {  # the model_type under which each was published
    "Llama-3.1-8B-Instruct": "llama",
    "Llama-3.2-1B-Instruct": "llama",
    "Llama-4-Scout-17B-16E (text)": "llama4_text",
    "EXAONE-4.0-32B": "exaone4",
    "Apertus-8B (class default)": "apertus",
    "Qwen2.5-7B-Instruct": "qwen2",
    "Qwen2.5 (32B or 72B) + yarn recipe": "qwen2",
    "Qwen3-8B": "qwen3",
    "DeepSeek-V2-Lite": "deepseek_v2",
    "DeepSeek-V3 / R1": "deepseek_v3",
    "Kimi-K2-Instruct": "deepseek_v3",
    "gpt-oss-20b/120b": "gpt_oss",
    "Olmo-3.1-32B-Instruct": "olmo3",
    "Devstral-2-123B-Instruct": "ministral3",
    "Ministral-3 (class default)": "ministral3",
    "Phi-3.5-mini-instruct": "phi3",
    "Phi-3-vision-128k-instruct": "phi3",
    "phi-1": "phi",
    "phi-4": "phi3",
    "Gemma-3-12b-it (text)": "gemma3_text",
    "Gemma-3-1b-it": "gemma3_text",
    "Gemma-3-270m": "gemma3_text",
    "ModernBERT-base": "modernbert",
    "Qwen2.5-VL-7B-Instruct": "qwen2_5_vl_text",
    "Qwen3-VL-2B (text)": "qwen3_vl_text",
    "Qwen3.5-9B (text)": "qwen3_5_text",
    "Mistral-7B-Instruct-v0.3": "mistral",
    "SmolLM2-135M-Instruct": "llama",
    "GPT-NeoX-20B / Pythia": "gpt_neox",
    "GPT-J-6B": "gptj",
    "GLM-4 (class default)": "glm4",
    "Moonshine-tiny": "moonshine",
    "SmolLM3-3B (class default)": "smollm3",
    "nomic-bert (class default)": "nomic_bert",
}
OWN = {  # keys that a model's config spells in its own way
    "gptj": lambda m: {"n_embd": 16 * m["head_dim"], "n_head": 16, "n_layer": 8, "rotary_dim": 64},
    "gpt_neox": lambda m: {"rotary_pct": 0.25, "rotary_emb_base": 10000},
    "modernbert": lambda m: {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0},
}
LAYERS = 8


def published(name):
    """Return the config.json of a published model, rebuilt from the recorded fields."""
    model = MODELS[name]
    kind = KINDS[name]
    config = {"model_type": kind, "num_hidden_layers": LAYERS, "num_attention_heads": 16}
    config |= {"hidden_size": 16 * model["head_dim"], "num_key_value_heads": 4}
    if kind.startswith("deepseek"):
        config |= {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "num_key_value_heads": 16}
    elif kind not in OWN:
        config["head_dim"] = model["head_dim"]
    for key in (
        *("max_position_embeddings", "original_max_position_embeddings", "rope_theta"),
        *("partial_rotary_factor", "rope_scaling", "rope_local_base_freq"),
    ):
        if model.get(key) is not None and not (kind in OWN and key.startswith("rope_")):
            config[key] = model[key]
    if "sliding_window" in model:
        # A null differs from an absent key: the class of Mistral has a window by default
        config["sliding_window"] = model["sliding_window"]
    scaling = config.get("rope_scaling")
    if scaling and "legacy_type" in scaling:
        scaling = {k: v for k, v in scaling.items() if k not in ("legacy_type", "rope_type")}
        config["rope_scaling"] = {"type": "su", **scaling}
    return config | OWN.get(kind, lambda m: {})(model)
