"""Test the programs that read a config, and the keys that they ignore.

Facts were read in the source of each program; transformers 4.57.6 was run on the config of `ALONE`,
with the result base 10,000 and no scaling.
"""

import json

import pytest
from published import KINDS, published

from posenc.models.check import readers
from posenc.models.check.sarif import sarif
from posenc.models.check.verdict import check
from posenc.models.config import specify
from posenc.models.extend import extend

LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
ALONE = LLAMA | {"rope_parameters": YARN | {"rope_theta": 500000.0}}
BOTH = LLAMA | {"rope_theta": 500000.0, "rope_scaling": YARN}
QWEN35 = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "rope_parameters": YARN
        | {"rope_theta": 1e7, "partial_rotary_factor": 0.5, "mrope_section": [6, 5, 5]},
    },
}
CHUNKS = LLAMA | {
    "model_type": "qwen2",
    "rope_theta": 1e6,
    "dual_chunk_attention_config": {"chunk_size": 4096, "local_size": 1024},
}
FOPE = {
    "model_type": "interns1_pro",
    "text_config": {
        **LLAMA,
        "model_type": "interns1_pro_text",
        "rope_theta": 1e6,
        "rope_scaling": {"rope_type": "default", "fope_init_factor": 0.5, "num_inv_freq": None},
    },
}


def found(tmp_path, config, *names):
    """Return a message for each (rule, key) of the findings about readers."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    checked = check(tmp_path / "config.json", used_by=names)
    mine = {"reader-ignores", "readers-disagree", "new-spelling-alone"}
    return {(x.rule.name, x.key): x.message for x in checked.findings if x.rule.name in mine}


def test_every_key_has_an_answer_for_every_reader():
    words = {"reads", "ignores", "refuses", "not read"}
    for key, answers in readers.table()["keys"].items():
        assert {*answers} == {*readers.readers()}, key
        for said in answers.values():
            if isinstance(said, str):
                assert said in words
                continue
            assert {*said} <= words
            models = [model for listed in said.values() for model in listed]
            assert len(models) == len({*models}), key


def test_every_reader_has_a_source():
    for reader in readers.readers().values():
        assert reader["title"]
        assert reader["version"]
        assert reader["commit"]
        assert reader["repository"].count("/") == 1


def test_rope_parameters_alone_is_lost_by_transformers_4(tmp_path):
    told = found(tmp_path, ALONE)
    message = told["new-spelling-alone", "rope_parameters"]
    assert "transformers 4" in message
    assert "rope_theta" in message
    assert not any(rule == "new-spelling-alone" for rule, _ in found(tmp_path, BOTH))


def test_rope_parameters_with_the_default_base_is_no_loss(tmp_path):
    told = found(tmp_path, LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})
    assert not told


def test_transformers_4_is_not_blamed_for_a_model_that_it_does_not_have(tmp_path):
    assert not found(tmp_path, QWEN35, "transformers-4")


def test_mlx_vlm_drops_yarn_of_qwen3_5(tmp_path):
    told = found(tmp_path, QWEN35, "mlx-vlm", "vllm")
    assert {*told} == {("reader-ignores", "text_config.rope_parameters")}
    assert "mlx-vlm" in told["reader-ignores", "text_config.rope_parameters"]
    assert "yarn" in told["reader-ignores", "text_config.rope_parameters"]


def test_readers_that_disagree_are_named_without_for(tmp_path):
    message = found(tmp_path, QWEN35)["readers-disagree", "text_config.rope_parameters"]
    heard, _, deaf = message.partition(" and ")
    assert "vLLM" in heard
    assert "mlx-vlm" in deaf
    assert "Ollama (MLX)" in deaf


def test_a_value_that_is_the_usual_one_is_no_disagreement(tmp_path):
    plain = BOTH | {"rope_scaling": YARN | {"beta_fast": 32.0, "truncate": True}}
    other = BOTH | {"rope_scaling": YARN | {"beta_fast": 64.0, "truncate": False}}
    assert ("reader-ignores", "rope_scaling.truncate") not in found(tmp_path, plain, "mlx-lm")
    assert ("reader-ignores", "rope_scaling.truncate") in found(tmp_path, other, "mlx-lm")


def test_dual_chunks_are_named(tmp_path):
    told = found(tmp_path, CHUNKS)["readers-disagree", "dual_chunk_attention_config"]
    assert "vLLM" in told.partition(" and ")[0]
    assert "transformers 5" in told.partition(" and ")[2]
    assert any("dual_chunk_attention_config" in note for note in specify(CHUNKS).notes)


def test_fope_is_read_and_its_effect_in_longer_texts_unknown(tmp_path):
    told = found(tmp_path, FOPE)
    key = "text_config.rope_scaling.fope_init_factor"
    assert "vLLM, SGLang read" in told["readers-disagree", key]
    checked = check(tmp_path / "config.json")
    assert checked.verdict == "cannot say"
    assert specify(FOPE).text_stack.kind == "fope"
    assert not any(x.level == "error" for x in checked.findings)


@pytest.mark.parametrize("name", KINDS)
def test_published_configs_get_no_errors(tmp_path, name):
    config = published(name)
    (tmp_path / "config.json").write_text(json.dumps(config))
    checked = check(tmp_path / "config.json")
    assert not [x for x in checked.findings if x.level == "error"]
    spelled_twice = [x for x in checked.findings if x.rule.name == "new-spelling-alone"]
    assert not spelled_twice or "rope_theta" not in config


def test_extend_prints_no_line_for_a_server_that_ignores_it(tmp_path):
    config = json.loads(json.dumps(QWEN35))
    config["text_config"]["rope_parameters"] |= {"rope_type": "default"}
    for key in ("factor", "original_max_position_embeddings"):
        del config["text_config"]["rope_parameters"][key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    lines = extend(tmp_path, to=4 * 8192).folder
    assert lines["vLLM"].startswith("vllm serve")
    assert lines["MLX"].startswith("mlx_lm.load")
    for server in ("mlx-vlm", "Ollama (MLX)"):
        assert "ignores yarn" in lines[server]


def test_mlx_lm_gets_no_line_for_a_key_that_its_class_ignores(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(ALONE))
    lines = extend(tmp_path, to=16384).folder
    assert "ignores rope_parameters" in lines["MLX"]
    assert "mlx_lm.load" not in lines["MLX"]


def test_an_unknown_reader_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="Did you mean"):
        found(tmp_path, BOTH, "vlm")


def test_json_and_sarif_have_the_findings(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN35))
    checked = check(tmp_path, used_by=["mlx-vlm"])
    assert "reader-ignores" in [x["rule"] for x in checked.to_json()["findings"]]
    results = sarif(checked, tmp_path)["runs"][0]["results"]
    assert "reader-ignores" in [x["ruleId"] for x in results]
