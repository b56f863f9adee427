"""Against the faults that were met in 2026, each rebuilt from the thread that it is known from, and
against configs as they were published."""

import json
import re

import pytest
from faulty_configs import LLAMA, LLAMA3, MET, YARN
from published import KINDS, MODELS, published

from posenc.models.check.faults import RULES, faults


def written(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def found(folder, **keys):
    config = {key: value for key, value in (LLAMA | keys).items() if value is not None}
    return faults(written(folder, config))


@pytest.mark.parametrize(("rule", "level"), MET)
def test_a_fault_that_was_met_is_named(tmp_path, rule, level):
    findings = found(tmp_path, **MET[rule, level]).findings
    assert (rule, level) in [(finding.rule.name, finding.level) for finding in findings]


def test_a_context_that_llama3_multiplies_is_named(tmp_path):
    scaling = LLAMA3 | {"original_max_position_embeddings": 8192}
    (finding,) = found(tmp_path, max_position_embeddings=8192, rope_scaling=scaling).findings
    assert finding.rule.name == "context-not-multiplied"


def test_every_rule_is_met_here():
    elsewhere = {"remark"}
    assert {rule for rule, _ in MET} | elsewhere == {rule.name for rule in RULES}


def test_a_fault_is_said_once_by_its_file_and_key(tmp_path):
    (finding,) = found(tmp_path, rope_scaling=YARN | {"betafast": 32}).findings
    assert (finding.file, finding.key) == ("config.json", "rope_scaling.betafast")
    assert "did you mean beta_fast?" in finding.message
    base = MET["missing-base", "error"] | {"max_position_embeddings": 4096}
    (finding,) = found(tmp_path, **base).findings
    assert (finding.rule.name, finding.key) == ("missing-base", "rope_parameters")


def test_what_is_not_read_is_no_fault_but_cannot_be_said(tmp_path):
    asked = faults(written(tmp_path, {"model_type": "swin", "num_hidden_layers": 2}))
    assert (asked.spec, asked.findings) == (None, ())
    assert len(asked.unknown) == 1
    (unknown,) = found(tmp_path, my_rope_trick=True).unknown
    assert "posenc does not know how" in unknown


@pytest.mark.parametrize("name", ["model.onnx", "model.safetensors", "model.bin"])
def test_weights_without_a_config_are_no_fault(tmp_path, name):
    """As of a voice in ONNX: nothing is wrong with the file."""
    (tmp_path / name).write_bytes(b"")
    for path in (tmp_path, tmp_path / name):
        asked = faults(path)
        assert (asked.spec, asked.findings, asked.file) == (None, (), name)
        assert "holds no config.json, so what it does cannot be read" in asked.unknown[0]


@pytest.mark.parametrize("name", [name for name in MODELS if name in KINDS])
def test_no_published_config_has_a_fault(tmp_path, name):
    """Their frequencies are held against transformers in tests/models/config."""
    asked = faults(written(tmp_path, published(name)))
    assert [finding for finding in asked.findings if finding.level == "error"] == []
    assert asked.spec is not None
    assert asked.unknown == ()


def test_every_rule_says_where_it_was_met():
    for rule in RULES[:-1]:
        assert rule.threads
        for link in rule.links:
            assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", link)
