"""Test the rules on faults rebuilt from the reports of 2026, and on published configs."""

import json
import re
from pathlib import Path

import pytest
from faulty_configs import (
    CONTRADICTIONS,
    LLAMA,
    LLAMA3,
    MET,
    UNKNOWABLE,
    VISIBLE,
    YARN,
    answer,
    planted_config,
)
from published import KINDS, MODELS, published
from transformers.models.auto import modeling_auto

from posenc.models.check.contradictions import other_class
from posenc.models.check.faults import RULES, faults
from posenc.models.config import families
from posenc.models.config.spec import Spec


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
    planted = {rule for _, _, rule in CONTRADICTIONS.values()} - {"cannot say"}
    elsewhere = {"remark", "broken-file", "weights-disagree", "files-differ", "contexts-differ"}
    elsewhere |= {"reader-ignores", "readers-disagree", "new-spelling-alone"}
    assert {rule for rule, _ in MET} | planted | elsewhere == {*RULES}


@pytest.mark.parametrize("name", {**CONTRADICTIONS, **VISIBLE})
def test_a_planted_fault_is_named(name):
    base, changes, expected = {**CONTRADICTIONS, **VISIBLE}[name]
    assert expected in answer(planted_config(base, changes)) - answer(published(base))


@pytest.mark.parametrize("name", UNKNOWABLE)
def test_a_plausible_value_is_no_fault(name):
    base, changes = UNKNOWABLE[name]
    assert planted_config(base, changes) != published(base)
    assert answer(planted_config(base, changes)) <= answer(published(base))


def test_the_docs_state_the_share_of_planted_faults_that_is_caught():
    """The two tests above show that each visible fault is caught, and no other."""
    visible, hidden = len(CONTRADICTIONS) + len(VISIBLE), len(UNKNOWABLE)
    said = " ".join((Path(__file__).parents[3] / "docs/check.md").read_text().split())
    every = visible + hidden
    assert f"plants {every} faults" in said
    assert f"finds {visible} of the {every} faults" in said
    assert f"The other {hidden} faults" in said


# The only warnings that published files get, each with its reason
WARNED = {
    "Qwen2.5 (32B or 72B) + yarn recipe": {"context-not-multiplied"},  # Qwen's own recipe
    "GPT-NeoX-20B / Pythia": {"rotation-ignored"},  # the table above adds a key to the file
    "GPT-J-6B": {"rotation-ignored"},  # the same
    "GLM-4 (class default)": {"base-too-small"},  # the class default, not a published file
}


@pytest.mark.parametrize("name", [name for name in MODELS if name in KINDS])
def test_a_healthy_config_gets_no_new_warning(name):
    assert answer(published(name)) == WARNED.get(name, set())


# Types that transformers reads by the class of a relative, under its name
BORROWED = {"glmga", "internlm3", "iquestcoder", "pp_chart2table", "shieldgemma2", "sam3_video"}


def test_the_classes_of_transformers_agree_with_their_model_type():
    """Compare with the tables in which transformers looks up classes."""
    tables = vars(modeling_auto).items()
    tables = [table for name, table in tables if name.endswith("_MAPPING_NAMES")]
    count, disagree = 0, set()
    for kind, names in (pair for table in tables for pair in table.items()):
        known = families.family(kind)
        for name in [names] if isinstance(names, str) else names:
            if known and known.kind in ("rotary", "parts"):
                count += 1
                spec = Spec(kind, known.kind)
                disagree |= {kind} if other_class({"architectures": [name]}, spec) else set()
    assert count > 100
    assert disagree <= BORROWED


def test_a_fault_is_said_once_by_its_file_and_key(tmp_path):
    (finding,) = found(tmp_path, rope_scaling=YARN | {"betafast": 32}).findings
    assert (finding.file, finding.key) == ("config.json", "rope_scaling.betafast")
    assert "did you mean beta_fast?" in finding.message
    base = MET["missing-base", "error"] | {"max_position_embeddings": 4096}
    (finding,) = found(tmp_path, **base).findings
    assert (finding.rule.name, finding.key) == ("missing-base", "rope_parameters")


def test_what_is_not_read_is_no_fault_but_cannot_be_said(tmp_path):
    asked = faults(written(tmp_path, {"model_type": "levit", "num_hidden_layers": 2}))
    assert (asked.spec, asked.findings) == (None, ())
    assert len(asked.unknown) == 1
    (unknown,) = found(tmp_path, my_rope_trick=True).unknown
    assert "posenc does not support it" in unknown


@pytest.mark.parametrize("name", ["model.safetensors", "model.bin"])
def test_weights_without_a_config_are_no_fault(tmp_path, name):
    """A file of weights without a config has no fault."""
    (tmp_path / name).write_bytes(b"")
    for path in (tmp_path, tmp_path / name):
        asked = faults(path)
        assert (asked.spec, asked.findings, asked.file) == (None, (), name)
        assert "contains no config.json, so its encodings cannot be read" in asked.unknown[0]


@pytest.mark.parametrize("name", [name for name in MODELS if name in KINDS])
def test_no_published_config_has_a_fault(tmp_path, name):
    """tests/models/config compares their frequencies with transformers."""
    asked = faults(written(tmp_path, published(name)))
    assert [finding for finding in asked.findings if finding.level == "error"] == []
    assert asked.spec is not None
    assert asked.unknown == ()


FILES = json.loads((Path(__file__).parents[2] / "data/published_files.json").read_text("utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_no_published_file_has_a_fault(tmp_path, name):
    asked = faults(written(tmp_path, FILES[name]["config"]))
    assert [finding for finding in asked.findings if finding.level == "error"] == []
    assert asked.unknown == ()


def test_every_rule_says_where_it_was_met():
    for rule in RULES.values():
        assert rule.threads or rule.name in ("factor-of-1", "remark", "broken-file")
        for link in rule.links:
            assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", link)
