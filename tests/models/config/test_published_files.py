"""Test published files against layers, windows, scales and rotations in transformers."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from thorough import some

sys.path.insert(0, str(Path(__file__).parent))
from published_files import by_posenc, by_transformers, files

from posenc.models.config import specify

FILES = files()


def close(said, done):
    """Test whether two layers have the same values for all settings that both state."""
    if said is None or done is None:
        return said is done
    both = {*said} & {*done}
    if None in (said["scale"], done.get("scale")):  # no scale, or the default one
        both -= {"scale"}
    near = {key for key in both if isinstance(done[key], float)}
    same = all(said[key] == done[key] for key in both - near)
    same &= all(said[key] == pytest.approx(done[key], rel=1e-4) for key in near)
    return same and ("pairs" in said) == ("pairs" in done)


@pytest.mark.parametrize("name", FILES)
def test_each_layer_does_what_transformers_makes_of_it(name: str):
    file = FILES[name]
    said = by_posenc(specify(json.loads(json.dumps(file["config"]))))
    assert len(said["layers"]) == len(file["layers"])
    for n, (mine, true) in enumerate(zip(said["layers"], file["layers"], strict=True)):
        one, other = said["kinds"][int(mine)], file["kinds"][int(true)]
        assert close(one, other), f"layer {n}: {one} instead of {other}"


@pytest.mark.parametrize("name", some([*FILES], 16))
def test_what_stands_there_is_what_transformers_makes(name: str):
    made = by_transformers(FILES[name]["config"])
    assert made == {key: FILES[name][key] for key in made}


def test_there_are_old_words_patterns_and_keys_that_classes_pop():
    """There must be at least sixty files of forty architectures, with old names and patterns."""
    objects = [one["config"] for one in FILES.values()]
    objects += [value for one in objects for value in one.values() if isinstance(value, dict)]
    keys = {key for one in objects for key in one}
    assert len(FILES) >= 60
    assert len({one["config"]["model_type"] for one in FILES.values()}) >= 40
    assert {"hybrid_override_pattern", "linear_attn_config", "attn_layer_indices"} < keys
    assert {"compress_ratios", "attention_other_setting", "rotary_dim", "alpha", "type"} < keys
    assert {"full_attn_idxs", "attn_type_list", "is_causal", "global_attn_every_n_layers"} < keys
