"""Test posenc's reading of configs against every model of transformers: see understood.py."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from thorough import THOROUGH, some

sys.path.insert(0, str(Path(__file__).parent))
from understood import Result, count, in_second_python, models, variant, watched

from posenc.models.config import families

pytestmark = pytest.mark.slow

YARN = {
    "rope_type": "yarn",
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
FULL = ["full_attention"] * 4
PAGE = (Path(__file__).parents[3] / "docs/models.md").read_text("utf-8")

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    # the flag of the layout
    ("deepseek_v3", {"num_hidden_layers": 2, "rope_interleave": False}),
    # DeepSeek's second factor, and the two factors that cancel in the first
    (
        "deepseek_v3",
        {"num_hidden_layers": 2, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
    (
        "deepseek_v2",
        {
            "num_hidden_layers": 2,
            "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
    ),
    ("axk1", {"num_hidden_layers": 2, "rope_parameters": {**YARN, "mscale_all_dim": 1.0}}),
    # without a window, one model rotates all layers and the other none
    ("exaone4", {"num_hidden_layers": 4, "sliding_window": None, "layer_types": FULL}),
    ("kolibri1", {"num_hidden_layers": 4, "sliding_window": None, "layer_types": FULL}),
    ("cohere2", {"num_hidden_layers": 4, "sliding_window": None, "layer_types": FULL}),
    # layers without encoding, listed and counted
    ("smollm3", {"num_hidden_layers": 4, "no_rope_layers": [0, 1, 0, 1]}),
    ("smollm3", {"num_hidden_layers": 6, "no_rope_layer_interval": 3}),
    ("afmoe", {"num_hidden_layers": 8, "global_attn_every_n_layers": 2}),
    # a key that decides the kind
    ("falcon", {"num_hidden_layers": 2, "alibi": True}),
    (
        "falcon",
        {"num_hidden_layers": 2, "alibi": True, "num_attention_heads": 12, "hidden_size": 768},
    ),
    (
        "granitemoehybrid",
        {"num_hidden_layers": 4, "layer_types": FULL, "position_embedding_type": None},
    ),
    (
        "deberta-v2",
        {
            "num_hidden_layers": 2,
            "relative_attention": True,
            "pos_att_type": "p2c|c2p",
            "position_buckets": 256,
            "max_relative_positions": -1,
            "position_biased_input": False,
        },
    ),
    # layers listed by number: without a base, with cross-attention only
    ("muse_glimmer_text", {"num_hidden_layers": 4, "layer_rope_theta": [1e4, 0, 1e4, 0]}),
    ("muse_spark_text", {"num_hidden_layers": 5, "layer_rope_theta": [5e5, 5e5, 0, 5e5, 0]}),
    ("mllama_text_model", {"num_hidden_layers": 4, "cross_attention_layers": [1]}),
    # dense layers, which are rotated if their pattern has no window
    ("cohere2_moe", {"num_hidden_layers": 6, "first_k_dense_replace": 2}),
    (
        "cohere2_moe",
        {
            "num_hidden_layers": 8,
            "first_k_dense_replace": 3,
            "prefix_dense_sliding_window_pattern": 2,
            "sliding_window_pattern": 3,
        },
    ),
    (
        "embedding_gemma2_text",
        {"num_hidden_layers": 6, "global_head_dim": 128, "sliding_window_pattern": 3},
    ),
    # a number of heads that is not a power of two
    ("bloom", {"n_head": 12, "hidden_size": 768}),
    ("mpt", {"n_heads": 12, "d_model": 768}),
    # a key with the value null
    ("mistral", {"num_hidden_layers": 2, "sliding_window": None}),
    ("qwen2", {"num_hidden_layers": 4, "use_sliding_window": True, "max_window_layers": 2}),
    # keys of older files
    (
        "gemma3_text",
        {
            "num_hidden_layers": 6,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_theta": 5e5,
            "rope_local_base_freq": 2e4,
        },
    ),
    (
        "modernbert",
        {
            "num_hidden_layers": 4,
            "global_rope_theta": 5e5,
            "local_rope_theta": 2e4,
            "local_attention": 64,
        },
    ),
    ("gpt_neox", {"num_hidden_layers": 2, "rotary_pct": 0.5, "rotary_emb_base": 50_000}),
    ("minimax_m2", {"num_hidden_layers": 2, "rotary_dim": 64}),
    ("gptj", {"n_layer": 2, "rotary_dim": 32}),
    ("stablelm", {"num_hidden_layers": 2, "partial_rotary_factor": 0.5}),
    (
        "qwen2_vl_text",
        {"num_hidden_layers": 2, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    ),
    # scalings
    ("llama", {"num_hidden_layers": 2, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    ("llama", {"num_hidden_layers": 2, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}),
    ("llama", {"num_hidden_layers": 2, "rope_scaling": LLAMA3}),
    (
        "llama",
        {"num_hidden_layers": 2, "rope_theta": 5e5, "rope_scaling": {**YARN, "truncate": False}},
    ),
    (
        "hunyuan_v1_dense",
        {
            "num_hidden_layers": 2,
            "head_dim": 128,
            "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
        },
    ),
    ("glm4_moe", {"num_hidden_layers": 2, "head_dim": 128, "partial_rotary_factor": 0.25}),
    ("roberta", {"pad_token_id": 3}),
    # a decoder with fewer layers than the encoder, as in Whisper large v3 turbo, and none
    ("whisper", {"encoder_layers": 4, "decoder_layers": 2}),
    ("bart", {"encoder_layers": 4, "decoder_layers": 2}),
    ("pp_formulanet_text", {"encoder_layers": 4, "decoder_layers": 2}),
]


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [Result(**line) for line in in_second_python("understood.py", *some(models(), 8))]


def test_every_model_is_accounted_for():
    assert set(models()) <= set(families.model_types())


def test_every_model_is_equal_or_refused_by_name(results: list[Result]):
    done = ("equal", "refused", "none needed")
    assert [f"{one.model_type}: {one.outcome}" for one in results if one.outcome not in done] == []


def test_most_folders_are_supported(results: list[Result]):
    """docs/models.md states how many folders have each outcome; a short run tests a share."""
    by = count(results)
    done = len(by["supported and equal"]) + len(by["supported and equal in part"])
    assert done >= 365 * len(results) / len(models()) - (0 if THOROUGH else 8)
    kinds = (
        r"(\d+) (?:of these )?folders[^.]* equal\.",
        r"(\d+) folders[^.]* equal for text",
        r"rejects [^.]*?(\d+) folders",
        r"(\d+) folders have no positions",
    )
    said = [int(re.search(kind, PAGE)[1]) for kind in kinds]  # type: ignore[index]
    assert sum(said) == int(re.search(r"has (\d+) model folders", PAGE)[1])  # type: ignore[index]
    if THOROUGH:
        names = ("supported and equal", "supported and equal in part", "refused by name")
        assert said == [len(by[name]) for name in (*names, "no encoding")]


def test_a_refusal_says_why_in_a_sentence(results: list[Result]):
    for one in results:
        assert one.outcome != "refused" or len(one.why.split()) >= 4, one


@pytest.mark.parametrize(("model_type", "values"), VARIANTS, ids=lambda x: str(x)[:60])
def test_other_settings_are_equal_too(model_type: str, values: dict[str, Any]):
    watched.quiet()
    assert variant(model_type, values) == ""
