"""Models on the page, held against `inspect` and against configs that are extended."""

import json
from pathlib import Path

import pytest

from posenc.models import inspection, published
from posenc.models.extend import extended
from posenc.models.inspection import inspect
from posenc.show.explorer import data, models


@pytest.fixture(scope="module")
def page():
    return json.loads(data.to_json(data.page()))


def test_every_architecture_names_how_it_turns(page):
    known = {model["name"] for model in page["models"]}
    assert {"llama", "qwen3", "gemma3_text", "bloom", "bert", "t5"} <= known
    for model in page["models"]:
        assert model["layers"] or model["embedding"]
        for layers in model["layers"]:
            assert layers["turning"] is None or layers["turning"] in page["turnings"]
        for look in model["outlooks"]:
            assert (look["verdict"] == "breaks") == bool(look["problems"])


@pytest.mark.parametrize("name", ["GPT-J-6B", "Qwen3-8B", "Gemma-3-1b-it", "Phi-3.5-mini-instruct"])
def test_a_published_model_is_judged_at_each_length_as_inspect_judges_it(name):
    """Each config is extended once a method; `inspect` does it anew for each length."""
    values = published.configs()[name]
    model, _ = models.published_model(name, values)
    assert len(model["outlooks"]) == 5
    for look in model["outlooks"]:
        found = inspect(values, look["target"])
        assert (look["problems"], look["unknown"]) == (found.problems, found.unknown)
        assert [a.split("--method")[-1] for a in look["advice"]] == [
            a.split("--method")[-1] for a in found.advice
        ]


def test_a_method_is_tried_once_for_all_lengths(monkeypatch):
    tried = []

    def counted(values, target, method):
        tried.append(method)
        return extended(values, target, method)

    monkeypatch.setattr(inspection, "extended", counted)
    model, _ = models.published_model("Qwen3-8B", published.configs()["Qwen3-8B"])
    assert len([look for look in model["outlooks"] if look["advice"]]) == 4
    assert sorted(tried) == ["dynamic", "yarn"]


def test_defaults_of_a_class_lead_to_the_config_of_a_model(page):
    """A class has no file that could be extended."""
    (llama,) = (model for model in page["models"] if model["name"] == "llama")
    broken = [look for look in llama["outlooks"] if look["problems"]]
    assert broken
    for look in broken:
        (advice,) = look["advice"]
        assert advice.startswith(f"posenc inspect config.json --target {look['target']} ")


CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "max_position_embeddings": 4096,
}


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "mine" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(CONFIG))
    return path


def test_a_model_of_the_users_is_described_as_inspect_does(config):
    model, turnings = models.model(config, "mine")
    assert model["own"]
    assert [layers["does"] for layers in model["layers"]] == [
        group.does for group in inspect(config).groups
    ]
    for look in model["outlooks"]:
        found = inspect(config, look["target"])
        assert (look["verdict"], look["problems"], look["advice"]) == (
            found.verdict,
            found.problems,
            found.advice,
        )
    (turning,) = turnings.values()
    assert turning["theta"]["shape"] == [32]


@pytest.mark.parametrize(
    ("method", "said"), [("linear", "linear"), ("yarn", "YaRN"), ("llama3", "Llama 3")]
)
def test_extensions_slow_the_pairs_as_in_an_extended_config(config, tmp_path, method, said):
    """The config is extended, and read anew."""
    (turning,) = models.model(config, "mine")[1].values()
    longer, _ = extended(CONFIG, None, method, "config.json", 4.0)
    config.write_text(json.dumps(longer))
    (now,) = models.model(config, "mine")[1].values()
    (stretched,) = (one for one in turning["extended"] if one["factor"] == 4)
    assert stretched["target"] == 4 * 4096
    assert stretched["methods"][said]["slower"] == pytest.approx(now["slower"], rel=1e-4)
