"""Configs with a fault that was met in 2026, each rebuilt from the thread that it is known from."""

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MET = {  # rule, level -> keys that differ from the above; None: left out
    ("missing-base", "error"): {
        "rope_theta": None,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0},
    },
    ("missing-base-old", "warning"): {"rope_theta": None, "rope_scaling": YARN},
    ("values-disagree", "error"): {
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
    ("unknown-key", "error"): {"rope_scaling": YARN | {"betafast": 32}},
    ("attention-factor", "warning"): {"rope_scaling": YARN | {"attention_factor": 1.0}},
    ("context-not-multiplied", "warning"): {
        "max_position_embeddings": 32768,
        "rope_scaling": YARN,
    },
    ("base-too-small", "warning"): {"rope_theta": 10000.0},
    ("rotation-ignored", "warning"): {"rotary_dim": 64},
    ("sections-sum", "error"): {
        "model_type": "qwen2_vl",
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 20]},
    },
    ("unknown-method", "error"): {"rope_scaling": {"type": "yarm", "factor": 4.0}},
    ("missing-key", "error"): {"rope_scaling": {"rope_type": "linear"}},
    ("odd-channels", "error"): {"model_type": "phi", "partial_rotary_factor": 0.258},
    ("impossible-value", "error"): {"rope_theta": 0},
    ("missing-factor", "warning"): {
        "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 32768}
    },
    ("factor-below-1", "warning"): {"rope_scaling": {"type": "linear", "factor": 0.5}},
    ("settings-left-out", "warning"): {
        "model_type": "gemma3_text",
        "rope_scaling": {"type": "linear", "factor": 8.0},
    },
    ("mscale-alone", "note"): {"rope_scaling": YARN | {"mscale": 0.7}},
    ("key-ignored", "note"): {"sliding_window": 4096},
}
