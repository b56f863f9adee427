"""Sentences on models against their numbers."""

import json
import re

import pytest

from posenc.models.inspection import inspect
from posenc.show.report import page
from posenc.show.report.kinds.inspection import phrases


def inspected(tmp_path, target, **config):
    """A Llama of 128 channels a head, inspected for texts of this length."""
    base = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 2}
    base |= {"num_hidden_layers": 2, "max_position_embeddings": 131072, "rope_theta": 500000.0}
    folder = tmp_path / "Some-Model-8B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(base | config))
    return inspect(folder, target)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def test_beside_a_warning_the_verdict_asks_to_mind_it(tmp_path):
    """Llama 3.1's frequencies: Σ cos mθ < 0 from 85,133 tokens on, within the target."""
    found = inspected(tmp_path, 131072, rope_scaling=LLAMA3)
    said = phrases.turning(found.groups[0].turning)
    below = "from 85,133 tokens on, a key equal to the query can score below a random one"
    assert any(line.startswith(below) for line in said)
    assert found.verdict == "cannot say"  # the config does not state the trained length
    found = inspected(tmp_path / "unscaled", 131072)
    said = phrases.turning(found.groups[0].turning)
    assert any("can score below a random one" in line for line in said)
    assert found.verdict == "fits"
    assert "No fault is known at 131,072 tokens; read the notes" in phrases.verdict_of(found)
    assert "only a test" not in phrases.verdict_of(found)


def test_what_has_no_warning_says_that_no_fault_is_known_and_promises_nothing(tmp_path):
    found = inspected(tmp_path, 4096)
    for fact in ("No fault is known at 4,096 tokens", "only a test"):
        assert fact in phrases.verdict_of(found)


def test_errors_of_angles_are_judged(tmp_path):
    found = inspected(tmp_path, None)
    (line,) = (one for one in phrases.turning(found.groups[0].turning) if "stored" in one)
    assert re.search(r"in float32: 0\.\d+ rad \(fine\)", line)
    assert re.search(r"in bfloat16: \d+ rad \(meaningless\)", line)


def test_a_model_is_called_by_its_folder(tmp_path):
    found = inspected(tmp_path, None)
    assert phrases.model(found) == "Some-Model-8B (llama)"
    assert found.to_json()["name"] == "Some-Model-8B"
    html = page.render(found)
    assert "<title>Some-Model-8B (llama): positions</title>" in html
    assert "<h1>Some-Model-8B (llama)</h1>" in html


@pytest.mark.parametrize("folder", ["flat", "nested"])
def test_a_config_of_qwen_vl_is_read_with_its_text(tmp_path, folder):
    """28 layers of 28 heads, base a million, in sections: never "nothing to encode"."""
    config = {"model_type": "qwen2_5_vl", "hidden_size": 3584, "num_hidden_layers": 28}
    config |= {"num_attention_heads": 28, "num_key_value_heads": 4, "rope_theta": 1e6}
    config |= {"max_position_embeddings": 128000}
    config |= {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    if folder == "nested":
        config["vision_config"] = {"depth": 32, "hidden_size": 1280, "num_heads": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = inspect(tmp_path, 131072)
    assert len(found.spec.layers) == 28
    assert "sections 16 + 24 + 24" in found.groups[0].does
    assert "only a test" not in phrases.verdict_of(found)
