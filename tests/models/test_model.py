"""Test that `posenc.Model` returns the results of the functions, and count the opened files."""

import json
import sys

import pytest
from trained_models import trained

import posenc
from posenc.models.check.verdict import check
from posenc.models.config import specify
from posenc.models.files.errors import ModelError

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip
OPENED: list[str] = []
COUNTING = []


def _note(event, arguments):
    if COUNTING and event == "open":
        OPENED.append(str(arguments[0]))


@pytest.fixture
def opens():
    """Record paths that Python opens, with an audit hook, which cannot be removed."""
    if not hasattr(sys, "posenc_opens"):
        sys.addaudithook(_note)
        sys.posenc_opens = True
    OPENED.clear()
    COUNTING.append(True)
    yield OPENED
    COUNTING.clear()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_a_model_answers_what_the_functions_answer(folder, tmp_path):
    model = posenc.Model(folder)
    assert model.spec == specify(CONFIG)
    assert model.values == CONFIG
    assert [type(one) for one in model.encodings()] == [posenc.RoPE] * 2
    ours, theirs = model.inspect(131072), posenc.inspect(folder, 131072)
    assert ours.verdict == theirs.verdict == "breaks"
    assert ours.advice == theirs.advice
    assert ours.name == theirs.name == folder.name
    assert model.check().findings == check(folder).findings


def test_a_config_in_the_working_directory_is_a_file_and_not_values(folder, monkeypatch):
    """A relative path has no folder name, so the report has the name of the file."""
    monkeypatch.chdir(folder)
    ours, theirs = (one.to_json() for one in (
        posenc.Model("config.json").inspect(9000), posenc.inspect("config.json", 9000),
    ))  # fmt: skip
    assert (ours["name"], ours["advice"]) == (theirs["name"], theirs["advice"])
    assert ours["name"] == folder.name


def test_values_of_a_config_are_a_model(folder):
    model = posenc.Model(CONFIG)
    assert model.spec == posenc.Model(folder).spec
    assert model.inspect(131072).problems == posenc.inspect(CONFIG, 131072).problems
    with pytest.raises(ModelError, match="no weights"):
        model.weights  # noqa: B018  reading it raises


def test_values_that_are_handed_out_are_copies(folder):
    model = posenc.Model(folder)
    model.values["rope_theta"] = 1.0
    assert model.values == CONFIG


def test_a_copy_for_longer_texts_leaves_the_model_as_it_was(folder, tmp_path):
    model = posenc.Model(folder)
    written = model.extend(32768, out=tmp_path.parent / f"{tmp_path.name}-copy")
    assert json.loads(written.config.read_text())["max_position_embeddings"] == 32768
    assert json.loads((folder / "config.json").read_text()) == CONFIG


def test_what_cannot_be_read_is_told_when_it_is_asked(tmp_path):
    with pytest.raises(ModelError, match=r"cannot be read|does not exist"):
        _ = posenc.Model(tmp_path / "none.json").spec


def test_an_inspection_opens_the_config_twice(folder, opens):
    """The first time checks that it is a regular file below the folder, the second reads it."""
    posenc.Model(folder).inspect(131072)
    assert sum(path.endswith("config.json") for path in opens) == 2


@pytest.mark.slow
def test_a_check_opens_the_config_twice_also_where_weights_are_asked(tmp_path, opens):
    folder = trained("Llama", tmp_path / "m")
    opens.clear()
    check(folder)
    assert sum(path.endswith("config.json") for path in opens) == 2
