"""The page's data, held against the cards, the configs and θ by its formula."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc import CATALOG, ALiBi, create
from posenc.catalog import find
from posenc.explorer import data, graphs, models
from posenc.models.extend import extended
from posenc.models.inspection import inspect


@pytest.fixture(scope="module")
def page():
    return json.loads(data.to_json(data.page()))


@pytest.fixture(scope="module")
def encodings(page):
    return {one["slug"]: one for one in page["encodings"]}


@pytest.mark.parametrize("name", ["llama", "gpt_oss", "gemma3_text", "modernbert", "phi3"])
def test_packaged_models_are_described_as_now(name):
    """If not: `python tools/explorer.py models`."""
    packaged = data.architectures()
    found, turnings = json.loads(json.dumps(models.architecture(name)))
    assert found == next(one for one in packaged["models"] if one["name"] == name)
    assert turnings
    for key, turning in turnings.items():
        known = packaged["turnings"][key]
        for part in ("says", "unfinished", "base", "method", "trained"):
            assert turning[part] == known[part]
        assert turning["slower"] == pytest.approx(known["slower"])


def test_every_card_is_on_the_page(encodings):
    assert [*encodings] == [card.slug for card in CATALOG]
    for card in CATALOG:
        one = encodings[card.slug]
        assert "sentence" not in one["graph"]
        assert {name for name, found in one["properties"].items() if found["holds"]} == {
            measure.__name__ for measure in card.holds
        }
        assert card.paper is not None
        assert one["paper"]["bibtex"] == card.paper.bibtex()
        assert card.name.split()[0] in one["name"]


def test_formulas_are_mathml(encodings):
    lines = encodings["rope"]["formula"]
    assert lines
    assert all(part.startswith("<math>") for line in lines for part in line)
    assert encodings["rope"]["text"][0]["prose"]


def test_what_is_called_makes_the_encoding_of_the_graph(encodings):
    for one in encodings.values():
        graph = one["graph"]
        made = create(one["command"], graph["dim"], graph["heads"], **graph["options"])
        assert [hook.removeprefix("on_") for hook in made.acts_on] == one["acts_on"]


def test_sliders_turn_what_the_constructor_takes(encodings):
    for one in encodings.values():
        options = {option["name"] for option in one["options"]}
        for name, slider in one["sliders"].items():
            assert name in options
            assert slider["values"] == sorted(slider["values"])
            for constants in slider["constants"].values():
                assert len(constants) == len(slider["values"])
                assert constants[slider["at"]] != constants[0]


def test_the_base_of_theta_can_be_turned(encodings):
    """θⱼ = base^(−2j/d), for each base of the slider."""
    slider = encodings["rope"]["sliders"]["base"]
    assert slider["values"][slider["at"]] == 10_000
    for base, theta in zip(slider["values"], slider["constants"]["freqs"], strict=True):
        wanted = [base ** (-2 * j / graphs.DIM) for j in range(graphs.DIM // 2)]
        assert theta["values"] == pytest.approx(wanted, rel=1e-14)


def test_the_strength_of_alibi_can_be_turned(encodings):
    slider = encodings["alibi"]["sliders"]["strength"]
    for strength, slopes in zip(slider["values"], slider["constants"]["slopes"], strict=True):
        wanted = [strength * 2 ** (-8 * (h + 1) / 4) for h in range(4)]
        assert [abs(slope) for slope in slopes["values"]] == pytest.approx(wanted)


def test_every_architecture_names_how_it_turns(page):
    known = {model["name"] for model in page["models"]}
    assert {"llama", "qwen3", "gemma3_text", "bloom", "bert", "t5"} <= known
    for model in page["models"]:
        assert model["layers"] or model["embedding"]
        for layers in model["layers"]:
            assert layers["turning"] is None or layers["turning"] in page["turnings"]
        for look in model["outlooks"]:
            assert (look["verdict"] == "breaks") == bool(look["problems"])


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


def test_an_encoding_of_ones_own_comes_first():
    own = find(ALiBi(4, 0.25))
    page = data.page([own])
    assert page["encodings"][0]["name"] == "ALiBi own"
    assert page["encodings"][0]["family"] == "own"
    assert page["encodings"][0]["paper"] is None
    assert page["first"] == ["alibi-own"]
    assert not page["notes"]


@given(st.text())
def test_text_of_the_users_is_kept_as_json(text):
    assert json.loads(data.to_json({"text": text})) == {"text": text}


def test_numbers_that_json_does_not_have_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        data.to_json({"number": math.inf})
