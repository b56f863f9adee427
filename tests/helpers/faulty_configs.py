"""Configs with known faults: some rebuilt from a public thread, others planted in published files.

`python tests/helpers/faulty_configs.py` prints what `posenc check` answers to each planted fault.
"""

import json
import tempfile
from pathlib import Path

from published import published

from posenc.models.check.faults import faults

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

SCALING = "rope_scaling"
QWEN, LLAMA_3, GEMMA, PHI = "Qwen3-8B", "Llama-3.1-8B-Instruct", "Gemma-3-12b-it (text)", "phi-1"
PHI_LONG, DEEPSEEK, QWEN_VL = "Phi-3.5-mini-instruct", "DeepSeek-V3 / R1", "Qwen2.5-VL-7B-Instruct"
GPT_OSS, OLMO, NEOX = "gpt-oss-20b/120b", "Olmo-3.1-32B-Instruct", "GPT-NeoX-20B / Pythia"
STRETCHED = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
BY_EIGHT = {"type": "linear", "factor": 8.0}
OF_LLAMA = {"model_type": "llama", "original_max_position_embeddings": None}


def exchanged(config):
    scaling = config[SCALING]
    short, long = scaling["short_factor"], scaling["long_factor"]
    return {SCALING: scaling | {"short_factor": long, "long_factor": short}}


def inverted(config):
    lists = ("short_factor", "long_factor")
    return {SCALING: {key: [1 / x for x in config[SCALING][key]] for key in lists}}


def shortened(config):
    return {SCALING: {"long_factor": config[SCALING]["long_factor"][:-1]}}


def within(**keys):
    return {SCALING: keys}


# Each entry: a published config, the keys that change (None removes a key, and the keys of an
# object are merged), and the rule that must be named, or "cannot say".
CONTRADICTIONS = {  # faults visible in the file that `posenc check` once passed in silence
    "a factor of YaRN below 1": (
        QWEN,
        {"max_position_embeddings": 131072, SCALING: STRETCHED | {"factor": 0.25}},
        "factor-below-1",
    ),
    "LongRoPE's factors inverted": (PHI_LONG, inverted, "lists-exchanged"),
    "YaRN ×2 for four times the length": (
        QWEN,
        {"max_position_embeddings": 131072, SCALING: STRETCHED | {"factor": 2.0}},
        "lengths-disagree",
    ),
    "linear ×8 for four times the length": (
        LLAMA_3,
        {
            "max_position_embeddings": 16384,
            SCALING: None,
            "rope_parameters": BY_EIGHT
            | {"rope_theta": 5e5, "original_max_position_embeddings": 4096},
            "rope_theta": None,
        },
        "lengths-disagree",
    ),
    "LongRoPE without its original length": (PHI_LONG, OF_LLAMA, "long-unused"),
    "LongRoPE's original length is the context": (
        PHI_LONG,
        {"original_max_position_embeddings": 131072},
        "long-unused",
    ),
    "LongRoPE's lists exchanged": (PHI_LONG, exchanged, "lists-exchanged"),
    "LongRoPE's attention factor 1": (PHI_LONG, within(attention_factor=1.0), "attention-factor"),
    "mscale_all_dim lost": (DEEPSEEK, within(mscale_all_dim=None), "mscale-lost"),
    "the context lost beside Llama 3's scaling": (
        LLAMA_3,
        {"max_position_embeddings": None},
        "context-below-original",
    ),
    "Gemma's two bases exchanged": (
        GEMMA,
        {"rope_theta": 10000.0, "rope_local_base_freq": 1e6},
        "bases-exchanged",
    ),
    "linear ×1": (GEMMA, {SCALING: {"rope_type": "linear", "factor": 1.0}}, "factor-of-1"),
    "a window of 1": (GEMMA, {"sliding_window": 1}, "window-of-1"),
    "model_type missing": (QWEN, {"model_type": None}, "cannot say"),
    "model_type misspelt": (LLAMA_3, {"model_type": "lama"}, "cannot say"),
    "model_type in capitals": (LLAMA_3, {"model_type": "Llama"}, "cannot say"),
    "architectures of another class": (
        LLAMA_3,
        {"architectures": ["MistralForCausalLM"]},
        "architectures-disagree",
    ),
}
VISIBLE = {  # other faults visible in the file
    "a base of 0": (QWEN, {"rope_theta": 0}, "impossible-value"),
    "a base below 0": (QWEN, {"rope_theta": -1e6}, "impossible-value"),
    "a base in quotes": (QWEN, {"rope_theta": "1000000"}, "impossible-value"),
    "a base true": (QWEN, {"rope_theta": True}, "impossible-value"),
    "LongRoPE lost": (PHI_LONG, {SCALING: None}, "base-too-small"),
    "a base too small": (LLAMA_3, {"rope_theta": 1e4, SCALING: None}, "base-too-small"),
    "the base lost": (LLAMA_3, {"rope_theta": None}, "missing-base-old"),
    "the base lost, new spelling": (
        LLAMA_3,
        {"rope_theta": None, SCALING: None, "rope_parameters": BY_EIGHT},
        "missing-base",
    ),
    "two bases": (
        LLAMA_3,
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, SCALING: None},
        "values-disagree",
    ),
    "two types": (LLAMA_3, within(type="linear"), "values-disagree"),
    "attn_factor": (QWEN, {SCALING: STRETCHED | {"attn_factor": 1.0}}, "unknown-key"),
    "betafast": (QWEN, {SCALING: STRETCHED | {"betafast": 32}}, "unknown-key"),
    "original_max_position_embedding": (
        QWEN,
        {SCALING: {"type": "yarn", "factor": 4.0, "original_max_position_embedding": 32768}},
        "unknown-key",
    ),
    "factr": (GEMMA, {SCALING: {"rope_type": "linear", "factr": 8.0}}, "unknown-key"),
    "a type misspelt": (QWEN, {SCALING: STRETCHED | {"type": "yarm"}}, "unknown-method"),
    "a type null, a factor there": (QWEN, {SCALING: {"type": None, "factor": 4.0}}, "unknown-key"),
    "a factor missing": (GEMMA, {SCALING: {"rope_type": "linear", "factor": None}}, "missing-key"),
    "a factor of 0": (GEMMA, within(factor=0.0), "impossible-value"),
    "a factor below 0": (GEMMA, within(factor=-8.0), "impossible-value"),
    "a factor in quotes": (GEMMA, within(factor="8"), "impossible-value"),
    "a linear factor below 1": (GEMMA, within(factor=0.125), "factor-below-1"),
    "YaRN's factor missing": (
        QWEN,
        {SCALING: {"type": "yarn", "original_max_position_embeddings": 32768}},
        "missing-factor",
    ),
    "YaRN's attention factor 1": (OLMO, within(attention_factor=1.0), "attention-factor"),
    "the context not multiplied": (QWEN, {SCALING: STRETCHED}, "context-not-multiplied"),
    "Llama 3's context not multiplied": (
        LLAMA_3,
        {"max_position_embeddings": 8192},
        "context-not-multiplied",
    ),
    "low_freq_factor missing": (LLAMA_3, within(low_freq_factor=None), "missing-key"),
    "the ends of Llama 3 exchanged": (
        LLAMA_3,
        within(low_freq_factor=4.0, high_freq_factor=1.0),
        "impossible-value",
    ),
    "YaRN's ends exchanged": (
        QWEN,
        {SCALING: STRETCHED | {"beta_fast": 1, "beta_slow": 32}},
        "impossible-value",
    ),
    "a long factor missing": (PHI_LONG, within(long_factor=None), "missing-key"),
    "a list too short": (PHI_LONG, shortened, "impossible-value"),
    "sections that do not add up": (QWEN_VL, within(mrope_section=[16, 24, 20]), "sections-sum"),
    "a section of no pair": (QWEN_VL, within(mrope_section=[0, 32, 32]), "sections-sum"),
    "a share above 1": (PHI, {"partial_rotary_factor": 1.5}, "impossible-value"),
    "a share of no channel": (PHI, {"partial_rotary_factor": 0.01}, "odd-channels"),
    "a share of an odd number": (PHI, {"partial_rotary_factor": 0.33}, "odd-channels"),
    "a share that the class ignores": (QWEN, {"rotary_dim": 64}, "rotation-ignored"),
    "heads that do not divide the width": (
        LLAMA_3,
        {"head_dim": None, "num_attention_heads": 15, "num_key_value_heads": 5},
        "impossible-value",
    ),
    "key heads that do not divide the heads": (
        QWEN,
        {"num_key_value_heads": 3},
        "impossible-value",
    ),
    "a context of 0": (QWEN, {"max_position_embeddings": 0}, "impossible-value"),
    "a window below 0": (GEMMA, {"sliding_window": -1}, "impossible-value"),
    "flat settings beside types": (
        "Gemma-3-1b-it",
        {SCALING: {"type": "linear", "factor": 8.0}},
        "settings-left-out",
    ),
}
UNKNOWABLE = {  # plausible values: nothing in the file contradicts them
    "another base": (QWEN, {"rope_theta": 5e6}),
    "Llama 3's base of Llama 2 times 10": (LLAMA_3, {"rope_theta": 1e6}),
    "the scaling lost": (LLAMA_3, {SCALING: None}),
    "another factor of Llama 3": (LLAMA_3, within(factor=32.0)),
    "another original length of Llama 3": (LLAMA_3, within(original_max_position_embeddings=4096)),
    "YaRN ×8 on half of the original length": (
        QWEN,
        {
            "max_position_embeddings": 131072,
            SCALING: STRETCHED | {"factor": 8.0, "original_max_position_embeddings": 16384},
        },
    ),
    "beta_fast lost": ("Kimi-K2-Instruct", within(beta_fast=None)),
    "truncate lost": (GPT_OSS, within(truncate=None)),
    "another window": (GEMMA, {"sliding_window": 4096}),
    "the window lost": (GPT_OSS, {"sliding_window": 131072}),
    "Gemma's linear scaling lost": (GEMMA, {SCALING: None}),
    "Gemma's local base": (GEMMA, {"rope_local_base_freq": 1e5}),
    "another share of channels": (PHI, {"partial_rotary_factor": 0.25}),
    "another rotary_pct": (NEOX, {"rotary_pct": 0.5}),
    "other sections": (QWEN_VL, within(mrope_section=[24, 20, 20])),
    "the class of a relative": (QWEN, {"model_type": "qwen2"}),
    "a context doubled": (QWEN, {"max_position_embeddings": 81920}),
    "a context halved": (LLAMA_3, {"max_position_embeddings": 65536}),
    "both mscales 0.7": (DEEPSEEK, within(mscale=0.707, mscale_all_dim=0.707)),
}


def planted_config(base, changes):
    """Return the published config `base` with changed keys; the value None removes a key."""
    config = published(base)
    for key, value in (changes(config) if callable(changes) else changes).items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            value = config[key] | value
        if isinstance(value, dict):
            value = {inner: one for inner, one in value.items() if one is not None}
        config[key] = value
    return {key: value for key, value in config.items() if value is not None}


def answer(config):
    """Return the rules that `posenc check` reports for a config, without notes.

    The set contains "cannot say" if the check is incomplete.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        found = faults(Path(folder))
    named = {finding.rule.name for finding in found.findings if finding.level != "note"}
    return named | ({"cannot say"} if found.unknown else set())


def main():
    planted = {**CONTRADICTIONS, **VISIBLE, **UNKNOWABLE}
    caught = 0
    for name, (base, changes, *_) in planted.items():
        answered = answer(planted_config(base, changes)) - answer(published(base))
        caught += bool(answered)
        print(f"{name}: {', '.join(sorted(answered)) or 'not visible in the file'}")
    print(f"{caught} of {len(planted)}")


if __name__ == "__main__":
    main()
